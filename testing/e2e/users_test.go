package e2e

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// person runs the command as somebody with a home of their own, who names no agent and no token.
func (m *mesh) person(home, stdin string, args ...string) said {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := m.personCommand(ctx, home, args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		m.t.Fatalf("coopr %s: %v", strings.Join(args, " "), err)
	}
	return said{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// personCommand returns a command of somebody with a home of their own.
func (m *mesh) personCommand(ctx context.Context, home string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "coopr"), args...)
	cmd.Dir, cmd.Env = m.dir, append(m.env(), "HOME="+home, "XDG_CONFIG_HOME=")
	return cmd
}

// TestTeam lets two people log in. Their sessions outlive the leader, one shares a cluster with the other, and who is disabled is
// locked out by every agent. A token of a network is good at every agent, but from there only.
func TestTeam(t *testing.T) {
	t.Parallel()
	m := ledgerMesh(t)
	m.must("import", testdata(t, "ledger/definitions"))
	words := map[string]string{}
	for name, role := range map[string]string{"ann": "superadmin", "bob": "user"} { // nodes of this example need host:exec
		words[name] = m.must("user", "create", name, "--role", role)
	}
	var addrs []string
	for _, a := range m.agents {
		addrs = append(addrs, a.addr(httpPort))
	}
	home := map[string]string{"ann": t.TempDir(), "bob": t.TempDir()}
	as := func(name string, code int, args ...string) string {
		t.Helper()
		s := m.person(home[name], words[name], args...)
		if s.code != code {
			t.Errorf("%s: coopr %s: exit code %d, not %d\n%s%s", name, strings.Join(args, " "), s.code, code, s.out, s.err)
		}
		return s.out + s.err
	}
	for _, name := range []string{"ann", "bob"} {
		as(name, 0, "login", "--addr", strings.Join(addrs, ","), "--user", name, "--password-stdin")
	}
	as("ann", 0, "cluster", "create", "c", "--template", "ledger", "--nodes", "1", "--yes")
	as("bob", 3, "cluster", "get", "c")
	m.leader().kill()
	as("ann", 0, "grant", "add", "bob", "operate", "cluster/c", "--until", "1h")
	as("bob", 0, "cluster", "get", "c")
	as("bob", 1, "cluster", "delete", "c", "--yes")
	for _, a := range m.agents {
		if !a.alive() {
			a.start()
		}
	}
	m.ready()
	// The client of a request has the address 127.0.0.1, whichever agent passes it on.
	for source, code := range map[string]int{"127.0.0.1": 0, "127.0.0.9": 1} {
		token := strings.TrimSpace(m.must("token", "create", "ci", "--source", source))
		for _, a := range m.agents {
			for _, what := range [][]string{{"whoami"}, {"cluster", "list"}} {
				args := append([]string{"--addr", a.addr(httpPort), "--token", token}, what...)
				if s := m.person(t.TempDir(), "", args...); s.code != code {
					t.Errorf("%s: %v with a token of %s: exit code %d, not %d\n%s%s", a.name, what, source, s.code, code, s.out, s.err)
				}
			}
		}
	}
	m.must("user", "set", "ann", "--disable")
	for _, a := range m.agents {
		if got := as("ann", 1, "--addr", a.addr(httpPort), "cluster", "list"); !strings.Contains(got, "token") && !strings.Contains(got, "session") {
			t.Errorf("a disabled user hears: %s", got)
		}
	}
	if got := as("bob", 3, "cluster", "get", "c"); !strings.Contains(got, "no cluster") {
		t.Errorf("the grant of a disabled user: %s", got)
	}
	m.must("cluster", "delete", "c", "--yes")
	m.stop()
}
