package view

import (
	"iter"
	"slices"

	"github.com/hashicorp/go-memdb"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/internal/words"
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
	add := func(o *model.Operation) bool {
		if cluster == "" || o.Cluster == cluster {
			out = append(out, o)
		}
		return true
	}
	switch {
	case tenant == "":
		table.Each(v.txn, table.Operations, "id", add)
	case cluster == "":
		table.Each(v.txn, table.Operations, "cluster_prefix", add, tenant)
	default:
		table.Each(v.txn, table.Operations, "cluster", add, tenant, cluster)
	}
	slices.SortStableFunc(out, func(a, b *model.Operation) int {
		if a.CreatedAt != b.CreatedAt {
			return int(max(-1, min(1, b.CreatedAt-a.CreatedAt)))
		}
		return words.Natural(b.ID, a.ID)
	})
	return out
}

// OperationsOf returns the operations of all clusters of a tenant, in no order.
func (v OperationView) OperationsOf(tenant string) iter.Seq[*model.Operation] {
	return func(yield func(*model.Operation) bool) {
		table.Each(v.txn, table.Operations, "cluster_prefix", yield, tenant)
	}
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

// Tasks returns an operation's tasks in order.
func (v OperationView) Tasks(tenant, operation string) []model.Task {
	var out []model.Task
	indexes, task := v.TasksFrom(tenant, operation, "")
	for u := range indexes(0) {
		out = append(out, task(u))
	}
	return out
}

// TasksFrom returns the indexes of an operation's tasks in order, from one on, and the task with an index. status limits them to one
// status unless it is empty.
func (v OperationView) TasksFrom(tenant, operation, status string) (from func(uint32) iter.Seq[uint32], task func(uint32) model.Task) {
	none := func(uint32) iter.Seq[uint32] { return func(func(uint32) bool) {} }
	op, ok := v.Operation(tenant, operation)
	if !ok {
		return none, nil
	}
	s, ok := v.Plan(operation)
	if !ok {
		return none, nil
	}
	hosts := map[string]string{}
	for _, n := range ClusterView(v).Nodes(op.Tenant, op.Cluster) {
		hosts[n.ID] = n.Hostname
	}
	return func(index uint32) iter.Seq[uint32] {
		return func(yield func(uint32) bool) {
			for u := int(index); u < s.Graph.Len(); u++ {
				if s.Graph.Action[u] == model.Barrier || (status != "" && s.Status(uint32(u)).String() != status) {
					continue
				}
				if !yield(uint32(u)) {
					return
				}
			}
		}
	}, func(u uint32) model.Task { return v.task(op, s, u, hosts) }
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

// Leases reports whether tasks of an operation may be leased. While its plan is held back, these are the tasks of steps that have
// begun. An operation that was paused because of a failure, or by an order about the whole operation, leases none.
func (v OperationView) Leases(op *model.Operation, s *plan.State) bool {
	return op.Status == model.OpRunning || op.Status == model.OpPaused && understands(v.txn, logformat.OrdersLevel) &&
		s.Gates(plan.Whole())&plan.GateInterrupt != 0
}

// HeldBack reports whether a gate keeps a task of a plan from being leased. While older voters keep the feature level down, a gate of a
// phase or of the plan holds back steps that have begun, too.
func (v OperationView) HeldBack(s *plan.State, task uint32) bool {
	return s.HeldBack(task) || s.Halted(task) && !understands(v.txn, logformat.OrdersLevel)
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
			for _, w := range v.Holds(op, s) {
				out[s.Graph.Nodes[w.Node]] = op.ID
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

// everywhere returns all nodes of a plan.
func everywhere(s *plan.State) (out []Work) {
	for i := range s.Graph.Nodes {
		out = append(out, Work{int32(i), plan.NoStep})
	}
	return out
}

// Work is a node that an operation is at work on, and the step of its plan that is.
type Work struct {
	Node int32  // its index in the plan
	Step uint32 // plan.NoStep: no step in particular
}

// Holds returns what an operation keeps from the custom plans and from the recovery of its cluster. An operation holds a node from its
// first task there until all of its tasks there have ended, and one that recreates nodes from its start to its end. Only plans of the
// template, which have an order between nodes, so that two of them could wait for each other in a circle, hold a node one step at a time.
func (v OperationView) Holds(op *model.Operation, s *plan.State) []Work {
	switch op.Type {
	case model.OpRun:
		return nil // recovery continues while a program runs
	case model.OpPlan:
		return v.atWork(op, s)
	case model.OpRecreateNode:
		return everywhere(s)
	}
	var out []Work
	for _, n := range begun(s) {
		out = append(out, Work{n, plan.NoStep})
	}
	return out
}

// AtWork returns what an operation keeps from orders about single nodes: a node as long as a step there has begun, and goes on. A step
// that has failed, or whose operation has been paused, leaves its node to such orders.
func (v OperationView) AtWork(op *model.Operation, s *plan.State) []Work {
	if op.Type.Concurrent() || s.Graph.Step == nil || !understands(v.txn, logformat.OrdersLevel) {
		return v.Holds(op, s)
	}
	return v.atWork(op, s)
}

func (v OperationView) atWork(op *model.Operation, s *plan.State) []Work {
	const some, left, now, failed = 1, 2, 4, 8
	seen := make([]uint8, s.Graph.Steps())
	node := make([]int32, s.Graph.Steps())
	for u, step := range s.Graph.Step {
		if step == plan.NoStep || s.Graph.Node[u] < 0 {
			continue
		}
		node[step] = s.Graph.Machine(s.Graph.Node[u])
		switch status := s.Status(uint32(u)); {
		case status.Held():
			seen[step] |= now
		case status == model.TaskUncertain:
			seen[step] |= some | left
		case status == model.TaskFailed && !s.Task(uint32(u)).Tolerated:
			seen[step] |= some | failed
		case status.Ended():
			seen[step] |= some
		default:
			if seen[step] |= left; op.Type != model.OpPlan && s.Task(uint32(u)).LeasedAt > 0 {
				seen[step] |= some // it is tried again
			}
		}
	}
	goes := v.Leases(op, s)
	var out []Work
	for step, is := range seen {
		if is&now > 0 || goes && is == some|left {
			out = append(out, Work{node[step], uint32(step)})
		}
	}
	return out
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
