package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"
	"github.com/coopr/coopr/testing/site"
)

// patience is how long a test waits for anything before it gives up. It guards against waiting for
// ever and does not check speed.
const patience = 90 * time.Second

// The ports of every agent. Each agent has a loopback address of its own, from which no other
// connections start.
const (
	httpPort   = "14054"
	peerPort   = "14055"
	gossipPort = "14056"
)

// mesh is a mesh of agents.
type mesh struct {
	t      *testing.T
	dir    string
	bin    string // the folder of the programs that it runs
	token  string
	flags  []string // of every agent, beyond what all tests need
	expect int      // bootstrap_expect
	// writers has further entries of plugins in the configuration, as YAML.
	writers string
	caCert  string // where the agents have TLS
	agents  []*agent
	client  *client.Client
}

// agent is a coopr-agent process before, during or after its run.
type agent struct {
	mesh  *mesh
	name  string
	ip    string
	data  string
	flags []string
	env   []string // beyond that of the mesh
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has ended
	err   error         // how; read after ended is closed
}

// newMesh returns a folder for a mesh of agents with these names. Nothing is started yet.
func newMesh(t *testing.T, names ...string) *mesh {
	t.Helper()
	m := &mesh{t: t, dir: t.TempDir(), bin: bin, token: "coopr-e2e-" + rand.Text(), expect: len(names)}
	for _, dir := range []string{m.tmp(), m.nodes()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(m.end)
	for _, name := range names {
		m.add(name)
	}
	return m
}

// startMesh starts three agents and waits until they are one mesh at work.
func startMesh(t *testing.T, flags ...string) *mesh {
	t.Helper()
	m := newMesh(t, "a", "b", "c")
	m.flags = flags
	for _, a := range m.agents {
		a.start()
	}
	m.ready()
	return m
}

func (m *mesh) tmp() string   { return filepath.Join(m.dir, "tmp") }
func (m *mesh) nodes() string { return filepath.Join(m.dir, "nodes") }

// add adds an agent with an address of its own to the mesh.
func (m *mesh) add(name string) *agent {
	a := &agent{mesh: m, name: name, ip: freeIP(m.t), data: filepath.Join(m.dir+"-agents", name)}
	m.agents = append(m.agents, a)
	return a
}

// freeIP returns a loopback address on which the ports are free. The nodes of the local provider
// live in 127.64.0.0 to 127.127.255.255.
func freeIP(t *testing.T) string {
	t.Helper()
	for range 100 {
		b := make([]byte, 3)
		_, _ = rand.Read(b) // it never fails
		ip := fmt.Sprintf("127.%d.%d.%d", 128+int(b[0])%126, b[1], 1+int(b[2])%254)
		if l, err := net.Listen("tcp", net.JoinHostPort(ip, peerPort)); err == nil {
			_ = l.Close()
			return ip
		}
	}
	t.Fatal("no free loopback address")
	return ""
}

func (a *agent) addr(port string) string { return net.JoinHostPort(a.ip, port) }

// args is the command line of an agent in dev mode.
func (a *agent) args() []string {
	m := a.mesh
	var join []string
	for _, other := range m.agents {
		join = append(join, other.addr(gossipPort))
	}
	args := []string{
		"--dev", "--name", a.name, "--data-dir", a.data, "--bootstrap-expect", fmt.Sprint(m.expect), "--join", strings.Join(join, ","),
		"--http-addr", a.addr(httpPort), "--peer-addr", a.addr(peerPort), "--gossip-addr", a.addr(gossipPort),
		"--providers-local-root", m.nodes(), "--config", m.allowed(),
	}
	return append(append(args, m.flags...), a.flags...)
}

// allowed writes a configuration that lets the scripts of tests, and the ledger, write into the mesh's
// folder, and returns its path. The agents' data is elsewhere.
func (m *mesh) allowed() string {
	path := filepath.Join(m.dir, "plugins.yaml")
	text := fmt.Sprintf("plugins:\n- {name: automator-shell, writes: [%q]}\n%s", m.dir, m.writers)
	if i := slices.Index(m.flags, "--plugin-dir"); i >= 0 {
		if _, err := os.Stat(filepath.Join(m.flags[i+1], "ledger.yaml")); err == nil {
			text += fmt.Sprintf("- {name: ledger, path: ledger.yaml, writes: [%q]}\n", m.dir)
		}
	}
	// An agent that starts may read it while another one is about to start.
	if err := errors.Join(os.WriteFile(path+".new", []byte(text), 0o600), os.Rename(path+".new", path)); err != nil {
		m.t.Fatal(err)
	}
	return path
}

// start starts the agent's process; it may have run before.
func (a *agent) start() {
	t := a.mesh.t
	t.Helper()
	if err := os.MkdirAll(a.data, 0o700); err != nil {
		t.Fatal(err)
	}
	// One token for all: a request may go from one to another.
	if err := os.WriteFile(filepath.Join(a.data, "dev-token"), []byte(a.mesh.token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a.run(a.args()...)
}

// run starts the agent's process with these arguments.
func (a *agent) run(args ...string) {
	m := a.mesh
	m.t.Helper()
	log, err := os.OpenFile(a.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		m.t.Fatal(err)
	}
	defer log.Close()
	fmt.Fprintf(log, "---- %s: coopr-agent %s\n", a.name, strings.Join(args, " "))
	a.cmd = exec.Command(filepath.Join(m.bin, "coopr-agent"), args...)
	a.cmd.Dir, a.cmd.Env, a.cmd.Stdout, a.cmd.Stderr = m.dir, append(m.env(), a.env...), log, log
	a.ended = make(chan struct{})
	if err := a.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	go func(cmd *exec.Cmd, ended chan struct{}) {
		a.err = cmd.Wait()
		close(ended)
	}(a.cmd, a.ended)
}

func (a *agent) log() string { return filepath.Join(a.mesh.dir, a.name+".log") }

// env returns the environment of all processes of the mesh. COOPR_E2E holds the path of the mesh's
// folder, so that the test can find these processes.
func (m *mesh) env() []string {
	return []string{"COOPR_E2E=" + m.dir, "HOME=" + m.dir, "TMPDIR=" + m.tmp(), "PATH=" + m.bin + ":" + os.Getenv("PATH")}
}

// signal sends a signal to the agent alone, none of its children.
func (a *agent) signal(s syscall.Signal) {
	a.mesh.t.Helper()
	if err := a.cmd.Process.Signal(s); err != nil {
		a.mesh.t.Fatalf("signal %v to agent %s: %v", s, a.name, err)
	}
}

// kill is kill -9, and waits for the end.
func (a *agent) kill() {
	a.mesh.t.Helper()
	a.signal(syscall.SIGKILL)
	<-a.ended
}

// stop is SIGTERM; it waits for the agent to end well.
func (a *agent) stop() {
	a.mesh.t.Helper()
	a.signal(syscall.SIGTERM)
	a.endsWell()
}

// endsWell waits until an agent that was told to stop has ended without an error.
func (a *agent) endsWell() {
	a.mesh.t.Helper()
	select {
	case <-a.ended:
	case <-time.After(patience):
		a.mesh.t.Fatalf("agent %s does not stop", a.name)
	}
	if a.err != nil {
		a.mesh.t.Errorf("agent %s stopped with %v", a.name, a.err)
	}
}

func (a *agent) alive() bool {
	if a.cmd == nil {
		return false
	}
	select {
	case <-a.ended:
		return false
	default:
		return true
	}
}

// stop stops every running agent and checks that nothing is left behind.
func (m *mesh) stop() {
	m.t.Helper()
	var told []*agent
	for _, a := range m.agents {
		if a.alive() {
			a.signal(syscall.SIGTERM)
			told = append(told, a)
		}
	}
	for _, a := range told {
		a.endsWell()
	}
	m.noneLeft()
}

// end ends the remaining processes and shows the logs of a failed test. If COOPR_E2E_KEEP is set,
// every test's folder is copied there.
func (m *mesh) end() {
	if m.client != nil {
		m.client.Close()
	}
	for _, a := range m.agents {
		if a.alive() {
			_ = a.cmd.Process.Kill() // it may have ended just now
			<-a.ended
		}
	}
	endProcesses(m.t, m.dir)
	if dir := os.Getenv("COOPR_E2E_KEEP"); dir != "" {
		_ = os.CopyFS(filepath.Join(dir, m.t.Name()), os.DirFS(m.dir)) // for people: as much as there is
	}
	if !m.t.Failed() {
		return
	}
	for _, a := range m.agents {
		m.t.Logf("---- the log of agent %s:\n%s", a.name, a.tail(40))
	}
}

// tail is the end of the agent's log.
func (a *agent) tail(lines int) string {
	b, err := os.ReadFile(a.log())
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// context ends with the test, or when it took too long.
func (m *mesh) context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	m.t.Cleanup(cancel)
	return ctx
}

// api returns a client of these agents, or of all.
func (m *mesh) api(agents ...*agent) *client.Client {
	m.t.Helper()
	if len(agents) == 0 && m.client != nil {
		return m.client
	}
	cfg := client.Config{Token: m.token, CACert: m.caCert, Patience: 30 * time.Second}
	all := agents
	if len(agents) == 0 {
		all = m.agents
	}
	for _, a := range all {
		cfg.Addresses = append(cfg.Addresses, a.addr(httpPort))
	}
	c, err := client.New(cfg)
	if err != nil {
		m.t.Fatal(err)
	}
	if len(agents) == 0 {
		m.client = c
	} else {
		m.t.Cleanup(c.Close)
	}
	return c
}

// await repeats a function until it returns no error, for conditions without a blocking read.
func (m *mesh) await(what string, ask func() error) {
	m.t.Helper()
	site.Await(m.t, what, ask)
}

var errNotYet = errors.New("not yet")

// ready waits until the mesh has a leader at work and every agent that runs
// has a session with it.
func (m *mesh) ready() *agent {
	m.t.Helper()
	var running []*agent
	for _, a := range m.agents {
		if a.alive() {
			running = append(running, a)
		}
	}
	m.await(fmt.Sprintf("%d agents to be at work", len(running)), func() error {
		for _, a := range running {
			if !a.alive() {
				m.t.Fatalf("agent %s has ended: %v", a.name, a.err)
			}
		}
		list, _, err := m.api().Agents(m.context(), client.Read{})
		if err != nil {
			return err
		}
		n := 0
		for _, r := range list {
			if r.Alive && len(r.Plugins) >= 2 {
				n++
			}
		}
		if n < len(running) {
			return fmt.Errorf("%d are", n)
		}
		// The list may still have what was true before an agent was killed and started again.
		for _, a := range running {
			s, err := a.status()
			if err != nil {
				return fmt.Errorf("agent %s: %w", a.name, err)
			}
			if s.Session == "" {
				return fmt.Errorf("agent %s has no session", a.name)
			}
		}
		return nil
	})
	return m.leader()
}

// leader waits until one agent that runs leads and its duties run.
func (m *mesh) leader(but ...*agent) (found *agent) {
	m.t.Helper()
	m.await("a leader", func() error {
		for _, a := range m.agents {
			if !a.alive() {
				continue
			}
			s, err := a.status()
			if err == nil && s.IsLeader && s.LeaderReady && (len(but) == 0 || a != but[0]) {
				found = a
				return nil
			}
		}
		return errNotYet
	})
	return found
}

// follower returns an agent that runs and does not lead.
func (m *mesh) follower() *agent {
	m.t.Helper()
	leader := m.leader()
	for _, a := range m.agents {
		if a != leader && a.alive() {
			return a
		}
	}
	m.t.Fatal("there is no follower")
	return nil
}

// status asks this agent, for a moment only: it may be stopped.
func (a *agent) status() (s api.AgentStatus, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	return a.mesh.api(a).Status(ctx)
}

// said is the result of a command.
type said struct {
	out, err string
	code     int
}

// coopr runs the command against all agents.
func (m *mesh) coopr(args ...string) said {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(m.bin, "coopr"), args...)
	var out, errs bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = m.dir, &out, &errs
	var addrs []string
	for _, a := range m.agents {
		addrs = append(addrs, a.addr(httpPort))
	}
	cmd.Env = append(m.env(), "COOPR_ADDR="+strings.Join(addrs, ","), "COOPR_TOKEN="+m.token, "COOPR_CACERT="+m.caCert)
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		m.t.Fatalf("coopr %s: %v", strings.Join(args, " "), err)
	}
	return said{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// must is coopr for commands that succeed; it returns what they print.
func (m *mesh) must(args ...string) string {
	m.t.Helper()
	s := m.coopr(args...)
	if s.code != 0 {
		m.t.Fatalf("coopr %s: exit code %d\n%s%s", strings.Join(args, " "), s.code, s.out, s.err)
	}
	return s.out
}
