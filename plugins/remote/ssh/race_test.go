//go:build race

package ssh

// The race detector makes encryption ten times as slow.
const much = 10 << 20
