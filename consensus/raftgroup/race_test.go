//go:build race

package raftgroup_test

// raced is true in builds with the race detector, which slows the tests down.
const raced = true
