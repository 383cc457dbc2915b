// Package providertest plays the leader in tests of providers: it writes the tasks of a node and
// keeps their results, as the replicated state does.
package providertest

import (
	"context"
	"encoding/json"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/sdk"
	"github.com/coopr/coopr/rpc/proto"
)

// Node is the leader's knowledge of a node of tenant "t".
type Node struct {
	T       testing.TB
	Fields  map[string]any // fields of the provider
	Mesh    string
	Cluster string
	// Resources is the folder with the provider's plugin resources, or "".
	Resources string
	// Operation and Attempt are those of the next tasks.
	Operation string
	Attempt   int
	ID        string
	Number    int
	Flavor    string
	Image     string
	Zone      string // if empty, one of the field zones, chosen by Number
	Fence     uint64 // of the last task
	Results   map[string]any
	IPs       map[string]string
	Saved     map[string]json.RawMessage // values that the provider has saved

	mu  sync.Mutex
	log []string
}

// New returns a node of cluster "c" without any results.
func New(t testing.TB, fields map[string]any, id string) *Node {
	return &Node{T: t, Fields: fields, Cluster: "c", ID: id, Attempt: 1, Results: map[string]any{}}
}

// Task returns a task for an action, with the next fence.
func (n *Node) Task(action string) *sdk.Task {
	n.Fence++
	if list, _ := n.Fields["zones"].(string); list != "" && n.Zone == "" {
		zones := strings.Split(list, ",")
		n.Zone = strings.TrimSpace(zones[n.Number%len(zones)])
	}
	in, err := json.Marshal(model.TaskInput{TaskID: n.Operation + n.ID + "/" + action, NodeID: n.ID, Cluster: n.Cluster, TaskName: action,
		Config: model.TaskConfig{
			Hostname: n.ID + ".local", NodeNum: model.Int(n.Number), Flavor: n.Flavor, Image: n.Image, Zone: n.Zone, Results: n.Results,
			IPAddresses: n.IPs, Saved: n.Saved,
			Provider: model.TaskProvider{Provisioner: n.Fields},
		}})
	if err != nil {
		n.T.Fatal(err)
	}
	return sdk.NewTask(&proto.Task{Id: n.Operation + n.ID + "/" + action, Operation: n.Operation, Fence: n.Fence, Attempt: uint32(n.Attempt),
		Tenant: "t", Mesh: n.Mesh, Cluster: n.Cluster, Node: n.ID, Action: action, Input: in, ResourcesDir: n.Resources},
		func(line string, _ bool) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.log = append(n.log, line)
		}, func(key string, value []byte) {
			if n.Saved == nil {
				n.Saved = map[string]json.RawMessage{}
			}
			n.Saved[key] = value
		})
}

// Verb is a provider's method.
type Verb func(context.Context, *sdk.Task) (*sdk.Output, error)

// Do carries out a task, for a minute at most, and keeps its results.
func (n *Node) Do(action string, v Verb) error {
	ctx, cancel := context.WithTimeout(n.T.Context(), time.Minute)
	defer cancel()
	out, err := v(ctx, n.Task(action))
	if out == nil {
		return err
	}
	maps.Copy(n.Results, out.Result)
	if zone := out.Result["zone"]; zone != nil && n.Zone != "" && zone != n.Zone {
		n.T.Errorf("node %s is in zone %v instead of %s", n.ID, zone, n.Zone)
	}
	// The state keeps JSON.
	b, merr := json.Marshal(n.Results)
	if merr != nil {
		n.T.Fatal(merr)
	}
	n.Results = map[string]any{}
	if merr := json.Unmarshal(b, &n.Results); merr != nil {
		n.T.Fatal(merr)
	}
	if out.IPAddresses != nil {
		n.IPs = out.IPAddresses
	}
	return err
}

// Must is Do for a task that has to succeed.
func (n *Node) Must(action string, v Verb) {
	n.T.Helper()
	if err := n.Do(action, v); err != nil {
		n.T.Fatalf("%s of node %s: %v\n%s", action, n.ID, err, n.Log())
	}
}

// ProviderID returns the provider's id of the node.
func (n *Node) ProviderID() string {
	s, _ := n.Results["providerid"].(string)
	return s
}

// Log returns the log lines of all tasks.
func (n *Node) Log() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.log, "\n")
}

// Listed returns what a provider lists for cluster "c": node → the provider's id.
func Listed(t testing.TB, p sdk.Provider, fields map[string]any) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := p.List(t.Context(), sdk.ListRequest{Fields: fields, Tenant: "t", Cluster: "c"}, func(r sdk.Resource) error {
		if r.Cluster != "c" || r.Fence == 0 {
			t.Errorf("listed %+v", r)
		}
		out[r.Node] = r.ID
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return out
}
