package libvirt

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/coopr/coopr/testing/programs"
)

// daemonFor starts a libvirtd with folders and a socket of its own, and returns the socket.
func daemonFor(t *testing.T) string {
	t.Helper()
	program := programs.Installed(t, "libvirtd")
	if os.Geteuid() != 0 {
		t.Skip("libvirtd needs root for folders of its own")
	}
	dir := t.TempDir()
	conf := fmt.Sprintf("unix_sock_dir = %q\nauth_unix_rw = \"none\"\nauth_unix_ro = \"none\"\nunix_sock_group = \"root\"\n", dir)
	if err := os.WriteFile(filepath.Join(dir, "conf"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	// In its own mount namespace it finds empty folders, and leaves nothing behind.
	script := `for d in /run/libvirt /var/lib/libvirt /var/cache/libvirt /var/log/libvirt /etc/libvirt; do mkdir -p $d && mount -t tmpfs ` +
		`none $d; done; exec "$0" -f "$1/conf" -p "$1/pid"`
	cmd := exec.Command("unshare", "--mount", "--propagation", "private", "/bin/sh", "-c", script, program, dir)
	// Without driver modules it only has the built-in test driver.
	cmd.Env = append(os.Environ(), "LIBVIRT_DRIVER_DIR="+filepath.Join(dir, "drivers"))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if t.Failed() {
			said, _ := os.ReadFile(filepath.Join(dir, "log"))
			t.Logf("libvirtd said:\n%s", said)
		}
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
		}
	})
	socket := filepath.Join(dir, "libvirt-sock")
	for until := time.Now().Add(2 * time.Minute); ; {
		c, err := net.Dial("unix", socket)
		if err == nil {
			_ = c.Close()
			return socket
		}
		select {
		case <-ended:
			err = errors.New("it ended")
		case <-time.After(20 * time.Millisecond):
			if time.Now().Before(until) {
				continue
			}
		}
		said, _ := os.ReadFile(filepath.Join(dir, "log"))
		t.Fatalf("libvirtd: %v\n%s", err, said)
	}
}
