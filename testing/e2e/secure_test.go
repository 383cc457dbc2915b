package e2e

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/coopr/coopr/rpc/client"
)

// daemon runs coopr-agent for a command that ends.
func (m *mesh) daemon(args ...string) said {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "coopr-agent"), args...)
	var out, errs strings.Builder
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = m.dir, m.env(), &out, &errs
	_ = cmd.Run() // how it ended is in its state
	return said{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// config writes an agent's configuration as an operator would, and returns its path.
func (a *agent) config(token string, more ...string) string {
	m := a.mesh
	m.t.Helper()
	file := a.data + ".token" // not in the folder that plugins may write to
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(token+"\n"), 0o600)); err != nil {
		m.t.Fatal(err)
	}
	var join []string
	for _, other := range m.agents {
		join = append(join, fmt.Sprintf("%q", other.addr(gossipPort)))
	}
	dir, sum := m.pluginDir()
	lines := append([]string{
		"name: " + a.name,
		"data_dir: " + a.data,
		"plugin_dir: " + dir,
		"bootstrap_expect: " + fmt.Sprint(m.expect),
		"join: [" + strings.Join(join, ", ") + "]",
		"join_token_file: " + file,
		fmt.Sprintf("http: {addr: %q}", a.addr(httpPort)),
		fmt.Sprintf("peer: {addr: %q}", a.addr(peerPort)),
		fmt.Sprintf("gossip: {addr: %q}", a.addr(gossipPort)),
		"host_exec: true",
		"providers: {local: {root: " + m.nodes() + "}}",
		fmt.Sprintf("plugins: [{name: scripts, checksum: %q, writes: [%q], settings: {scripts: [%q]}}, "+
			"{name: ledger, path: ledger.yaml, writes: [%q]}]", sum, m.dir, m.dir, m.dir),
	}, more...)
	path := filepath.Join(m.dir, a.name+".yaml")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		m.t.Fatal(err)
	}
	return path
}

// pluginDir makes a folder of plugins: that of the ledger, and the automator
// shell under a name that is found only where a configuration names it.
func (m *mesh) pluginDir() (dir, sum string) {
	m.t.Helper()
	dir = filepath.Join(m.dir, "p")
	program, err := os.ReadFile(filepath.Join(bin, "coopr-automator-shell"))
	if err != nil {
		m.t.Fatal(err)
	}
	if _, err := os.Stat(dir); err != nil {
		err := os.CopyFS(dir, os.DirFS(testdata(m.t, "ledger/plugins")))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "coopr-scripts"), program, 0o755)
		}
		if err != nil {
			m.t.Fatal(err)
		}
	}
	return dir, fmt.Sprintf("sha256:%x", sha256.Sum256(program))
}

// TestSecureMesh runs a mesh as in production: configuration files, a join token, TLS everywhere.
// An agent with another token is not admitted.
func TestSecureMesh(t *testing.T) {
	t.Parallel()
	m := newMesh(t, "a", "b", "c")
	token := strings.TrimSpace(m.daemon("token", "new").out)
	for _, a := range m.agents {
		path := a.config(token)
		if s := m.daemon("validate", "--config", path); s.code != 0 {
			t.Fatalf("validate: %s%s", s.out, s.err)
		}
		a.run("run", "--config", path)
	}
	first := m.agents[0]
	m.await("the agent to have its secret", func() error {
		_, err := os.Stat(filepath.Join(first.data, "mesh-secret"))
		return err
	})
	ca := filepath.Join(m.dir, "ca.pem")
	if err := os.WriteFile(ca, []byte(m.daemon("ca", "--data-dir", first.data).out), 0o600); err != nil {
		t.Fatal(err)
	}
	m.token, m.caCert = strings.TrimSpace(m.daemon("token", "--data-dir", first.data).out), ca
	m.ready()

	if s := m.coopr("--token", "guess", "status"); s.code != 1 || !strings.Contains(s.err, "token") {
		t.Errorf("a wrong token: exit code %d\n%s%s", s.code, s.out, s.err)
	}
	if s := m.coopr("--ca-cert", selfSigned(t, m), "status"); s.code != 5 {
		t.Errorf("another CA: exit code %d\n%s%s", s.code, s.out, s.err)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	req, err := http.NewRequestWithContext(m.context(), http.MethodGet, "http://"+first.addr(httpPort)+"/v1/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	if res, err := transport.RoundTrip(req); err == nil {
		_ = res.Body.Close()
		if res.StatusCode == http.StatusOK {
			t.Error("the API answers without TLS")
		}
	}

	// An agent tries to join with a token of another mesh, and later with the right one.
	stranger := m.add("d")
	m.expect = 0
	other := strings.TrimSpace(m.daemon("token", "new").out)
	stranger.run("run", "--config", stranger.config(other))
	m.await("the stranger to have tried", func() error {
		if !strings.Contains(stranger.tail(1000), "the agent is running") || !strings.Contains(stranger.tail(1000), "level=WARN") {
			return errNotYet
		}
		return nil
	})
	members, err := m.api(first).Members(m.context())
	if err != nil || len(members) != 3 {
		t.Errorf("members: %v %v", members, err)
	}
	stranger.stop()
	if s := m.daemon("run", "--config", stranger.config(token)); s.code != 2 || !strings.Contains(s.err, "another mesh") {
		t.Errorf("a data directory of another mesh: exit code %d\n%s", s.code, s.err)
	}
	if err := os.RemoveAll(stranger.data); err != nil {
		t.Fatal(err)
	}
	stranger.run("run", "--config", stranger.config(token))
	m.ready()

	// An agent reads its configuration again.
	reload := stranger.config(token, "zone: attic", "log: {level: debug}", "worker: {slots: 3}")
	stranger.signal(syscall.SIGHUP)
	m.await("the others to know the new zone", func() error {
		list, _, err := m.api(first).Agents(m.context(), client.Read{})
		for _, r := range list {
			if r.Name == "d" && r.Zone == "attic" && r.Slots != 3 {
				return nil
			}
		}
		if err == nil {
			err = errNotYet
		}
		return err
	})
	if log := stranger.tail(1000); !strings.Contains(log, "restart the agent for: worker.slots") {
		t.Error("the log does not say what waits for a restart")
	}
	if err := os.WriteFile(reload, []byte("zoen: cellar\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	stranger.signal(syscall.SIGHUP)
	m.await("the agent to refuse a bad configuration", func() error {
		if log := stranger.tail(1000); !strings.Contains(log, "was not reloaded") || !strings.Contains(log, "zoen") {
			return errNotYet
		}
		return nil
	})

	// It works like any other.
	op := m.create("c", nodes)
	m.half(op.ID, .3)
	var running []int
	m.await("the plugin to run", func() error {
		if running = m.plugins("coopr-scripts", nil); len(running) == 0 {
			return errNotYet
		}
		return nil
	})
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", running[0]))
	if err != nil || !strings.Contains(string(env), "COOPR_PLUGIN_SETTINGS=stdin\x00") || strings.Contains(string(env), `"scripts"`) {
		t.Errorf("the environment of the plugin: %v, %q", err, env)
	}
	m.leader().kill()
	m.succeeds(op.ID)
	for _, a := range m.agents {
		if !a.alive() {
			a.run("run", "--config", filepath.Join(m.dir, a.name+".yaml"))
		}
	}
	m.ready()
	m.survives(op)
}

// selfSigned returns the certificate of the CA of another mesh.
func selfSigned(t *testing.T, m *mesh) string {
	t.Helper()
	dir := filepath.Join(m.dir, "elsewhere")
	a := &agent{mesh: m, name: "x", ip: freeIP(t), data: dir}
	a.run("run", "--config", a.config(strings.TrimSpace(m.daemon("token", "new").out)))
	m.await("another mesh's secret", func() error {
		_, err := os.Stat(filepath.Join(dir, "mesh-secret"))
		return err
	})
	a.signal(syscall.SIGKILL)
	<-a.ended
	out := m.daemon("ca", "--data-dir", dir)
	path := filepath.Join(m.dir, "other-ca.pem")
	if err := os.WriteFile(path, []byte(out.out), 0o600); err != nil {
		t.Fatal(err)
	}
	m.wipe(a)
	return path
}

// TestValidate: every fault of a configuration is named, with its place.
func TestValidate(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	bad := filepath.Join(m.dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte(`
name: "no spaces!"
boostrap_expect: 3
bootstrap_expect: 2
http: {addr: nowhere, tls_cert: /nowhere.pem}
peer: {addr: "127.0.0.1:1"}
gossip: {addr: "127.0.0.1:1"}
join: ["10.0.0.1:99999"]
join_token: nonsense
raft: {store: paper, multiplier: 11, snapshot_interval: soon}
worker: {slots: -1}
plugins: [{name: p, path: ../p, checksum: md5}]
log: {level: loud}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := m.daemon("validate", "--config", bad)
	if s.code != 2 {
		t.Errorf("exit code %d\n%s%s", s.code, s.out, s.err)
	}
	for _, words := range []string{
		"name:", "did you mean bootstrap_expect", "bootstrap_expect: 2", "http.addr", "http.tls_cert", "gossip.addr", "join[0]", "join_token",
		"raft.store", "raft.multiplier", "raft.snapshot_interval", "worker.slots", "plugins[0].path", "plugins[0].checksum", "log.level",
	} {
		if !strings.Contains(s.err, words) {
			t.Errorf("nothing says %q:\n%s", words, s.err)
		}
	}
	if s := m.daemon("run", "--config", bad); s.code != 2 {
		t.Errorf("it runs all the same: exit code %d\n%s", s.code, s.err)
	}
}
