package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/coopr/coopr/engine/roster"
	"github.com/coopr/coopr/rpc/client"
)

// daemon runs coopr-agent for a command that ends.
func (m *mesh) daemon(args ...string) said {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(m.bin, "coopr-agent"), args...)
	var out, errs strings.Builder
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = m.dir, m.env(), &out, &errs
	_ = cmd.Run() // how it ended is in its state
	return said{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// found creates the identity of the mesh, whose first agent is the first one of the list. The others join with a token.
func (m *mesh) found() {
	m.t.Helper()
	dir, first := filepath.Join(m.dir, "birth"), m.agents[0]
	if s := m.daemon("init", "--out", dir, "--peer", first.addr(peerPort), "--voters", fmt.Sprint(len(m.agents)-1)); s.code != 0 {
		m.t.Fatalf("init: %s%s", s.out, s.err)
	}
	if err := os.MkdirAll(first.data, 0o700); err != nil {
		m.t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "identity"), filepath.Join(first.data, "identity")); err != nil {
		m.t.Fatal(err)
	}
	root, err := os.ReadFile(filepath.Join(dir, "root-token"))
	if err != nil {
		m.t.Fatal(err)
	}
	m.token, m.caCert = strings.TrimSpace(string(root)), filepath.Join(dir, "ca.pem")
}

// voterToken returns the token with which agents join that were there when the mesh was founded.
func (m *mesh) voterToken() string {
	m.t.Helper()
	token, err := os.ReadFile(filepath.Join(m.dir, "birth", "voter-token"))
	if err != nil {
		m.t.Fatal(err)
	}
	return strings.TrimSpace(string(token))
}

// vote waits until three agents vote. The first agent of a mesh votes alone until others have joined it.
func (m *mesh) vote() {
	m.t.Helper()
	m.await("three voters", func() error {
		peers, err := m.api().RaftPeers(m.context())
		voters := 0
		for _, p := range peers {
			if p.Voter {
				voters++
			}
		}
		if err == nil && voters != 3 {
			err = fmt.Errorf("%+v", peers)
		}
		return err
	})
}

// config writes an agent's configuration as an operator would, and returns its path.
func (a *agent) config(token string, more ...string) string {
	m := a.mesh
	m.t.Helper()
	file := a.data + ".token" // not in the folder that plugins may write to
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(token+"\n"), 0o600)); err != nil {
		m.t.Fatal(err)
	}
	dir, sum := m.pluginDir()
	lines := append([]string{
		"name: " + a.name,
		"data_dir: " + a.data,
		"plugin_dir: " + dir,
		"join_token_file: " + file,
		fmt.Sprintf("http: {addr: %q}", a.addr(httpPort)),
		fmt.Sprintf("peer: {addr: %q}", a.addr(peerPort)),
		fmt.Sprintf("gossip: {addr: %q}", a.addr(gossipPort)),
		"host_exec: true",
		"providers: {local: {root: " + m.nodes() + "}}",
		fmt.Sprintf("plugins:\n- {name: scripts, checksum: %q, writes: [%q], settings: {scripts: [%q]}}\n"+
			"- {name: ledger, path: ledger.yaml, writes: [%q]}\n%s", sum, m.dir, m.dir, m.dir, m.writers),
	}, more...)
	path := filepath.Join(m.dir, a.name+".yaml")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		m.t.Fatal(err)
	}
	return path
}

// pluginDir makes a folder of plugins for the present programs: that of the ledger, and the automator
// shell under a name that is found only where a configuration names it.
func (m *mesh) pluginDir() (dir, sum string) {
	m.t.Helper()
	dir = filepath.Join(m.dir, "plugins-of-"+filepath.Base(m.bin))
	program, err := os.ReadFile(filepath.Join(m.bin, "coopr-automator-shell"))
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

// TestSecureMesh runs a mesh as in production: configuration files, join tokens, TLS everywhere.
// An agent with a token of another mesh is not admitted, nor one with a token that was used up or revoked.
func TestSecureMesh(t *testing.T) {
	t.Parallel()
	m := newMesh(t, "a", "b", "c")
	m.found()
	first := m.agents[0]
	for _, a := range m.agents {
		path := a.config(m.voterToken())
		if s := m.daemon("validate", "--config", path); s.code != 0 {
			t.Fatalf("validate: %s%s", s.out, s.err)
		}
		a.run("run", "--config", path)
	}
	m.ready()
	m.vote()

	if s := m.coopr("--token", "guess", "status"); s.code != 1 || !strings.Contains(s.err, "token") {
		t.Errorf("a wrong token: exit code %d\n%s%s", s.code, s.out, s.err)
	}
	m.elsewhere("ca.pem")
	if s := m.coopr("--ca-cert", filepath.Join(m.dir, "elsewhere", "ca.pem"), "status"); s.code != 5 {
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

	// An agent tries to join with tokens that do not let it in, and later with the right one.
	stranger := m.add("d")
	revoked := m.coopr("token", "join", "--kind", "worker")
	list := m.coopr("token", "list-join", "-o", "json")
	var tokens []roster.JoinToken
	if err := json.Unmarshal([]byte(list.out), &tokens); err != nil || len(tokens) != 1 || tokens[0].Role != "worker" {
		t.Fatalf("%v\n%s%s", err, list.out, list.err)
	}
	if s := m.coopr("token", "revoke-join", tokens[0].ID, "--yes"); s.code != 0 {
		t.Fatalf("%s%s", s.out, s.err)
	}
	for token, words := range map[string]string{m.voterToken(): "has been used up", strings.TrimSpace(revoked.out): "does not know this join token"} {
		if s := m.daemon("run", "--config", stranger.config(token)); s.code != 1 || !strings.Contains(s.err, words) {
			t.Errorf("exit code %d, and it does not say %q\n%s", s.code, words, s.err)
		}
	}
	stranger.run("run", "--config", stranger.config(m.elsewhere("voter-token")))
	m.await("the stranger to have tried", func() error {
		if !strings.Contains(stranger.tail(1000), "not of this mesh") && !strings.Contains(stranger.tail(1000), "its CA is not the one") {
			return errNotYet
		}
		return nil
	})
	stranger.stop()
	members, err := m.api(first).Members(m.context())
	if err != nil || len(members) != 3 {
		t.Errorf("members: %v %v", members, err)
	}
	made := m.coopr("token", "join", "--kind", "voter", "--uses", "1")
	token := strings.TrimSpace(made.out)
	if made.code != 0 || token == "" {
		t.Fatalf("%s%s", made.out, made.err)
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
	var env []byte
	m.await("the plugin to run", func() error {
		running := m.plugins("coopr-scripts", nil)
		if len(running) == 0 {
			return errNotYet
		}
		if env, err = os.ReadFile(fmt.Sprintf("/proc/%d/environ", running[0])); !slices.Contains(m.plugins("coopr-scripts", nil), running[0]) {
			return errNotYet // it was a script that the plugin was about to start
		}
		return nil
	})
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

// elsewhere returns the content of a file of another mesh, whose first agent would have the address of this one's.
func (m *mesh) elsewhere(name string) string {
	m.t.Helper()
	dir := filepath.Join(m.dir, "elsewhere")
	if _, err := os.Stat(dir); err != nil {
		if s := m.daemon("init", "--out", dir, "--peer", m.agents[0].addr(peerPort), "--voters", "1"); s.code != 0 {
			m.t.Fatalf("init: %s%s", s.out, s.err)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		m.t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
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
