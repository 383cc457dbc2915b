package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// limit returns a context that bounds a wait.
func limit(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func start(t testing.TB, l *Lab, spec Spec) *Machine {
	t.Helper()
	m, err := l.Start(limit(t), spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.WaitSSH(limit(t)); err != nil {
		t.Fatalf("%v\n%s", err, m.Console())
	}
	return m
}

// over runs a command over SSH with an ordinary client.
func over(m *Machine, user, command string) (string, error) {
	c, err := ssh.Dial("tcp", net.JoinHostPort(m.Addr.String(), "22"), &ssh.ClientConfig{
		User: user, Auth: []ssh.AuthMethod{ssh.PublicKeys(m.lab.Signer())}, HostKeyCallback: ssh.FixedHostKey(m.HostKey),
	})
	if err != nil {
		return "", err
	}
	defer c.Close()
	s, err := c.NewSession()
	if err != nil {
		return "", err
	}
	defer s.Close()
	out, err := s.CombinedOutput(command)
	return strings.TrimSpace(string(out)), err
}

func must(t testing.TB, m *Machine, args ...string) string {
	t.Helper()
	out, err := m.Run(limit(t), args...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// TestGiven checks that a machine has the address and the files of its Spec.
func TestGiven(t *testing.T) {
	l := New(t)
	spec := Spec{Name: "given", Addr: netip.MustParseAddr("10.77.200.7"),
		Files: map[string]string{"etc/motd": "hello", "home/debian/.ssh/authorized_keys": ""}}
	m := start(t, l, spec)
	if got := must(t, m, "/bin/sh", "-c", "ip -4 -o addr show eth0; cat /etc/motd; ls -l /etc/motd"); !strings.Contains(got,
		"10.77.200.7/16") || !strings.Contains(got, "hello-rw-r--r-- 1 root root") {
		t.Error(got)
	}
	if got, err := over(m, "root", "echo in"); err != nil || got != "in" {
		t.Errorf("%q %v", got, err)
	}
	if got, err := over(m, "debian", "echo in"); err == nil {
		t.Errorf("without its key: %q", got)
	}
	spec.Name = "second"
	if _, err := l.Start(limit(t), spec); err == nil || !strings.Contains(err.Error(), "10.77.200.7 is the address of machine given") {
		t.Errorf("two machines with one address: %v", err)
	}
}

// TestMachine checks that each machine has its own name, address, users and processes, and files
// that survive a power cut, and that no address outside of its network can be reached.
func TestMachine(t *testing.T) {
	l := New(t)
	a, b := start(t, l, Spec{Name: "a"}), start(t, l, Spec{Name: "b"})
	for user, want := range map[string]string{"root": "a 0 root", "debian": "a 1000 root"} {
		if got, err := over(a, user, "echo $(hostname) $(id -u) $(sudo whoami)"); err != nil || got != want {
			t.Errorf("%s: %q %v", user, got, err)
		}
	}
	if got := must(t, b, "ssh-keyscan", "-t", "ed25519", a.Addr.String()); !strings.Contains(got,
		strings.TrimSpace(string(ssh.MarshalAuthorizedKey(a.HostKey)))) {
		t.Errorf("b sees of a: %s", got)
	}
	// Processes may end while the shell counts them.
	if got := must(t, a, "sh", "-c", "cat /proc/1/comm; set -- /proc/[0-9]*; echo $#"); !strings.HasPrefix(got, "tini\n") ||
		len(got) > len("tini\n10") {
		t.Errorf("the machine sees other processes than its own: %s", got)
	}
	for what, address := range map[string]string{"a machine": must(t, a, "sh", "-c",
		"ping -c1 -W1 192.0.2.1 >/dev/null && echo out || echo none"), "the test": reach("192.0.2.1:80")} {
		if address != "none" {
			t.Errorf("%s has a way out: %s", what, address)
		}
	}

	must(t, a, "sh", "-c", "echo kept > /etc/kept; echo lost > /run/lost")
	if err := a.Crash(); err != nil {
		t.Fatal(err)
	}
	if reach(a.Addr.String()+":22") != "none" {
		t.Error("a machine without power answers")
	}
	if err := a.Boot(limit(t)); err != nil {
		t.Fatal(err)
	}
	if err := a.WaitSSH(limit(t)); err != nil {
		t.Fatal(err)
	}
	if got, err := over(a, "root", "cat /etc/kept; ls /run/lost 2>/dev/null"); !strings.HasPrefix(got, "kept") || err == nil {
		t.Errorf("after the power cut: %q %v", got, err)
	}
	if _, err := os.Stat(l.image.root() + "/etc/kept"); err == nil {
		t.Error("a machine wrote into the image")
	}
}

// reach tries a connection that must fail.
func reach(address string) string {
	c, err := net.DialTimeout("tcp", address, time.Second)
	if err == nil {
		c.Close()
		return "out"
	}
	return "none"
}

// TestFiftyMachines: fifty machines at once, each answering over SSH.
func TestFiftyMachines(t *testing.T) {
	l := New(t)
	begin := time.Now()
	var wg sync.WaitGroup
	slots := make(chan struct{}, 4)
	for i := range 50 {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			name := fmt.Sprintf("m%d", i)
			m, err := l.Start(limit(t), Spec{Name: name})
			if err == nil {
				err = m.WaitSSH(limit(t))
			}
			var got string
			if err == nil {
				got, err = over(m, "root", "hostname")
			}
			if err != nil || got != name {
				t.Errorf("%s: %q %v", name, got, err)
			}
		})
	}
	wg.Wait()
	t.Logf("50 machines, with a login to each: %v", time.Since(begin).Round(time.Millisecond))
}

// TestSystemd: a real systemd, real packages from the mirror, a real service.
func TestSystemd(t *testing.T) {
	l := New(t)
	m := start(t, l, Spec{Name: "s", Systemd: true})
	if got, _ := m.Run(limit(t), "systemctl", "is-system-running", "--wait"); strings.TrimSpace(got) != "running" {
		t.Errorf("systemd says %s:\n%s\n%s", got, must(t, m, "systemctl", "--failed"), must(t, m, "journalctl", "-b", "-p", "warning"))
	}
	must(t, m, "apt-get", "update")
	must(t, m, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "--yes", "--no-install-recommends", "redis-server")
	if got := must(t, m, "systemctl", "is-active", "redis-server"); got != "active" {
		t.Errorf("redis-server is %s", got)
	}
	if got := must(t, m, "redis-cli", "ping"); got != "PONG" {
		t.Errorf("redis says %s", got)
	}
}

// TestFreeze checks that a frozen machine answers no request and loses no data.
func TestFreeze(t *testing.T) {
	l := New(t)
	m := start(t, l, Spec{Name: "f"})
	if m.freeze == "" {
		t.Skip("needs control groups of version 2")
	}
	before := must(t, m, "sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!")
	if err := m.Freeze(); err != nil {
		t.Fatal(err)
	}
	if got := reach(m.Addr.String() + ":22"); got != "none" {
		t.Error("a frozen machine takes connections")
	}
	if err := m.Thaw(); err != nil {
		t.Fatal(err)
	}
	if got, err := over(m, "root", "kill -0 "+before+" && echo lives"); err != nil || got != "lives" {
		t.Errorf("thawed: %q %v", got, err)
	}
}

// TestFullDisk: a machine with a small disk runs out of it like any other.
func TestFullDisk(t *testing.T) {
	l := New(t)
	m := start(t, l, Spec{Name: "d", Disk: 4 << 20})
	got, err := over(m, "root", "head -c 8000000 /dev/zero > /root/big")
	var exit *ssh.ExitError
	if !errors.As(err, &exit) || !strings.Contains(got, "No space left") {
		t.Errorf("%q %v", got, err)
	}
}

// TestWire checks that a fault of one direction of a connection does not affect the other direction, or other
// machines.
func TestWire(t *testing.T) {
	l := New(t)
	a, b := start(t, l, Spec{Name: "a"}), start(t, l, Spec{Name: "b"})
	ping := func(from *Machine, to netip.Addr) string {
		out, _ := from.Run(limit(t), "sh", "-c", "ping -c 20 -i 0.005 -W 1 "+to.String()+" | grep -o '[0-9]* received'")
		return strings.TrimSpace(out)
	}
	if got := ping(a, b.Addr); got != "20 received" {
		t.Errorf("healthy: %s", got)
	}
	l.Net.Set(a.Addr, b.Addr, Fault{Cut: true})
	if got := reachFrom(t, b, a); got != "none" {
		t.Error("an answer came over a cut wire") // b's questions arrive, a's answers do not
	}
	if got := ping(a, l.Gateway); got != "20 received" {
		t.Errorf("others notice: %s", got)
	}
	l.Net.Heal()
	l.Net.Set(a.Addr, b.Addr, Fault{Loss: 0.5})
	if got := ping(a, b.Addr); got == "20 received" || got == "0 received" {
		t.Errorf("with half of all frames lost: %s", got)
	}
	l.Net.Heal()
	l.Net.Set(netip.Addr{}, b.Addr, Fault{Delay: 40 * time.Millisecond})
	out := must(t, a, "ping", "-c", "3", "-i", "0.05", b.Addr.String())
	var least float64
	if _, err := fmt.Sscanf(out[strings.Index(out, "rtt"):], "rtt min/avg/max/mdev = %f/", &least); err != nil || least < 40 {
		t.Errorf("delayed by 40 ms: %v\n%s", err, out)
	}
	l.Net.Heal()
	l.Isolate(b)
	if got := reachFrom(t, a, b); got != "none" {
		t.Error("an isolated machine is reached")
	}
	l.Net.Heal()
	l.Partition([]netip.Addr{a.Addr}, []netip.Addr{b.Addr})
	if got := reachFrom(t, a, b); got != "none" {
		t.Error("a partition is crossed")
	}
	l.Net.Heal()
	if got := reachFrom(t, a, b); got != "out" {
		t.Error("a healed wire is not crossed")
	}
}

// reachFrom returns "out" if one machine can reach another, else "none".
func reachFrom(t testing.TB, from, to *Machine) string {
	t.Helper()
	return must(t, from, "sh", "-c", "ping -c 1 -W 1 "+to.Addr.String()+" >/dev/null && echo out || echo none")
}

// TestEngine: a Docker engine runs containers from the machines' own root, which
// the test can reach, and takes them along when it ends.
func TestEngine(t *testing.T) {
	l := New(t)
	e := l.Engine(t)
	if err := l.Import(limit(t), e, "coopr-node:1"); err != nil {
		t.Fatal(err)
	}
	resp, err := e.client().Get("http://docker/images/coopr-node:1/json")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Errorf("the imported image: %s", resp.Status)
	}
}
