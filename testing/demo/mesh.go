package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/coopr/coopr/internal/words"
)

// mesh is the demo's agents and their clients.
type mesh struct {
	bin, dir string
	token    string // token of the operator
	agents   []*agent
}

// agent is one coopr-agent process.
type agent struct {
	name               string
	http, peer, gossip string
	cmd                *exec.Cmd
	ended              chan struct{} // closed when the process has ended
}

// start creates a mesh and starts its agents. The first one founds the mesh, and the others join it with a token.
func (m *mesh) start(names ...string) error {
	for _, name := range names {
		a := &agent{name: name, ended: make(chan struct{})}
		for _, addr := range []*string{&a.http, &a.peer, &a.gossip} {
			var err error
			if *addr, err = freeAddress(); err != nil {
				return err
			}
		}
		m.agents = append(m.agents, a)
	}
	init := exec.Command(filepath.Join(m.bin, "coopr-agent"), "init", "--out", m.birth(""), "--peer", m.agents[0].peer, "--voters",
		fmt.Sprint(len(names)-1))
	init.Env = m.env()
	if out, err := init.CombinedOutput(); err != nil {
		return fmt.Errorf("create the mesh: %w: %s", err, out)
	}
	token, err := os.ReadFile(m.birth("root-token"))
	if err != nil {
		return err
	}
	m.token = strings.TrimSpace(string(token))
	for i, a := range m.agents {
		data := filepath.Join(m.dir, a.name)
		err := os.MkdirAll(data, 0o700)
		if err == nil && i == 0 {
			err = os.Rename(m.birth("identity"), filepath.Join(data, "identity"))
		}
		if err == nil {
			err = m.run(a, data)
		}
		if err != nil {
			return fmt.Errorf("agent %s: %w", a.name, err)
		}
	}
	return nil
}

// birth returns the path of a file that coopr-agent init writes.
func (m *mesh) birth(name string) string { return filepath.Join(m.dir, "mesh", name) }

func (m *mesh) run(a *agent, data string) error {
	log, err := os.Create(filepath.Join(m.dir, a.name+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	a.cmd = exec.Command(filepath.Join(m.bin, "coopr-agent"),
		"--name", a.name, "--data-dir", data, "--join-token-file", m.birth("voter-token"),
		"--http-addr", a.http, "--peer-addr", a.peer, "--gossip-addr", a.gossip,
		// The local provider runs what the demo asks for on this machine.
		"--host-exec",
		// Nodes belong to this machine, so any agent can work on them.
		"--providers-local-root", filepath.Join(m.dir, "nodes"), "--plugin-dir", m.bin)
	a.cmd.Dir, a.cmd.Env = m.dir, m.env()
	a.cmd.Stdout, a.cmd.Stderr = log, log
	// A process group of its own, so that Ctrl-C reaches only the demo.
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := a.cmd.Start(); err != nil {
		return err
	}
	go func() {
		defer close(a.ended)
		_ = a.cmd.Wait() // how it ended does not matter
	}()
	return nil
}

// env returns the environment of the demo's processes: without settings of the user, and with the
// demo's folder as the only place to write to.
func (m *mesh) env() []string {
	env := []string{marker + "=" + m.dir, "HOME=" + m.dir, "TMPDIR=" + m.dir,
		"PATH=" + m.bin + string(os.PathListSeparator) + os.Getenv("PATH")}
	for _, k := range []string{"TERM", "LANG", "LC_ALL", "NO_COLOR", "COLUMNS"} {
		if v, ok := os.LookupEnv(k); ok {
			env = append(env, k+"="+v)
		}
	}
	// The command uses the first agent that answers.
	var addrs []string
	for _, a := range m.agents {
		addrs = append(addrs, "https://"+a.http)
	}
	return append(env, "COOPR_ADDR="+strings.Join(addrs, ","), "COOPR_TOKEN="+m.token, "COOPR_CACERT="+m.birth("ca.pem"))
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

// freeAddress returns an address of 127.0.0.1 with a port that is currently free for TCP and UDP.
func freeAddress() (string, error) {
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", err
		}
		addr := l.Addr().String()
		u, err := net.ListenPacket("udp", addr)
		if err == nil {
			err = u.Close()
		}
		if err = errors.Join(err, l.Close()); err == nil {
			return addr, nil
		}
	}
	return "", errors.New("no free port on 127.0.0.1")
}

// cli runs the coopr command and shows its output.
func (m *mesh) cli(ctx context.Context, args ...string) error {
	cmd := m.command(ctx, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("coopr %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// query runs the coopr command and decodes the JSON that it prints.
func (m *mesh) query(ctx context.Context, into any, args ...string) error {
	args = append(args, "-o", "json")
	cmd := m.command(ctx, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if err == nil {
		err = json.Unmarshal(out.Bytes(), into)
	}
	if err != nil {
		return fmt.Errorf("coopr %s: %w\n%s", strings.Join(args, " "), err, errs.String())
	}
	return nil
}

func (m *mesh) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(m.bin, "coopr"), args...)
	cmd.Env, cmd.Stdin = m.env(), nil
	// Ctrl-C must reach only the demo: the command would explain how to return to an operation that
	// is about to be removed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// member holds the fields of "coopr members" that the demo reads.
type member struct {
	Name   string `json:"name"`
	Status string `json:"status"`
	Leader bool   `json:"leader"`
	Voter  bool   `json:"voter"`
}

// until polls the members until ok accepts them. It fails after a minute, or if an agent other than
// dead has ended.
func (m *mesh) until(ctx context.Context, what, dead string, ok func([]member) bool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		var members []member
		err := m.query(ctx, &members, "members")
		if err == nil && ok(members) {
			return nil
		}
		for _, a := range m.agents {
			if a.name != dead && !a.alive() {
				return fmt.Errorf("agent %s has ended:\n%s", a.name, m.tail(a))
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("after a minute there is no %s: %w", what, errors.Join(err, ctx.Err()))
		case <-tick.C:
		}
	}
}

// leader waits until the mesh has a leader other than the agent dead, and a number of voters. It
// returns the leader.
func (m *mesh) leader(ctx context.Context, dead string, voters int) (found *agent, err error) {
	err = m.until(ctx, "leader", dead, func(members []member) bool {
		have := 0
		found = nil
		for _, x := range members {
			if x.Voter {
				have++
			}
			for _, a := range m.agents {
				if x.Leader && x.Name == a.name && a.name != dead {
					found = a
				}
			}
		}
		return found != nil && have >= voters
	})
	return found, err
}

// ready waits until the mesh offers plugins of these names.
func (m *mesh) ready(ctx context.Context, plugins ...string) error {
	return m.until(ctx, "agent that offers "+words.And(plugins), "", func([]member) bool {
		var offered []struct{ Name string }
		if err := m.query(ctx, &offered, "plugin", "list"); err != nil {
			return false
		}
		for _, name := range plugins {
			if !slices.ContainsFunc(offered, func(p struct{ Name string }) bool { return p.Name == name }) {
				return false
			}
		}
		return true
	})
}

// gone waits until the mesh has noticed the death of an agent.
func (m *mesh) gone(ctx context.Context, dead *agent) error {
	return m.until(ctx, "agreement that "+dead.name+" is dead", dead.name, func(members []member) bool {
		for _, x := range members {
			if x.Name == dead.name && x.Status == "alive" {
				return false
			}
		}
		return true
	})
}

// tail returns the end of an agent's log.
func (m *mesh) tail(a *agent) string {
	b, err := os.ReadFile(filepath.Join(m.dir, a.name+".log"))
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}
