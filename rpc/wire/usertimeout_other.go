//go:build !linux

package wire

import "syscall"

// setUserTimeout does nothing: only Linux has the option.
func setUserTimeout(string, string, syscall.RawConn) error { return nil }
