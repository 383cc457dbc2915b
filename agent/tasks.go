package agent

import (
	"fmt"
	"sync"

	"github.com/coopr/coopr/consensus/dispatch"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/plan"
	pb "github.com/coopr/coopr/rpc/proto"
)

// tasks makes what workers get for leases. It keeps what it made of a cluster's
// configuration for as long as cluster and nodes stay the same.
type tasks struct {
	machine *state.Machine

	mu      sync.Mutex
	sources map[string]*cachedSource // by cluster
}

type cachedSource struct {
	*operation.Source
	cluster, nodes uint64 // versions it was made from
}

func newTasks(m *state.Machine) *tasks {
	return &tasks{machine: m, sources: map[string]*cachedSource{}}
}

// source gives what a cluster's task inputs are made from.
func (t *tasks) source(v *state.View, cl *model.Cluster) *operation.Source {
	nodes := t.machine.NodesVersion(cl.ID) // before the nodes are read
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.sources[cl.ID]; s != nil && s.cluster == cl.Version && (!s.Dependent || s.nodes == nodes) {
		return s.Source
	}
	if len(t.sources) > 64 {
		clear(t.sources) // few clusters have work at a time
	}
	s := &cachedSource{operation.NewSource(cl, v.Nodes(cl.Tenant, cl.ID)), cl.Version, nodes}
	t.sources[cl.ID] = s
	return s.Source
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
	cl, ok := v.Cluster(op.Tenant, op.Cluster)
	if !ok {
		return nil, fmt.Errorf("there is no cluster %s any more", op.Cluster)
	}
	n, ok := v.Node(op.Tenant, s.Graph.NodeID(int(u)))
	if !ok {
		return nil, fmt.Errorf("there is no node %s any more", s.Graph.NodeID(int(u)))
	}
	st := s.Task(u)
	act := action(s.Graph, st.Note, u)
	id := state.TaskID(op.ID, u)
	w, err := t.source(v, cl).Work(op.ID, id, n, v.Values(n.ID), act, s.Graph.ServiceName(int(u)))
	if err != nil {
		return nil, err
	}
	return &pb.Task{
		Id: id, Attempt: uint32(st.Attempt), Tenant: op.Tenant, Cluster: op.Cluster, Operation: op.ID, Node: n.ID,
		Action: act.String(), Service: s.Graph.ServiceName(int(u)), Plugin: w.Plugin, Automator: w.Automator,
		Observe: st.Note != nil && st.Note.Observe && act == s.Graph.Action[u], TimeoutMs: w.Timeout.Milliseconds(), Input: w.Input,
	}, nil
}

// resultMachine is the key under which a node's results name the machine that
// it lives on, where it lives on an agent's own.
const resultMachine = "machine"

// Needs tells what a task asks of an agent.
func (t *tasks) Needs(v *state.View, op *model.Operation, g *plan.Graph, u uint32) dispatch.Needs {
	cl, ok := v.Cluster(op.Tenant, op.Cluster)
	n, found := v.Node(op.Tenant, g.NodeID(int(u)))
	if !ok || !found {
		return dispatch.Needs{}
	}
	return needsOf(cl, n, g, u)
}

// needsOf is Needs for a cluster and a node at hand.
func needsOf(cl *model.Cluster, n *model.Node, g *plan.Graph, u uint32) dispatch.Needs {
	name, automator := operation.Plugin(cl, n, g.Action[u], g.ServiceName(int(u)))
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
