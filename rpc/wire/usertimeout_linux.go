package wire

import (
	"errors"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func setUserTimeoutTo(conn syscall.RawConn, d time.Duration) error {
	var failed error
	err := conn.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
	})
	return errors.Join(err, failed)
}
