package ssh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/remote"
	"github.com/coopr/coopr/testing/lab"
)

// onMachine returns a lab with one machine.
func onMachine(t *testing.T, spec lab.Spec) (*lab.Lab, *lab.Machine) {
	t.Helper()
	l := lab.New(t)
	return l, boot(t, l, spec)
}

func boot(t *testing.T, l *lab.Lab, spec lab.Spec) *lab.Machine {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	m, err := l.Start(ctx, spec)
	if err == nil {
		err = m.WaitSSH(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// target returns the way to a machine as a user.
func target(l *lab.Lab, m *lab.Machine, user string) *Target {
	return &Target{Hop: Hop{Address: net.JoinHostPort(m.Addr.String(), "22"), User: user, Signer: l.Signer(),
		HostKeys: []ssh.PublicKey{m.HostKey}}, Sudo: user != "root"}
}

func newPool(t testing.TB, cfg Config) *Pool {
	p := New(cfg)
	t.Cleanup(p.Close)
	return p
}

func sh(script string) remote.Command {
	return remote.Command{Args: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=" + plainPath}, Grace: time.Second}
}

// run runs a script and returns its output.
func run(t testing.TB, n *Node, script string) (string, remote.Exit) {
	t.Helper()
	var out bytes.Buffer
	c := sh(script)
	c.Stdout = &out
	exit, err := n.Run(t.Context(), c)
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	return strings.TrimSpace(out.String()), exit
}

// TestNode checks all methods of a Node, as root and as a user with sudo.
func TestNode(t *testing.T) {
	l, m := onMachine(t, lab.Spec{Name: "n"})
	p := newPool(t, Config{})
	ctx := t.Context()
	for _, user := range []string{"root", "debian"} {
		n := p.Node(target(l, m, user))
		if err := n.Prepare(ctx); err != nil {
			t.Fatalf("%s: %v", user, err)
		}
		var out, errs bytes.Buffer
		exit, err := n.Run(ctx, remote.Command{Args: []string{"sh", "-c", `id -un; pwd; echo "$1 $V" >&2; exit 3`, "sh", "a'b"},
			Env: []string{"V=$x", "PATH=" + plainPath}, Stdout: &out, Stderr: &errs})
		if err != nil || exit != (remote.Exit{Code: 3}) || out.String() != "root\n"+DefaultDir+"\n" || errs.String() != "a'b $x\n" {
			t.Errorf("%s: %v %v %q %q", user, exit, err, out.String(), errs.String())
		}
		if _, exit := run(t, n, "kill -9 $$"); exit.Signal != "killed" {
			t.Errorf("%s: %v", user, exit)
		}
		if _, err := n.Run(ctx, remote.Command{Args: []string{"/no/such"}}); !errors.Is(err, errNotStarted) {
			t.Errorf("%s: no program: %v", user, err)
		}
		if err := n.Put(ctx, "a/b "+user, 0o640, []byte("x\x00'")); err != nil {
			t.Error(err)
		}
		if b, err := n.Read(ctx, "a/b "+user); err != nil || string(b) != "x\x00'" {
			t.Errorf("%q %v", b, err)
		}
		if got, _ := run(t, n, `stat -c '%a %U' "a/b `+user+`"`); got != "640 root" {
			t.Error(got)
		}
		for i, want := range []int64{2, 4} {
			if n, err := n.Append(ctx, "log/"+user, []byte("12")); err != nil || n != want {
				t.Errorf("append %d: %d %v", i, n, err)
			}
		}
		if err := n.Rename(ctx, "log/"+user, "log/"+user+".1"); err != nil {
			t.Error(err)
		}
		if _, err := n.Read(ctx, "log/"+user); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a file that was renamed: %v", err)
		}
		if err := n.Rename(ctx, "log/"+user, "x"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("rename a file that is not there: %v", err)
		}
		for _, name := range []string{"../x", "/etc/hostname"} {
			if err := n.Put(ctx, name, 0o600, nil); err == nil {
				t.Errorf("%s could be written", name)
			}
		}
		file := filepath.Join(t.TempDir(), "s.sh")
		if err := os.WriteFile(file, []byte("#!/bin/sh\necho script $1\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			remote, err := n.Script(ctx, file)
			if err != nil {
				t.Fatal(err)
			}
			if got, _ := run(t, n, remote+" x"); got != "script x" {
				t.Error(got)
			}
		}
	}
	// Without sudo nothing is done, and the error says why.
	if _, err := m.Run(ctx, "rm", "/etc/sudoers.d/debian"); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Node(target(l, m, "debian")).Run(ctx, sh("id")); !errors.Is(err, errNotStarted) ||
		!strings.Contains(err.Error(), "password") {
		t.Errorf("without sudo: %v", err)
	}
}

// TestSecret checks that a secret exists during the command, for its user alone, and nowhere
// afterwards, however the command ends.
func TestSecret(t *testing.T) {
	l, m := onMachine(t, lab.Spec{Name: "n"})
	p := newPool(t, Config{})
	n := p.Node(target(l, m, "root"))
	if err := n.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	content := []byte("top\x00secret\n")
	path, remove, err := n.Secret(t.Context(), content)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := run(t, n, "stat -c %a "+path+"; tr '\\000' _ <"+path); got != "600\ntop_secret" {
		t.Errorf("%q", got)
	}
	gone := func(when string) {
		t.Helper()
		wait(t, "no secret "+when, func() bool {
			out, err := m.Run(t.Context(), "sh", "-c", "ls -A /dev/shm; grep -rl top.secret /var/lib /tmp /root 2>/dev/null; true")
			return err == nil && out == ""
		})
	}
	gone("after success")
	// The connection ends without any message, as when an agent is killed.
	r, w := io.Pipe()
	c := sh("echo on; sleep 1000")
	c.Stdout = w
	failed := make(chan error, 1)
	go func() {
		_, err := n.Run(t.Context(), c)
		failed <- err
	}()
	if _, err := io.ReadFull(r, make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	for _, c := range p.conns {
		c.client.Close()
	}
	p.mu.Unlock()
	if err := <-failed; !errors.Is(err, remote.ErrLost) {
		t.Errorf("a lost connection: %v", err)
	}
	gone("after we were gone")
	wait(t, "the script's end", func() bool { return !running(t, m, "sleep 1000") })
	remove()
	if _, exit := run(t, n, "test ! -e "+path); exit.Code != 0 {
		t.Error("a removed secret is there")
	}
}

// running reports whether a command runs on a machine.
func running(t testing.TB, m *lab.Machine, command string) bool {
	t.Helper()
	out, err := m.Run(t.Context(), "ps", "-e", "-o", "args", "--no-headers")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(out, command)
}

// TestStops checks that a cancelled task ends with its process group, even if it ignores TERM,
// while other tasks on the connection continue.
func TestStops(t *testing.T) {
	l, m := onMachine(t, lab.Spec{Name: "n"})
	p := newPool(t, Config{})
	if err := p.Node(target(l, m, "root")).Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	why := errors.New("enough")
	var others sync.WaitGroup
	others.Go(func() {
		if got, exit := run(t, p.Node(target(l, m, "root")), "sleep 3; echo whole"); got != "whole" || exit.Code != 0 {
			t.Errorf("another task: %q %v", got, exit)
		}
	})
	for user, script := range map[string]string{
		"root":   "sleep 2000 & (sleep 2000; sleep 2000) & echo on; wait",
		"debian": "trap '' TERM; sleep 2000 & echo on; while :; do sleep 1; done",
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		r, w := io.Pipe()
		go func() {
			_, _ = r.Read(make([]byte, 1))
			cancel(why)
			_, _ = io.Copy(io.Discard, r)
		}()
		c := sh(script)
		c.Stdout = w
		if _, err := p.Node(target(l, m, user)).Run(ctx, c); !errors.Is(err, why) {
			t.Errorf("%s: %v", user, err)
		}
		w.Close()
		if running(t, m, "sleep 2000") || running(t, m, "while :") {
			t.Errorf("%s: the stopped script runs", user)
		}
	}
	others.Wait()
	// A process that a script leaves behind on purpose neither delays the result nor is ended.
	if got, _ := run(t, p.Node(target(l, m, "root")), "sleep 3000 & echo left"); got != "left" || !running(t, m, "sleep 3000") {
		t.Errorf("left behind: %q", got)
	}
}

// TestMuch checks that 100 MB of output arrive completely, together with the error output.
func TestMuch(t *testing.T) {
	l, m := onMachine(t, lab.Spec{Name: "n"})
	p := newPool(t, Config{})
	if err := p.Node(target(l, m, "root")).Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	var count counter
	c := sh(fmt.Sprintf("head -c %d /dev/zero; echo end >&2", much))
	var errs bytes.Buffer
	c.Stdout, c.Stderr = &count, &errs
	exit, err := p.Node(target(l, m, "root")).Run(t.Context(), c)
	if err != nil || exit.Code != 0 || count != much || errs.String() != "end\n" {
		t.Errorf("%v %v: %d bytes, %q", exit, err, count, errs.String())
	}
}

type counter int

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }

// TestShared checks that tasks share one connection, that more tasks than sshd allows sessions wait
// for each other, and that unused connections are closed.
func TestShared(t *testing.T) {
	l, m := onMachine(t, lab.Spec{Name: "n"})
	p := newPool(t, Config{Idle: 300 * time.Millisecond})
	if err := p.Node(target(l, m, "root")).Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() {
			if got, _ := run(t, p.Node(target(l, m, "root")), fmt.Sprintf("echo %d; echo $SSH_CONNECTION", i)); !strings.HasPrefix(got,
				fmt.Sprint(i)) {
				t.Errorf("%d: %q", i, got)
			}
		})
	}
	wg.Wait()
	p.mu.Lock()
	n := len(p.conns)
	p.mu.Unlock()
	if n > 1 {
		t.Errorf("%d connections", n)
	}
	wait(t, "no connection", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.conns) == 0
	})
	wait(t, "no session on the node", func() bool { return !running(t, m, "sshd: root") })
}

// TestTrust checks that host keys are recorded once and then enforced, and that refused credentials
// are told apart from an unreachable node.
func TestTrust(t *testing.T) {
	l, m := onMachine(t, lab.Spec{Name: "n"})
	other := boot(t, l, lab.Spec{Name: "o"})
	p := newPool(t, Config{DialTimeout: 2 * time.Second})
	ctx := t.Context()
	unknown := target(l, m, "debian")
	unknown.HostKeys = nil
	if err := p.Node(unknown).Prepare(ctx); !errors.Is(err, ErrHostKey) {
		t.Errorf("a node whose key nobody knows: %v", err)
	}
	learned, err := p.Learn(ctx, unknown)
	if err != nil || string(learned.Marshal()) != string(m.HostKey.Marshal()) {
		t.Errorf("learned %v %v", learned, err)
	}
	if out, err := m.Run(ctx, "ls", "-A", DefaultDir); err == nil && strings.TrimSpace(out) != "" {
		t.Errorf("a client that only learned the key has left %s", out)
	}
	changed := target(l, m, "root")
	changed.HostKeys = []ssh.PublicKey{other.HostKey}
	if err := p.Node(changed).Prepare(ctx); !errors.Is(err, ErrHostKey) {
		t.Errorf("a changed host key: %v", err)
	}
	stranger := target(l, m, "nobody")
	if err := p.Node(stranger).Prepare(ctx); !errors.Is(err, ErrAuth) {
		t.Errorf("a stranger: %v", err)
	}
	l.Isolate(m)
	fresh := target(l, m, "root")
	if err := p.Node(fresh).Prepare(ctx); err == nil || errors.Is(err, ErrAuth) || errors.Is(err, ErrHostKey) {
		t.Errorf("a node that cannot be reached: %v", err)
	}
	l.Net.Heal()
	// Through another machine.
	far := target(l, m, "root")
	far.Jumps = []Hop{target(l, other, "debian").Hop}
	if err := p.Node(far).Prepare(ctx); err != nil {
		t.Error(err)
	}
	if got, _ := run(t, p.Node(far), "echo $HOME; cat /proc/net/tcp | wc -l >/dev/null; hostname"); !strings.HasSuffix(got, "n") {
		t.Errorf("by way of another: %q", got)
	}
	out, err := other.Run(ctx, "sh", "-c", "cat /proc/net/tcp | awk '$3 ~ /:0016$/ && $4 == \"01\"' | wc -l")
	if err != nil || strings.TrimSpace(out) == "0" {
		t.Errorf("no connection goes on from the jump host: %q %v", out, err)
	}
}

// TestOutages checks a node that loses power, one that hangs, and one whose script restarts sshd.
func TestOutages(t *testing.T) {
	l, m := onMachine(t, lab.Spec{Name: "n", Systemd: true})
	p := newPool(t, Config{Answer: 5 * time.Second, DialTimeout: 2 * time.Second}) // a busy machine's node answers late, too
	ctx := t.Context()
	n := p.Node(target(l, m, "root"))
	if err := n.Prepare(ctx); err != nil {
		t.Fatal(err)
	}
	if got, exit := run(t, n, "systemctl restart ssh && systemctl is-active ssh"); got != "active" || exit.Code != 0 {
		t.Errorf("a script that restarts sshd: %q %v", got, exit)
	}
	started := func(what func()) error {
		r, w := io.Pipe()
		go func() {
			_, _ = r.Read(make([]byte, 1))
			what()
			_, _ = io.Copy(io.Discard, r)
		}()
		defer w.Close()
		c := sh("echo on; sleep 1000")
		c.Stdout = w
		_, err := n.Run(ctx, c)
		return err
	}
	if err := started(func() {
		if err := m.Freeze(); err != nil {
			t.Error(err)
		}
	}); !errors.Is(err, remote.ErrLost) {
		t.Errorf("a node that hangs: %v", err)
	}
	if err := m.Thaw(); err != nil {
		t.Fatal(err)
	}
	if got, _ := run(t, n, "echo back"); got != "back" {
		t.Error(got)
	}
	if err := started(func() {
		if err := m.Crash(); err != nil {
			t.Error(err)
		}
	}); !errors.Is(err, remote.ErrLost) {
		t.Errorf("a node without power: %v", err)
	}
	if err := n.Prepare(ctx); err == nil || errors.Is(err, remote.ErrLost) {
		t.Errorf("a node without power, later: %v", err)
	}
	if err := m.Boot(ctx); err != nil {
		t.Fatal(err)
	}
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if _, err := p.WaitReady(limited, target(l, m, "root"), func(string) {}); err != nil {
		t.Errorf("after the power came back: %v", err)
	}
}

// TestResults checks that an automator can read what a provider returns.
func TestResults(t *testing.T) {
	_, private, err := newTestKey()
	if err != nil {
		t.Fatal(err)
	}
	host, _, _ := newTestKey()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "site"), []byte(private), 0o600); err != nil {
		t.Fatal(err)
	}
	no := false
	for _, r := range []Results{
		{User: "debian", PrivateKey: private, HostKeys: []ssh.PublicKey{host}},
		{User: "root", Identity: "site", HostKeys: []ssh.PublicKey{host}, Port: 2222, Address: "10.9.9.9", Dir: "/srv/x", Sudo: &no},
		{User: "u", Password: "p", HostKeys: []ssh.PublicKey{host},
			Jumps: []map[string]any{{"address": "gate", "ssh-auth": map[string]any{"user": "j", "password": "q"},
				"ssh_host_keys": hostKeyMap([]ssh.PublicKey{host})}}},
	} {
		in := &model.TaskInput{Config: model.TaskConfig{Results: r.Map(), IPAddresses: map[string]string{"access_v4": "10.0.0.1"}}}
		got, err := TargetOf(in, Keys{dir})
		if err != nil {
			t.Errorf("%+v: %v", r, err)
			continue
		}
		address := "10.0.0.1:22"
		if r.Port != 0 {
			address = "10.9.9.9:2222"
		}
		if got.User != r.User || got.Address != address || got.Sudo != (r.User != "root") || len(got.HostKeys) != 1 ||
			len(got.Jumps) != len(r.Jumps) {
			t.Errorf("%+v", got)
		}
	}
	for what, change := range map[string]func(map[string]any){
		"no credentials": func(m map[string]any) { delete(m, "ssh-auth") },
		"no host key":    func(m map[string]any) { delete(m, "ssh_host_keys") },
		"not the name":   func(m map[string]any) { m["ssh-auth"] = map[string]any{"identityfile": "../../etc/shadow"} },
		"is not in":      func(m map[string]any) { m["ssh-auth"] = map[string]any{"identityfile": "other"} },
		"ssh_jump[0]":    func(m map[string]any) { m["ssh_jump"] = []any{map[string]any{"address": "x"}} },
	} {
		m := (&Results{User: "u", Password: "p", HostKeys: []ssh.PublicKey{host}}).Map()
		change(m)
		in := &model.TaskInput{Config: model.TaskConfig{Results: m, IPAddresses: map[string]string{"access_v4": "10.0.0.1"}}}
		if _, err := TargetOf(in, Keys{dir}); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
