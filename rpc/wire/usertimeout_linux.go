package wire

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// setUserTimeout sets userTimeout on a socket. Accepted conns inherit it from their listener.
func setUserTimeout(_, _ string, conn syscall.RawConn) error {
	var failed error
	err := conn.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout.Milliseconds()))
	})
	return errors.Join(err, failed)
}
