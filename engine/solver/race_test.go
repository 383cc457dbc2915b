//go:build race

package solver_test

// raced says that the race detector slows everything down.
const raced = true
