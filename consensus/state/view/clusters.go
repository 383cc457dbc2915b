package view

import (
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/go-memdb"

	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
)

// ClusterView reads clusters and nodes, with their health and their snapshots.
type ClusterView struct{ txn *memdb.Txn }

// Clusters returns a tenant's clusters, by id, or those of all tenants if tenant is "".
func (v ClusterView) Clusters(tenant string) []*model.Cluster {
	if tenant == "" {
		return table.List[model.Cluster](v.txn, table.Clusters, "id")
	}
	return table.List[model.Cluster](v.txn, table.Clusters, "id_prefix", tenant)
}

// ClustersFrom returns a tenant's clusters, by id, from an id on. There need be no cluster with it.
func (v ClusterView) ClustersFrom(tenant, id string) iter.Seq[*model.Cluster] {
	return func(yield func(*model.Cluster) bool) {
		it, err := v.txn.LowerBound(table.Clusters, "id", tenant, id)
		if err != nil {
			return // an error is a wrong table or index name, which tests reveal
		}
		for raw := it.Next(); raw != nil; raw = it.Next() {
			if cl := raw.(*model.Cluster); cl.Tenant != tenant || !yield(cl) {
				return
			}
		}
	}
}

// Cluster finds a cluster by id or by name. A name finds the living cluster with that name, or else
// the latest one.
func (v ClusterView) Cluster(tenant, idOrName string) (*model.Cluster, bool) {
	if c := table.Get[model.Cluster](v.txn, table.Clusters, "id", tenant, idOrName); c != nil {
		return c, true
	}
	var best *model.Cluster
	table.Each(v.txn, table.Clusters, "name", func(c *model.Cluster) bool {
		if best == nil || c.Status != model.ClusterTerminated || (best.Status == model.ClusterTerminated && c.CreatedAt > best.CreatedAt) {
			best = c
		}
		return true
	}, tenant, idOrName)
	return best, best != nil
}

// ClusterName returns the name of the cluster with an id, or "" if there is none.
func (v ClusterView) ClusterName(tenant, id string) string {
	if c := table.Get[model.Cluster](v.txn, table.Clusters, "id", tenant, id); c != nil {
		return c.Name
	}
	return ""
}

// ClusterByID returns the cluster with an id, in any tenant. Ids are unique in the mesh.
func (v ClusterView) ClusterByID(id string) (*model.Cluster, bool) {
	var found *model.Cluster
	table.Each(v.txn, table.Tenants, "id", func(t *model.Tenant) bool {
		found = table.Get[model.Cluster](v.txn, table.Clusters, "id", t.Name, id)
		return found == nil
	})
	return found, found != nil
}

// Nodes returns a cluster's nodes by number, or those of all the tenant's clusters if cluster is
// "". The outputs of a running operation's tasks are in the nodes already. The states and marks of
// services follow when the operation ends; see LiveNodes.
func (v ClusterView) Nodes(tenant, cluster string) []*model.Node {
	var out []*model.Node
	if cluster == "" {
		out = table.List[model.Node](v.txn, table.Nodes, "id_prefix", tenant)
	} else {
		out = table.List[model.Node](v.txn, table.Nodes, "cluster", tenant, cluster)
	}
	slices.SortFunc(out, func(a, b *model.Node) int {
		if c := strings.Compare(a.Cluster, b.Cluster); c != 0 {
			return c
		}
		return a.Number - b.Number
	})
	return out
}

// NodesOf returns the nodes of all clusters of a tenant, in no order.
func (v ClusterView) NodesOf(tenant string) iter.Seq[*model.Node] {
	return func(yield func(*model.Node) bool) { table.Each(v.txn, table.Nodes, "id_prefix", yield, tenant) }
}

// Node finds a node by id.
func (v ClusterView) Node(tenant, id string) (*model.Node, bool) {
	n := table.Get[model.Node](v.txn, table.Nodes, "id", tenant, id)
	return n, n != nil
}

// Values returns the values that plugins stored about a node.
func (v ClusterView) Values(node string) map[string]json.RawMessage {
	var out map[string]json.RawMessage
	table.Each(v.txn, table.Values, "id_prefix", func(r *table.ValueRow) bool {
		if out == nil {
			out = map[string]json.RawMessage{}
		}
		out[r.Key] = r.Value
		return true
	}, node)
	return out
}

// Health returns the known health of a node, or nil.
func (v ClusterView) Health(tenant, node string) *model.NodeHealth {
	return table.Get[model.NodeHealth](v.txn, table.Health, "id", tenant, node)
}

// ClusterHealth returns the known health of a cluster's nodes, by node.
func (v ClusterView) ClusterHealth(tenant, cluster string) map[string]*model.NodeHealth {
	out := map[string]*model.NodeHealth{}
	table.Each(v.txn, table.Health, "cluster", func(h *model.NodeHealth) bool { out[h.Node] = h; return true }, tenant, cluster)
	return out
}

// History returns a cluster's snapshots, oldest first.
func (v ClusterView) History(tenant, cluster string) []*model.Snapshot {
	return table.List[model.Snapshot](v.txn, table.History, "id_prefix", tenant, cluster)
}

// Snapshot finds a snapshot of a cluster by its number.
func (v ClusterView) Snapshot(tenant, cluster string, number int) (*model.Snapshot, bool) {
	s := table.Get[model.Snapshot](v.txn, table.History, "id", tenant, cluster, uint32(number))
	return s, s != nil
}

// Live returns a node whose marks show the present state of its services. The row of a node shows
// it only after the operation under way has ended.
func (v ClusterView) Live(cl *model.Cluster, n *model.Node) *model.Node { return v.live(cl)(n) }

// LiveNodes returns the nodes of a cluster as Live does.
func (v ClusterView) LiveNodes(cl *model.Cluster) []*model.Node {
	nodes := v.Nodes(cl.Tenant, cl.ID)
	if !cl.Varies() {
		return nodes
	}
	live := v.live(cl)
	for i, n := range nodes {
		nodes[i] = live(n)
	}
	return nodes
}

// PresentNodes returns the nodes of a cluster as LiveNodes does, also with the states that services have reached in the operation under
// way.
func (v ClusterView) PresentNodes(cl *model.Cluster) []*model.Node {
	nodes := v.LiveNodes(cl)
	op, ok := OperationView(v).Operation(cl.Tenant, cl.Operation)
	if !ok || op.Status.Ended() {
		return nodes
	}
	if s, ok := OperationView(v).Plan(op.ID); ok {
		for i, n := range nodes {
			nodes[i] = reached(s, n)
		}
	}
	return nodes
}

// reached returns a node with the states that a plan's tasks leave its services in.
func reached(s *plan.State, have *model.Node) *model.Node {
	n := *have
	if n.States = maps.Clone(have.States); n.States == nil {
		n.States = map[string]string{}
	}
	for _, v := range s.Graph.On(have.ID) {
		done := s.Status(v) == model.TaskSucceeded
		if have.Shows(s.Fence(v), s.Task(v).EndedAt) {
			continue
		}
		switch action := s.Graph.Action[v]; action {
		case model.Bootstrap, model.Check, model.Run:
		case model.Create:
			n.Created = n.Created || done
		default:
			if s.Graph.Service[v] != plan.None && (done || s.Task(v).Attempt > 0) {
				Reach(&n, action, s.Graph.ServiceName(int(v)), done)
			}
		}
	}
	return &n
}

// Reach records in a node's States that a task of a service was done or, with done false, attempted.
func Reach(n *model.Node, action model.Action, service string, done bool) {
	state := action.String()
	if !done {
		state += "?"
	}
	if action == model.Configure {
		switch was := n.States[service]; {
		case was == model.Start.String(), was == model.Stop.String() && done:
			state = was // it still runs, or is ready to: planning needs this
		}
	}
	n.States[service] = state
}

func (v ClusterView) live(cl *model.Cluster) func(*model.Node) *model.Node {
	same := func(n *model.Node) *model.Node { return n }
	if !cl.Varies() || cl.Operation != cl.Mover {
		return same
	}
	op, ok := OperationView(v).Operation(cl.Tenant, cl.Operation)
	if !ok || op.Status.Ended() {
		return same
	}
	s, ok := OperationView(v).Plan(op.ID)
	if !ok {
		return same
	}
	return func(n *model.Node) *model.Node { return touched(cl, op, s, n) }
}

// touched returns a node with the marks that a plan's tasks leave on its services, including tasks
// that have only begun.
func touched(cl *model.Cluster, op *model.Operation, s *plan.State, have *model.Node) *model.Node {
	n := have
	for _, v := range s.Graph.On(have.ID) {
		t := s.Task(v)
		if s.Graph.Service[v] == plan.None || t.Attempt == 0 && t.Status != model.TaskSucceeded || s.Inherited(v) ||
			have.Shows(t.Fence, t.EndedAt) {
			continue
		}
		if n == have {
			c := *have
			if c.Marks = maps.Clone(have.Marks); c.Marks == nil {
				c.Marks = map[string]model.Mark{}
			}
			n = &c
		}
		n.Touch(cl, op, s.Graph.Action[v], s.Graph.ServiceName(int(v)), t.Status == model.TaskSucceeded)
	}
	return n
}
