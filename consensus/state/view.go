package state

import (
	"encoding/json"
	"math"
	"slices"
	"strings"

	"github.com/hashicorp/go-memdb"

	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	pb "github.com/coopr/coopr/rpc/proto"
)

// View is the state at one moment. Its rows are shared: callers must not change them.
type View struct {
	txn   *memdb.Txn
	index uint64
}

// View returns the current state.
func (m *Machine) View() *View {
	// The index is read first: a view may be newer than its index, never older.
	index, _ := m.events.wait()
	return &View{txn: m.db.Load().Txn(false), index: index}
}

// Index returns the index of the last entry that the view is sure to hold.
func (v *View) Index() uint64 { return v.index }

// FeatureLevel returns the feature level of the mesh.
func (v *View) FeatureLevel() uint32 { return table.Mesh(v.txn).FeatureLevel }

// Mesh returns the mesh's own name. Machines that providers make carry it, because
// ids of clusters and nodes are unique within one mesh only.
func (v *View) Mesh() string { return table.Mesh(v.txn).Mesh }

func values[T any](in []*T) []T {
	out := make([]T, len(in))
	for i, p := range in {
		out[i] = *p
	}
	return out
}

// Tenants returns all tenants, by name.
func (v *View) Tenants() []model.Tenant {
	return values(table.List[model.Tenant](v.txn, table.Tenants, "id"))
}

// Tenant finds a tenant by name.
func (v *View) Tenant(name string) (model.Tenant, bool) {
	return table.Found[model.Tenant](v.txn, table.Tenants, name)
}

// Tokens returns a tenant's tokens, or all tokens if tenant is "".
func (v *View) Tokens(tenant string) []model.Token {
	var out []model.Token
	table.Each(v.txn, table.Tokens, "id", func(t *table.TokenRow) bool {
		if tenant == "" || t.Tenant == tenant {
			out = append(out, t.Token)
		}
		return true
	})
	return out
}

// TokenByHash finds a token by its SHA-256 in hexadecimal.
func (v *View) TokenByHash(hash string) (model.Token, bool) {
	if t := table.Get[table.TokenRow](v.txn, table.Tokens, "hash", hash); t != nil {
		return t.Token, true
	}
	return model.Token{}, false
}

// Definitions returns the latest version of each definition of a kind, by name.
func (v *View) Definitions(tenant string, kind model.Kind) []model.StoredDefinition {
	var out []model.StoredDefinition
	table.Each(v.txn, table.Definitions, "id_prefix", func(r *table.DefinitionRow) bool {
		if n := len(out); n > 0 && out[n-1].Name == r.Name {
			out[n-1] = r.StoredDefinition
		} else {
			out = append(out, r.StoredDefinition)
		}
		return true
	}, tenant, string(kind))
	slices.SortFunc(out, func(a, b model.StoredDefinition) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Versions returns every version of one definition, oldest first.
func (v *View) Versions(tenant string, kind model.Kind, name string) []model.StoredDefinition {
	var out []model.StoredDefinition
	table.Each(v.txn, table.Definitions, "id_prefix", func(r *table.DefinitionRow) bool {
		out = append(out, r.StoredDefinition)
		return true
	}, tenant, string(kind), name)
	return out
}

// Definition returns one version of a definition; version 0 is the latest.
func (v *View) Definition(tenant string, kind model.Kind, name string, version int) (model.StoredDefinition, bool) {
	all := v.Versions(tenant, kind, name)
	for i := len(all) - 1; i >= 0; i-- {
		if version == 0 || all[i].Version == version {
			return all[i], true
		}
	}
	return model.StoredDefinition{}, false
}

// Clusters returns a tenant's clusters, by id, or those of all tenants if tenant is "".
func (v *View) Clusters(tenant string) []*model.Cluster {
	if tenant == "" {
		return table.List[model.Cluster](v.txn, table.Clusters, "id")
	}
	return table.List[model.Cluster](v.txn, table.Clusters, "id_prefix", tenant)
}

// Cluster finds a cluster by id or by name. A name finds the living cluster with that name, or else
// the latest one.
func (v *View) Cluster(tenant, idOrName string) (*model.Cluster, bool) {
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

// ClusterByID returns the cluster with an id, in any tenant. Ids are unique in the mesh.
func (v *View) ClusterByID(id string) (*model.Cluster, bool) {
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
func (v *View) Nodes(tenant, cluster string) []*model.Node {
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

// Node finds a node by id.
func (v *View) Node(tenant, id string) (*model.Node, bool) {
	n := table.Get[model.Node](v.txn, table.Nodes, "id", tenant, id)
	return n, n != nil
}

// Values returns the values that plugins stored about a node.
func (v *View) Values(node string) map[string]json.RawMessage {
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

// Operations returns the operations of a cluster, newest first. It returns those of a whole tenant
// if cluster is "", and all of them if tenant is "" too.
func (v *View) Operations(tenant, cluster string) []*model.Operation {
	var out []*model.Operation
	table.Each(v.txn, table.Operations, "id", func(o *model.Operation) bool {
		if (tenant == "" || o.Tenant == tenant) && (cluster == "" || o.Cluster == cluster) {
			out = append(out, o)
		}
		return true
	})
	slices.SortStableFunc(out, func(a, b *model.Operation) int {
		if a.CreatedAt != b.CreatedAt {
			return int(max(-1, min(1, b.CreatedAt-a.CreatedAt)))
		}
		return strings.Compare(b.ID, a.ID)
	})
	return out
}

// ActiveOperations returns the operations that have not ended.
func (v *View) ActiveOperations() []*model.Operation {
	return table.List[model.Operation](v.txn, table.Operations, "active", "active")
}

// Operation finds an operation by id; tenant "" matches any tenant.
func (v *View) Operation(tenant, id string) (*model.Operation, bool) {
	o := table.Get[model.Operation](v.txn, table.Operations, "id", id)
	if o == nil || (tenant != "" && o.Tenant != tenant) {
		return nil, false
	}
	return o, true
}

// Plan returns the state of an operation's plan.
func (v *View) Plan(operation string) (*plan.State, bool) {
	p := table.Get[table.PlanRow](v.txn, table.Plans, "id", operation)
	if p == nil {
		return nil, false
	}
	return p.State, true
}

// Progress counts an operation's tasks.
func (v *View) Progress(tenant, operation string) model.Progress {
	out := model.Progress{Counts: map[string]int{}}
	if _, ok := v.Operation(tenant, operation); !ok {
		return out
	}
	s, ok := v.Plan(operation)
	if !ok {
		return out
	}
	for st := range model.TaskStatuses {
		if n := s.Count(model.TaskStatus(st)); n > 0 {
			out.Counts[model.TaskStatus(st).String()] = n
			out.Total += n
		}
	}
	out.Done = s.Count(model.TaskSucceeded)
	return out
}

// Tasks returns an operation's tasks in order, and their total number. status limits both to one
// status unless it is empty. The list begins at offset and has at most limit tasks; limit 0 means
// all.
func (v *View) Tasks(tenant, operation, status string, offset, limit int) ([]model.Task, int) {
	op, ok := v.Operation(tenant, operation)
	if !ok {
		return nil, 0
	}
	s, ok := v.Plan(operation)
	if !ok {
		return nil, 0
	}
	hosts := map[string]string{}
	for _, n := range v.Nodes(op.Tenant, op.Cluster) {
		hosts[n.ID] = n.Hostname
	}
	var out []model.Task
	total := 0
	for u := range s.Graph.Len() {
		if s.Graph.Action[u] == model.Barrier || (status != "" && s.Status(uint32(u)).String() != status) {
			continue
		}
		total++
		if total > offset && (limit == 0 || len(out) < limit) {
			out = append(out, v.task(op, s, uint32(u), hosts))
		}
	}
	return out, total
}

// Task finds one task by its id.
func (v *View) Task(tenant, id string) (model.Task, bool) {
	opID, u, err := model.TaskID(id).Split()
	if err != nil {
		return model.Task{}, false
	}
	op, ok := v.Operation(tenant, string(opID))
	if !ok {
		return model.Task{}, false
	}
	s, ok := v.Plan(string(opID))
	if !ok || int(u) >= s.Graph.Len() || s.Graph.Action[u] == model.Barrier {
		return model.Task{}, false
	}
	hosts := map[string]string{}
	if n, ok := v.Node(op.Tenant, s.Graph.NodeID(int(u))); ok {
		hosts[n.ID] = n.Hostname
	}
	return v.task(op, s, u, hosts), true
}

func (v *View) task(op *model.Operation, s *plan.State, u uint32, hosts map[string]string) model.Task {
	t := s.Task(u)
	node := s.Graph.NodeID(int(u))
	out := model.Task{
		ID: string(model.OperationID(op.ID).Task(u)), Operation: op.ID, Cluster: op.Cluster, Node: node, Hostname: hosts[node],
		Service: s.Graph.ServiceName(int(u)), Action: s.Graph.Action[u], Status: t.Status, Attempt: t.Attempt,
		Fence: t.Fence, Agent: v.agentName(t.Holder.Agent), LeasedAt: t.LeasedAt, EndedAt: t.EndedAt,
	}
	if n := t.Note; n != nil {
		out.RetryAt, out.Adopted = n.RetryAt, n.Adopted
		for _, a := range n.History {
			out.Attempts = append(out.Attempts, model.TaskAttempt{Number: a.Number, Fence: a.Fence, Agent: v.agentName(a.Agent), Outcome: a.Outcome,
				Message: a.Message, Log: a.LogTail, Leased: a.Leased, Ended: a.Ended})
			out.Message = a.Message
		}
	}
	if t.Attempt > 0 && (t.Status.Held() || t.Status == model.TaskSucceeded) {
		out.Attempts = append(out.Attempts, model.TaskAttempt{Number: t.Attempt, Fence: t.Fence, Agent: out.Agent, Outcome: t.Status.String(),
			Leased: t.LeasedAt, Ended: t.EndedAt})
		if t.Status == model.TaskSucceeded {
			out.Message = ""
		}
	}
	return out
}

func (v *View) agentName(id string) string {
	if a := table.Get[model.Agent](v.txn, table.Agents, "id", id); a != nil {
		return a.Name
	}
	return id
}

// Agents returns the agent registry, by id.
func (v *View) Agents() []model.Agent {
	return values(table.List[model.Agent](v.txn, table.Agents, "id"))
}

// Agent finds an agent by id.
func (v *View) Agent(id string) (model.Agent, bool) {
	return table.Found[model.Agent](v.txn, table.Agents, id)
}

// Session returns the agent to which a session belongs.
func (v *View) Session(id string) (agent string, ok bool) {
	s := table.Get[table.SessionRow](v.txn, table.Sessions, "id", id)
	if s == nil {
		return "", false
	}
	return s.Agent, true
}

// Sessions returns the agents of all sessions, by session.
func (v *View) Sessions() map[string]string {
	out := map[string]string{}
	table.Each(v.txn, table.Sessions, "id", func(s *table.SessionRow) bool { out[s.ID] = s.Agent; return true })
	return out
}

// PluginTypes returns the plugin types that agents offer, by key.
func (v *View) PluginTypes() []model.PluginType {
	var out []model.PluginType
	table.Each(v.txn, table.PluginTypes, "id", func(r *table.PluginRow) bool { out = append(out, r.Type); return true })
	return out
}

// Parts returns the ids of large commands whose parts have not all arrived.
func (v *View) Parts() []string {
	var out []string
	table.Each(v.txn, table.Parts, "id", func(r *table.PartRow) bool {
		if len(out) == 0 || out[len(out)-1] != r.ID {
			out = append(out, r.ID)
		}
		return true
	})
	return out
}

// Request finds the object that a request with the caller's request id made.
func (v *View) Request(who model.Caller) (subject string, ok bool) {
	if who.Request == "" {
		return "", false
	}
	key := requestKey(&pb.Command{Tenant: who.Tenant, Actor: who.Actor, RequestId: who.Request})
	r := table.Get[table.RequestRow](v.txn, table.Requests, "id", key)
	if r == nil {
		return "", false
	}
	return r.Subject, true
}

// OldestRequest returns the time of the oldest remembered request id, or the largest number if
// there is none.
func (v *View) OldestRequest() int64 {
	oldest := int64(math.MaxInt64)
	table.Each(v.txn, table.Requests, "id", func(r *table.RequestRow) bool { oldest = min(oldest, r.Time); return true })
	return oldest
}

// Audit returns the audit log.
func (v *View) Audit() *audit.Trail { return table.Trail(v.txn) }
