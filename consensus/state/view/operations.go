package view

import (
	"slices"
	"strings"

	"github.com/hashicorp/go-memdb"

	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/plan"
)

// OperationView reads operations and their tasks.
type OperationView struct{ txn *memdb.Txn }

// Queued is an operation that waits for its turn, with its request.
type Queued struct {
	Operation *model.Operation
	Request   *operation.Request
}

// Operations returns the operations of a cluster, newest first. It returns those of a whole tenant
// if cluster is "", and all of them if tenant is "" too.
func (v OperationView) Operations(tenant, cluster string) []*model.Operation {
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
func (v OperationView) ActiveOperations() []*model.Operation {
	return table.List[model.Operation](v.txn, table.Operations, "active", "active")
}

// Operation finds an operation by id; tenant "" matches any tenant.
func (v OperationView) Operation(tenant, id string) (*model.Operation, bool) {
	o := table.Get[model.Operation](v.txn, table.Operations, "id", id)
	if o == nil || (tenant != "" && o.Tenant != tenant) {
		return nil, false
	}
	return o, true
}

// Plan returns the state of an operation's plan.
func (v OperationView) Plan(operation string) (*plan.State, bool) {
	p := table.Get[table.PlanRow](v.txn, table.Plans, "id", operation)
	if p == nil {
		return nil, false
	}
	return p.State, true
}

// Progress counts an operation's tasks.
func (v OperationView) Progress(tenant, operation string) model.Progress {
	out := model.Progress{Counts: map[string]int{}}
	if _, ok := v.Operation(tenant, operation); !ok {
		return out
	}
	s, ok := v.Plan(operation)
	if !ok {
		return out
	}
	return s.Progress()
}

// Tasks returns an operation's tasks in order, and their total number. status limits both to one
// status unless it is empty. The list begins at offset and has at most limit tasks; limit 0 means
// all.
func (v OperationView) Tasks(tenant, operation, status string, offset, limit int) ([]model.Task, int) {
	op, ok := v.Operation(tenant, operation)
	if !ok {
		return nil, 0
	}
	s, ok := v.Plan(operation)
	if !ok {
		return nil, 0
	}
	hosts := map[string]string{}
	for _, n := range ClusterView(v).Nodes(op.Tenant, op.Cluster) {
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
func (v OperationView) Task(tenant, id string) (model.Task, bool) {
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
	if n, ok := ClusterView(v).Node(op.Tenant, s.Graph.NodeID(int(u))); ok {
		hosts[n.ID] = n.Hostname
	}
	return v.task(op, s, u, hosts), true
}

func (v OperationView) task(op *model.Operation, s *plan.State, u uint32, hosts map[string]string) model.Task {
	t := s.Task(u)
	node := s.Graph.NodeID(int(u))
	out := model.Task{
		ID: string(model.OperationID(op.ID).Task(u)), Operation: op.ID, Cluster: op.Cluster, Node: node, Hostname: hosts[node],
		Service: s.Graph.ServiceName(int(u)), Action: s.Graph.Action[u], Status: t.Status, Attempt: t.Attempt,
		Fence: t.Fence, Agent: AgentView(v).name(t.Holder.Agent), LeasedAt: t.LeasedAt, EndedAt: t.EndedAt,
	}
	_, out.Own = model.SplitAction(s.Graph.Entry(int(u)))
	if n := t.Note; n != nil {
		out.RetryAt, out.Adopted = n.RetryAt, n.Adopted
		for _, a := range n.History {
			out.Attempts = append(out.Attempts, model.TaskAttempt{Number: a.Number, Fence: a.Fence, Agent: AgentView(v).name(a.Agent),
				Outcome: a.Outcome, Message: a.Message, Log: a.LogTail, Leased: a.Leased, Ended: a.Ended})
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

// Busy returns the nodes of a cluster that operations hold, by id, each with the id of its
// operation.
func (v OperationView) Busy(tenant, cluster string) map[string]string {
	out := map[string]string{}
	for _, op := range v.ActiveOperations() {
		if op.Tenant != tenant || op.Cluster != cluster {
			continue
		}
		if s, ok := v.Plan(op.ID); ok {
			for _, n := range Holds(op, s) {
				out[s.Graph.Nodes[n]] = op.ID
			}
		}
	}
	return out
}

// begun returns the indexes of the nodes on which a plan has begun its work and not finished it. It
// examines every task.
func begun(s *plan.State) []int32 {
	const some, left = 1, 2
	seen := make([]uint8, len(s.Graph.Nodes))
	for v, n := range s.Graph.Node {
		if n < 0 {
			continue
		}
		n = s.Graph.Machine(n)
		t := s.Task(uint32(v))
		if t.Attempt > 0 {
			seen[n] |= some
		}
		if !t.Status.Ended() {
			seen[n] |= left
		}
	}
	var out []int32
	for n, is := range seen {
		if is == some|left {
			out = append(out, int32(n))
		}
	}
	return out
}

// Holds returns the indexes of the nodes that an operation keeps from the other operations of its
// cluster: those on which it has begun its work and not finished it. A plan of the template may
// have an order between nodes, so that two such plans could wait for each other in a circle. Such a
// plan holds a node one step at a time. While it is not running, it holds only the nodes of steps
// with a leased task.
func Holds(op *model.Operation, s *plan.State) []int32 {
	if op.Type == model.OpRun {
		return nil // recovery continues while a program runs
	}
	if op.Type != model.OpPlan {
		return begun(s)
	}
	const some, left, now = 1, 2, 4
	seen := make([]uint8, s.Graph.Steps())
	node := make([]int32, s.Graph.Steps())
	for v, step := range s.Graph.Step {
		if step == plan.NoStep || s.Graph.Node[v] < 0 {
			continue
		}
		node[step] = s.Graph.Node[v]
		switch status := s.Status(uint32(v)); {
		case status.Held():
			seen[step] |= now
		case status == model.TaskUncertain:
			seen[step] |= some | left
		case status.Ended():
			seen[step] |= some
		default:
			seen[step] |= left
		}
	}
	var out []int32
	for step, is := range seen {
		if is&now > 0 || op.Status == model.OpRunning && is == some|left {
			out = append(out, node[step])
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Queued returns the operations that wait for their turn on a cluster, in order.
func (v OperationView) Queued(tenant, cluster string) []Queued {
	var out []Queued
	for _, op := range v.ActiveOperations() {
		if op.Tenant == tenant && op.Cluster == cluster && op.Status == model.OpAccepted {
			if row := table.Get[table.QueueRow](v.txn, table.Queue, "id", op.ID); row != nil {
				out = append(out, Queued{op, row.Request})
			}
		}
	}
	return out
}
