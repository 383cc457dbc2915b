package e2e

import (
	"errors"
	"io/fs"
	"net"
	"os"
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
	hears := a.notifies()
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

// notifies has the agent notify the test in place of systemd from its next start on. It returns a function that waits for a notification.
func (a *agent) notifies() (hears func(want string)) {
	m, t := a.mesh, a.mesh.t
	socket := filepath.Join(m.dir, "notify")
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	a.env = []string{"NOTIFY_SOCKET=" + socket}
	return func(want string) {
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
}
