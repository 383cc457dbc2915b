//go:build race

package solver_test

// raced is true if the race detector slows the tests down.
const raced = true
