//go:build race

package raftgroup_test

// raced says that the race detector slows everything down.
const raced = true
