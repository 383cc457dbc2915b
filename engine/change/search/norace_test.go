//go:build !race

package search

const race = false
