//go:build !unix

// Package uptime reads a clock that all processes of a machine share, and that nobody sets.
package uptime

import "time"

// Now returns 0: the clock is not known.
func Now() time.Duration { return 0 }
