package e2e

import (
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestServiceManager: an agent tells systemd when it serves, and when it
// begins to stop.
func TestServiceManager(t *testing.T) {
	t.Parallel()
	m := newMesh(t, "a")
	a := m.agents[0]
	socket := filepath.Join(m.dir, "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	hears := func(want string) {
		t.Helper()
		if err := l.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 100)
		n, err := l.Read(b)
		if err != nil || string(b[:n]) != want {
			t.Errorf("it says %q, not %q: %v", b[:n], want, err)
		}
	}
	a.env = []string{"NOTIFY_SOCKET=" + socket}
	a.start()
	hears("READY=1")
	if _, err := a.status(); err != nil {
		t.Errorf("it is ready, and does not answer: %v", err)
	}
	m.ready()
	a.signal(syscall.SIGTERM)
	hears("STOPPING=1")
	a.endsWell()
	m.noneLeft()
}
