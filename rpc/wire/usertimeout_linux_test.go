package wire_test

import (
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/coopr/coopr/rpc/wire"
)

// TestUserTimeout: both ends of a conn between agents close it when the other host is silent.
func TestUserTimeout(t *testing.T) {
	network := wire.TCP(nil)
	l, err := network.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err := network.Dial(t.Context(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	for name, conn := range map[string]net.Conn{"dialled": near, "accepted": far} {
		raw, err := conn.(syscall.Conn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		var ms int
		if err := raw.Control(func(fd uintptr) { ms, _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT) }); err != nil {
			t.Fatal(err)
		}
		if ms != 1000 {
			t.Errorf("the %s end has a user timeout of %d ms", name, ms)
		}
	}
}
