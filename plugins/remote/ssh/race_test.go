//go:build race

package ssh

// The race detector makes encryption ten times slower.
const much = 10 << 20
