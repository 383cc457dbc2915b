//go:build !race

package ssh

const much = 100 << 20
