//go:build !race

package raftgroup_test

const raced = false
