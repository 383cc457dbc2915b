package wire

import (
	"crypto/tls"
	"net"
	"syscall"
	"time"
)

// A conn is closed when the other host has not acknowledged its bytes for so long. After a cut, TCP
// itself sends again only after pauses that have grown to seconds, and a new conn works at once.
//
// A reader that pauses looks the same, once its window is full. HTTP/2 has windows of its own, so its
// readers do not pause. A voter that receives a snapshot may wait for its disk. Forwarded HTTP has the
// pace of the client, and is given up when the leader is lost.
const (
	userTimeout     = time.Second
	userTimeoutRaft = 4 * time.Second
	userTimeoutHTTP = 5 * time.Minute
)

// setPatience sets the user timeout that a protocol needs on a conn between agents.
func setPatience(conn net.Conn, p Protocol) {
	var d time.Duration
	switch p {
	case ProtocolRaft:
		d = userTimeoutRaft
	case ProtocolHTTP:
		d = userTimeoutHTTP
	default:
		return // has userTimeout since it was opened
	}
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	c, ok := conn.(syscall.Conn)
	if !ok {
		return
	}
	if raw, err := c.SyscallConn(); err == nil {
		_ = setUserTimeoutTo(raw, d) // a closed conn fails; its next use reports that
	}
}

// setUserTimeout sets userTimeout on a socket. Accepted conns inherit it from their listener.
func setUserTimeout(_, _ string, conn syscall.RawConn) error {
	return setUserTimeoutTo(conn, userTimeout)
}
