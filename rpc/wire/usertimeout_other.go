//go:build !linux

package wire

import (
	"syscall"
	"time"
)

// setUserTimeoutTo does nothing: only Linux has the option.
func setUserTimeoutTo(syscall.RawConn, time.Duration) error { return nil }
