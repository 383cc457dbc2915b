// Package automatortest plays the leader in tests of automators: it writes the tasks of a node,
// which is a light machine, and keeps their logs.
package automatortest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	gossh "golang.org/x/crypto/ssh"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/remote/ssh"
	"github.com/coopr/coopr/plugins/sdk"
	"github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/lab"
)

// Node is a light machine, as if a provider had created it.
type Node struct {
	T       testing.TB
	Machine *lab.Machine
	Results map[string]any // of the provider
	Config  map[string]any // the cluster's configuration

	tasks int
	mu    sync.Mutex
	log   []string
	// Resources is the folder of the tasks' plugin resources, or "".
	Resources string
}

// New starts a light machine and returns its node, which is reached as an ordinary user with sudo.
func New(t testing.TB, l *lab.Lab, name string) *Node {
	t.Helper()
	m, err := l.Start(t.Context(), lab.Spec{Name: name})
	if err == nil {
		err = m.WaitSSH(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return &Node{T: t, Machine: m, Config: map[string]any{},
		Results: (&ssh.Results{User: "debian", PrivateKey: string(l.Key()), HostKeys: []gossh.PublicKey{m.HostKey}}).Map()}
}

// Task returns a task of service "s" for an action, and clears the log.
func (n *Node) Task(action string, fields map[string]any) *sdk.Task {
	n.T.Helper()
	n.tasks++
	id := fmt.Sprintf("t%d", n.tasks)
	c := model.TaskConfig{Cluster: n.Config, Results: n.Results, NodeNum: 1000, Services: []string{"s"}}
	if n.Machine != nil {
		c.Hostname, c.IPAddresses = n.Machine.Name, map[string]string{"access_v4": n.Machine.Addr.String(), "bind_v4": n.Machine.Addr.String()}
	}
	if fields != nil {
		c.Service = &model.TaskService{Name: "s", Action: model.TaskAction{Fields: fields}}
	}
	in, err := json.Marshal(model.TaskInput{TaskID: id, NodeID: "n", Config: c})
	if err != nil {
		n.T.Fatal(err)
	}
	n.mu.Lock()
	n.log = nil
	n.mu.Unlock()
	return sdk.NewTask(&proto.Task{Id: id, Fence: 1, Attempt: 1, Cluster: "c", Node: "n", Action: action, Service: "s", Plugin: "test",
		Input: in, ResourcesDir: n.Resources}, func(line string, _ bool) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.log = append(n.log, line)
	}, nil)
}

// Upload adds a file to the tasks' resources, by its path in their folder.
func (n *Node) Upload(name, content string) {
	n.T.Helper()
	if n.Resources == "" {
		n.Resources = n.T.TempDir()
	}
	path := filepath.Join(n.Resources, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o755)); err != nil {
		n.T.Fatal(err)
	}
}

// Do carries out a task that has to succeed.
func (n *Node) Do(a sdk.Automator, action string, fields map[string]any) *sdk.Output {
	n.T.Helper()
	verb := a.Run
	if action == "BOOTSTRAP" {
		verb = a.Bootstrap
	}
	out, err := verb(n.T.Context(), n.Task(action, fields))
	if err != nil {
		n.T.Fatalf("%s: %v\n%s", action, err, n.Log())
	}
	return out
}

// Log returns the log of the last task.
func (n *Node) Log() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.log, "\n")
}

// Must runs a command on the machine, without SSH, that has to succeed.
func (n *Node) Must(args ...string) string {
	n.T.Helper()
	out, err := n.Machine.Run(n.T.Context(), args...)
	if err != nil {
		n.T.Fatal(err)
	}
	return strings.TrimSpace(out)
}
