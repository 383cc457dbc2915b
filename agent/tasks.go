package agent

import (
	"fmt"
	"sync"

	"github.com/coopr/coopr/consensus/duty/dispatch"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/plan"
	pb "github.com/coopr/coopr/rpc/proto"
)

// tasks makes what workers get for leases. It keeps what it made of a cluster's
// configuration, and its nodes' rows, for as long as cluster and nodes stay the
// same: a cluster's tasks come by the thousand.
type tasks struct {
	machine *state.Machine

	mu       sync.Mutex
	clusters map[string]*clusterCache
	ran      *programs // the program that was made last
	last     struct {  // the cluster that was looked for last
		view *state.View
		id   string
		*model.Cluster
	}
}

// clusterCache is what is kept of one cluster.
type clusterCache struct {
	source  *operation.Source
	version uint64 // of the cluster, that source was made from
	made    uint64 // what source was made from has all changes of nodes up to this index
	nodes   map[string]*model.Node
	read    uint64 // and so have nodes
}

func newTasks(m *state.Machine) *tasks {
	return &tasks{machine: m, clusters: map[string]*clusterCache{}}
}

// cluster finds an operation's cluster.
func (t *tasks) cluster(v *state.View, op *model.Operation) (*model.Cluster, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := &t.last; l.view != v || l.id != op.Cluster {
		l.view, l.id = v, op.Cluster
		l.Cluster, _ = v.Cluster(op.Tenant, op.Cluster)
	}
	return t.last.Cluster, t.last.Cluster != nil
}

// cacheLocked gives what is kept of a cluster, and two indexes: up to the first
// its nodes have changed, and up to the second v is sure to have it.
func (t *tasks) cacheLocked(v *state.View, id string) (c *clusterCache, changed, seen uint64) {
	if c = t.clusters[id]; c == nil {
		if len(t.clusters) > 64 {
			clear(t.clusters) // few clusters have work at a time
		}
		c = &clusterCache{}
		t.clusters[id] = c
	}
	changed = t.machine.NodesVersion(id)
	return c, changed, min(changed, v.Index())
}

// source gives what a cluster's task inputs are made from.
func (t *tasks) source(v *state.View, cl *model.Cluster) *operation.Source {
	t.mu.Lock()
	defer t.mu.Unlock()
	c, changed, seen := t.cacheLocked(v, cl.ID)
	if c.source == nil || c.version != cl.Version || (c.source.Dependent && c.made < changed) {
		c.source, c.version, c.made = operation.NewSource(cl, v.Nodes(cl.Tenant, cl.ID)), cl.Version, seen
	}
	return c.source
}

// node finds a node of a cluster.
func (t *tasks) node(v *state.View, cl *model.Cluster, id string) (*model.Node, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c, changed, seen := t.cacheLocked(v, cl.ID)
	if c.nodes == nil || c.read < changed {
		c.nodes, c.read = map[string]*model.Node{}, seen
	}
	n, ok := c.nodes[id]
	if !ok {
		if n, ok = v.Node(cl.Tenant, id); ok {
			c.nodes[id] = n
		}
	}
	return n, ok
}

// action gives what is really done for a vertex now: a CREATE whose CONFIRM
// failed begins with a DELETE.
func action(g *plan.Graph, n *plan.Note, u uint32) model.Action {
	if n != nil && n.Undo {
		return model.Delete
	}
	return g.Action[u]
}

// Task makes what a worker gets.
func (t *tasks) Task(v *state.View, op *model.Operation, s *plan.State, u uint32) (*pb.Task, error) {
	cl, ok := t.cluster(v, op)
	if !ok {
		return nil, fmt.Errorf("there is no cluster %s any more", op.Cluster)
	}
	n, ok := t.node(v, cl, s.Graph.NodeID(int(u)))
	if !ok {
		return nil, fmt.Errorf("there is no node %s any more", s.Graph.NodeID(int(u)))
	}
	st := s.Task(u)
	act := action(s.Graph, st.Note, u)
	if act == model.Run {
		return t.step(v, op, cl, n, s, u)
	}
	id := string(model.OperationID(op.ID).Task(u))
	n = v.Live(cl, n)
	w, err := t.source(v, cl).Work(op.ID, id, n, v.Values(n.ID), act, s.Graph.ServiceName(int(u)))
	if err != nil {
		return nil, err
	}
	out := &pb.Task{
		Id: id, Attempt: uint32(st.Attempt), Tenant: op.Tenant, Mesh: v.Mesh(), Cluster: op.Cluster, Operation: op.ID, Node: n.ID,
		Action: act.String(), Service: s.Graph.ServiceName(int(u)), Plugin: w.Plugin, Automator: w.Automator,
		Observe: st.Note != nil && st.Note.Observe && act == s.Graph.Action[u], TimeoutMs: w.Timeout.Milliseconds(), Input: operation.WithParameters(w.Input, op.Parameters),
		Resources: op.Resources,
	}
	if p := w.Ready; act == model.Check {
		out.Ready = &pb.Ready{IntervalMs: int64(p.Interval), DelayMs: int64(p.Delay), TimeoutMs: int64(p.Timeout)}
		out.TimeoutMs = readyWithinMs
	}
	return out, nil
}

// readyWithinMs is how long a started service has to become ready, in milliseconds;
// then the check has failed once.
const readyWithinMs = 30 * 60_000

// resultMachine is the key under which a node's results name the machine that
// it lives on, where it lives on an agent's own.
const resultMachine = "machine"

// Needs tells what a task asks of an agent.
func (t *tasks) Needs(v *state.View, op *model.Operation, g *plan.Graph, u uint32) dispatch.Needs {
	if cl, ok := t.cluster(v, op); ok {
		if n, ok := t.node(v, cl, g.NodeID(int(u))); ok {
			return needsOf(cl, op.ID, v.Live(cl, n), g, u)
		}
	}
	return dispatch.Needs{}
}

// needsOf is Needs for a cluster and a node at hand.
func needsOf(cl *model.Cluster, op string, n *model.Node, g *plan.Graph, u uint32) dispatch.Needs {
	name, automator := operation.Plugin(cl, op, n, g.Action[u], g.ServiceName(int(u)))
	out := dispatch.Needs{Plugin: "provider/" + name}
	if automator {
		out.Plugin = "automator/" + name
	}
	if m, ok := n.Results[resultMachine].(string); ok {
		out.Machine = m
	}
	if g.Action[u].Hardware() {
		out.Limit, out.Most = cl.Tenant+"/"+cl.Provider.Name, cl.Provider.MaxParallel
	}
	return out
}
