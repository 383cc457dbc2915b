package e2e

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"
)

// exec runs a command on a node, again if the agent was lost that was asked: the mesh may change its leader at any time.
func (m *mesh) exec(args ...string) said {
	m.t.Helper()
	for {
		if s := m.coopr(append([]string{"node", "exec"}, args...)...); !strings.Contains(s.err, "it is unknown what") {
			return s
		}
	}
}

// runsCommands runs commands on a node of a cluster of the provider local.
func (m *mesh) runsCommands(cluster string) {
	m.t.Helper()
	node := cluster + "/1000"
	const text = "echo out; echo err >&2; exit 3"
	if s := m.exec(node, "--", "sh", "-c", text); s.code != 3 || s.out != "out\n" || s.err != "err\n" {
		m.t.Errorf("a command ends with %d\n%s%s", s.code, s.out, s.err)
	}
	if out := m.exec(node, "--", "echo", "$HOME  *", "-x", "%host.self%").out; out != "$HOME  * -x %host.self%\n" {
		m.t.Errorf("a command is expanded: %s", out)
	}
	if out := m.exec(node, "--", "printenv", "COOPR_HOSTNAME").out; !strings.HasPrefix(out, cluster) {
		m.t.Errorf("a command runs on %s", out)
	}
	long := strings.Repeat("long ", 12000)
	if out := m.exec(node, "--", "sh", "-c", `echo "$1$1"`, "sh", long).out; out != long+long+"\n" {
		m.t.Errorf("a long line has %d bytes", len(out))
	}
	if s := m.exec(node, "--", "sh", "-c", "while :; do echo "+long[:1000]+"; done"); s.code != 1 || len(s.out) > 5<<20 || len(s.out) < 1<<20 ||
		!strings.Contains(s.err, "its output was longer than") {
		m.t.Errorf("of much output there are %d bytes: %d %s", len(s.out), s.code, s.err)
	}
	if s := m.exec(node, "--timeout", "1s", "--", "sleep", "1000"); s.code != 1 ||
		!strings.Contains(s.err, "did not end by itself") {
		m.t.Errorf("a command that takes too long: %d %s%s", s.code, s.out, s.err)
	}
	if s := m.exec(node, "--", "no-such-program"); s.code != 127 {
		m.t.Errorf("a program that does not exist: %d %s%s", s.code, s.out, s.err)
	}
	if s := m.exec(cluster+"/7", "--", "true"); s.code != 3 {
		m.t.Errorf("a node that does not exist: %d %s%s", s.code, s.out, s.err)
	}
	nodes, _, err := m.api().Nodes(m.context(), cluster, client.Page{}, client.Read{})
	if err != nil || len(nodes) == 0 {
		m.t.Fatalf("%d nodes: %v", len(nodes), err)
	}
	// A request that is repeated does not run its command again.
	ctx := client.WithRequestID(m.context(), client.NewRequestID())
	for i, want := range []error{nil, client.ErrConflict} {
		end, err := m.api().RunCommand(ctx, nodes[0].ID, api.NodeCommand{Command: []string{"true"}}, func(api.CommandLine) error { return nil })
		if i == 0 && errors.Is(err, client.ErrBroken) {
			continue
		}
		if !errors.Is(err, want) || err == nil && (end.Exit == nil || *end.Exit != 0) {
			m.t.Errorf("request %d: %+v, %v", i, end, err)
		}
	}
	// A command ends with its client.
	left := errors.New("left")
	for err = client.ErrBroken; errors.Is(err, client.ErrBroken); {
		ctx, leave := context.WithCancelCause(m.context())
		_, err = m.api().RunCommand(ctx, nodes[0].ID, api.NodeCommand{Command: []string{"sh", "-c", "echo begun; exec sleep 98765"}},
			func(api.CommandLine) error { leave(left); return nil })
		leave(nil)
	}
	if !errors.Is(err, left) {
		m.t.Error(err)
	}
	m.await("the end of the command", func() error {
		list, err := processes(m.nodes())
		if err == nil && slices.ContainsFunc(list, func(p process) bool { return strings.Contains(p.what, "sleep 98765") }) {
			err = errNotYet
		}
		return err
	})
	log := m.must("audit", "list", "--type", "node.command", "-o", "json")
	if !strings.Contains(log, "1000: sh -c 'echo begun; exec sleep 98765'") || !strings.Contains(log, "exit 3'") {
		m.t.Errorf("the audit log has\n%s", log)
	}
	// The node is a part of an agent's machine, so that not even an administrator of the tenant may run commands there.
	root := m.token
	defer func() { m.token = root }()
	for role, why := range map[string]string{"admin": "host:exec", "read": "exec"} {
		m.token = root
		m.token = strings.TrimSpace(m.must("token", "create", "ann-"+role, "--role", role))
		if s := m.exec(node, "--", "true"); s.code != 1 || !strings.Contains(s.err, why) {
			m.t.Errorf("role %s: %d %s%s", role, s.code, s.out, s.err)
		}
	}
}
