//go:build race

package mesh_test

// raced is true if the race detector slows everything down.
const raced = true
