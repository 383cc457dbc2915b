package chaos

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"
	"github.com/coopr/coopr/testing/lab"
	"github.com/coopr/coopr/testing/site"
)

var programs = site.NewPrograms("./plugins/automator/coopr-automator-shell")

func TestMain(m *testing.M) { programs.Main(m) }

const (
	// patience is how long a run waits for anything before it gives up. It guards against waiting for
	// ever and does not check speed.
	patience = 3 * time.Minute
	// answer is how long a client waits for the answer of an agent, before it asks another one.
	answer = 1500 * time.Millisecond
	// diskSize is the size of the disk of an agent, and walSize with a WAL. A WAL has segments of 64 MiB, and
	// damaged ones are put aside.
	diskSize, walSize = 192 << 20, 640 << 20

	httpPort, peerPort, gossipPort = "55054", "55055", "55056"
)

// mesh is a mesh of agents on a lab. Its methods return errors, as a run that fails may be repeated.
type mesh struct {
	lab    *lab.Lab
	dir    string
	store  string // raft.store of all agents
	keep   string // a folder that receives the logs of the agents, or ""
	token  string // of an operator
	agents []*agent

	still context.CancelFunc // ends the goroutine of flaps
	flaps sync.WaitGroup
}

type agent struct {
	mesh    *mesh
	name    string
	data    string
	addr    netip.Addr
	machine *lab.Machine
	api     *client.Client // asks this agent alone
}

func (a *agent) at(port string) string { return a.addr.String() + ":" + port }

// start starts a mesh of agents in its folder and waits until it is at work.
func (m *mesh) start(ctx context.Context, bin string, agents int) error {
	dir, addr := m.dir, m.lab.Gateway
	for i := range agents {
		addr = addr.Next()
		name := string(rune('a' + i))
		m.agents = append(m.agents, &agent{mesh: m, name: name, addr: addr, data: filepath.Join(dir, name)})
	}
	birth := m.born("")
	out, err := exec.CommandContext(ctx, filepath.Join(bin, "coopr-agent"), "init", "--out", birth, "--peer", m.agents[0].at(peerPort),
		"--voters", fmt.Sprint(len(m.agents)-1)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("the mesh's identity: %w: %s", err, out)
	}
	ledger, err := filepath.Abs("../e2e/testdata/ledger/plugins")
	if err != nil {
		return err
	}
	plugins := filepath.Join(dir, "plugins")
	if err := errors.Join(os.CopyFS(plugins, os.DirFS(ledger)), os.MkdirAll(m.nodes(), 0o700),
		os.Symlink(filepath.Join(bin, "coopr-automator-shell"), filepath.Join(plugins, "coopr-automator-shell"))); err != nil {
		return err
	}
	for _, a := range m.agents {
		if err := a.start(ctx, bin); err != nil {
			return err
		}
	}
	if err := m.connect(ctx, bin); err != nil {
		return err
	}
	return m.awaitWhole(ctx)
}

// born returns the path of a file that coopr-agent init has written.
func (m *mesh) born(name string) string { return filepath.Join(m.dir, "birth", name) }

// world is the folder that plugins change.
func (m *mesh) world() string  { return filepath.Join(m.dir, "world") }
func (m *mesh) nodes() string  { return filepath.Join(m.world(), "nodes") }
func (m *mesh) ledger() string { return filepath.Join(m.world(), "ledger") }

// start starts an agent for the first time, on a small disk.
func (a *agent) start(ctx context.Context, bin string) error {
	m := a.mesh
	tmp := filepath.Join(m.dir, a.name+".tmp")
	if err := errors.Join(os.Mkdir(a.data, 0o700), os.Mkdir(tmp, 0o700)); err != nil {
		return err
	}
	size := diskSize
	if m.store == "wal" {
		size = walSize
	}
	if err := syscall.Mount("tmpfs", a.data, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", size)); err != nil {
		return fmt.Errorf("the disk of agent %s: %w", a.name, err)
	}
	if a == m.agents[0] {
		birth := m.born("identity")
		identity, err := os.ReadFile(birth)
		if err = errors.Join(err, os.WriteFile(filepath.Join(a.data, "identity"), identity, 0o600), os.Remove(birth)); err != nil {
			return fmt.Errorf("the mesh's identity: %w", err)
		}
	}
	config := filepath.Join(m.dir, a.name+".yaml")
	lines := []string{
		"name: " + a.name,
		"data_dir: " + a.data,
		"plugin_dir: " + filepath.Join(m.dir, "plugins"),
		"join_token_file: " + m.born("voter-token"),
		"limits: {strangers: 0}", // the checks try hundreds of revoked tokens from one address
		fmt.Sprintf("http: {addr: %q}", a.at(httpPort)),
		fmt.Sprintf("peer: {addr: %q}", a.at(peerPort)),
		fmt.Sprintf("gossip: {addr: %q}", a.at(gossipPort)),
		"raft: {store: " + m.store + ", snapshot_interval: 10s, snapshot_threshold: 256, trailing_logs: 64}",
		"host_exec: true",
		"providers: {local: {root: " + m.nodes() + "}}",
		"plugins:",
		fmt.Sprintf("- {name: automator-shell, writes: [%q]}", m.world()),
		fmt.Sprintf("- {name: ledger, path: ledger.yaml, writes: [%q]}", m.world()),
	}
	if err := os.WriteFile(config, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		return err
	}
	machine, err := m.lab.Start(ctx, lab.Spec{
		Name: a.name, Addr: a.addr,
		Program: []string{filepath.Join(bin, "coopr-agent"), "run", "--config", config},
		Env:     []string{"HOME=" + m.dir, "TMPDIR=" + tmp, "PATH=" + os.Getenv("PATH"), "GOTRACEBACK=all"},
		Syncs:   true,
	})
	if err != nil {
		return err
	}
	a.machine = machine
	return nil
}

// connect makes the clients of the agents, as an operator of the mesh.
func (m *mesh) connect(ctx context.Context, bin string) error {
	ca := m.born("ca.pem")
	token, err := os.ReadFile(m.born("root-token"))
	if err != nil {
		return fmt.Errorf("the mesh's token: %w", err)
	}
	m.token = strings.TrimSpace(string(token))
	for _, a := range m.agents {
		if a.api, err = client.New(client.Config{Addresses: []string{a.at(httpPort)}, Token: m.token, CACert: ca, Patience: -1}); err != nil {
			return err
		}
	}
	return nil
}

// quit ends every agent that runs so that its log ends with the stacks of its goroutines.
func (m *mesh) quit() error {
	var errs []error
	for _, a := range m.agents {
		if a.machine == nil || !a.machine.Running() {
			continue
		}
		if err := errors.Join(a.signal(syscall.SIGCONT), a.signal(syscall.SIGQUIT)); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, await(context.Background(), "the stacks of agent "+a.name, func() error {
			if a.machine.Running() {
				return errors.New("it still runs")
			}
			return nil
		}))
	}
	return errors.Join(errs...)
}

// end ends the mesh, and copies the logs of the agents into the folder that is to keep them.
func (m *mesh) end() error {
	var errs []error
	for _, a := range m.agents {
		if a.api != nil {
			a.api.Close()
		}
		if a.machine != nil {
			if m.keep != "" {
				errs = append(errs, os.WriteFile(filepath.Join(m.keep, a.name+".log"), []byte(a.machine.Console()), 0o644))
			}
			errs = append(errs, a.machine.Destroy())
		}
		_ = syscall.Unmount(a.data, syscall.MNT_DETACH) // it may not be mounted
	}
	m.lab.Net.Heal()
	return errors.Join(errs...)
}

// await repeats a function until it returns no error, for conditions without a blocking read.
func await(ctx context.Context, what string, ask func() error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	over := time.After(patience)
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited for %s: %w, %w", what, ctx.Err(), err)
		case <-over:
			return fmt.Errorf("waited for %s for %v: %w", what, patience, err)
		case <-tick.C:
		}
	}
}

// status asks an agent, for a moment only: it may be stopped.
func (a *agent) status(ctx context.Context) (api.AgentStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, answer)
	defer cancel()
	s, err := a.api.Status(ctx)
	if err != nil {
		err = fmt.Errorf("agent %s: %w", a.name, err)
	}
	return s, err
}

// awaitWhole waits until every agent runs, follows one leader at work, has a session with it, votes, and receives
// the log.
func (m *mesh) awaitWhole(ctx context.Context) error {
	goal := uint64(0) // the newest entry that any agent had applied when all of them followed a leader
	return await(ctx, "the mesh to be whole", func() error {
		leader, newest := "", uint64(0)
		for _, a := range m.agents {
			s, err := a.status(ctx)
			switch {
			case !a.machine.Running():
				return fmt.Errorf("agent %s has ended by itself", a.name)
			case err != nil:
				return err
			case s.Leader == "" || s.IsLeader && !s.LeaderReady:
				return fmt.Errorf("agent %s has no leader at work", a.name)
			case leader != "" && s.Leader != leader:
				return fmt.Errorf("agent %s follows %s, and another agent follows %s", a.name, s.Leader, leader)
			case s.Session == "":
				return fmt.Errorf("agent %s has no session", a.name)
			case !s.Voter:
				return fmt.Errorf("agent %s does not vote: %s", a.name, m.peers(ctx))
			case s.Alive != len(m.agents):
				return fmt.Errorf("agent %s counts %d living agents", a.name, s.Alive)
			case s.Applied < goal:
				return fmt.Errorf("agent %s has applied entry %d of %d", a.name, s.Applied, goal)
			}
			leader, newest = s.Leader, max(newest, s.Applied)
		}
		if goal == 0 {
			goal = max(1, newest)
			return fmt.Errorf("not all agents are known to have applied entry %d", goal)
		}
		return nil
	})
}

// peers returns the Raft group as the first agent that answers knows it, for people.
func (m *mesh) peers(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, answer)
	defer cancel()
	for _, a := range m.agents {
		if list, err := a.api.RaftPeers(ctx); err == nil {
			return fmt.Sprintf("%+v", list)
		}
	}
	return "no agent knows the Raft group"
}

// leader returns the agent that leads, or any agent if none is known to.
func (m *mesh) leader(ctx context.Context) int {
	return max(0, slices.IndexFunc(m.agents, func(a *agent) bool {
		s, err := a.status(ctx)
		return err == nil && s.IsLeader
	}))
}

// signal sends a signal to the agent's process alone, not to its children.
func (a *agent) signal(s syscall.Signal) error {
	pids, err := a.machine.Processes()
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil && filepath.Base(exe) == "coopr-agent" {
			return syscall.Kill(pid, s)
		}
	}
	return fmt.Errorf("agent %s does not run", a.name)
}
