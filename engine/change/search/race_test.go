//go:build race

package search

// race is true if the race detector is on. It makes a search ten times as slow and finds
// nothing, because nothing here is concurrent.
const race = true
