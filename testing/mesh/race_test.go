//go:build race

package mesh_test

// raced says that the race detector slows everything down.
const raced = true
