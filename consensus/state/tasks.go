package state

import (
	"encoding/json"
	"maps"

	"google.golang.org/protobuf/proto"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/lease"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

// tasks grants leases of tasks and records their results.
type tasks struct{ *writer }

// MaxAttempts is the number of times that a task is tried before its operation fails
// (docs/spec/planner.md, "Graph" 5).
const MaxAttempts = 3

// lease grants tasks to sessions; the entry's index is the fence.
func (a tasks) lease(l *pb.Lease) Answer {
	ans := Answer{Subject: l.Operation}
	op := table.Get[model.Operation](a.txn, table.Operations, "id", l.Operation)
	e := a.edit(l.Operation)
	if op == nil || e == nil || !a.view().Leases(op, e.State()) {
		ans.Refused = l.Tasks
		return ans
	}
	holders := make([]plan.Holder, len(l.Sessions))
	for i, id := range l.Sessions {
		if s := table.Get[table.SessionRow](a.txn, table.Sessions, "id", id); s != nil {
			holders[i] = plan.Holder{Session: s.ID, Agent: s.Agent}
		}
	}
	taken := a.operations().taken(op)
	// Not the plans of the view: see writer.view.
	awaited := a.view().AwaitedBy(op, func(id string) (*plan.State, bool) { s := a.plan(id); return s, s != nil })
	granted := make([]uint32, 0, len(l.Tasks))
	for i, v := range l.Tasks {
		open := i < len(l.SessionOf) && int(l.SessionOf[i]) < len(holders) && holders[l.SessionOf[i]].Session != ""
		if held := int(v) < e.State().Graph.Len() && e.State().Status(v).Held(); !lease.Grants(open, held) {
			ans.Refused = append(ans.Refused, v)
			continue
		}
		if int(v) < e.State().Graph.Len() && a.view().HeldBack(e.State(), v) {
			ans.Refused = append(ans.Refused, v)
			continue
		}
		if taken != nil && taken[e.State().Graph.NodeID(int(v))] {
			ans.Refused = append(ans.Refused, v) // another operation has begun on the node
			continue
		}
		if g := e.State().Graph; int(v) < g.Len() && g.Action[v] == model.Configure && awaited[g.ServiceName(int(v))] != "" {
			ans.Refused = append(ans.Refused, v) // until the new addresses are known
			continue
		}
		if err := e.Lease(v, a.index, holders[l.SessionOf[i]], a.now); err != nil {
			ans.Refused = append(ans.Refused, v)
			continue
		}
		granted = append(granted, v)
	}
	a.batch.Leases = append(a.batch.Leases, Leases{Operation: l.Operation, Vertices: granted, Fence: a.index})
	a.taskEvents(op, e, granted, model.TaskLeased)
	return ans
}

// report records the results of leased tasks. It refuses a task whose fence is not the valid one,
// and changes nothing of it.
func (a tasks) report(r *pb.Report) Answer {
	ans := Answer{Subject: r.Operation}
	if len(r.Tasks) != len(r.Fences) {
		ans.Refused = r.Tasks
		return ans
	}
	if !r.Started {
		a.batch.Ended = append(a.batch.Ended, Attempts{Operation: r.Operation, Vertices: r.Tasks, Fences: r.Fences})
	}
	op := table.Get[model.Operation](a.txn, table.Operations, "id", r.Operation)
	e := a.edit(r.Operation)
	if op == nil || e == nil {
		ans.Refused = r.Tasks
		return ans
	}
	outputs := r.Outputs
	from := len(e.Ready())
	done := make([]uint32, 0, len(r.Tasks))
	for i, v := range r.Tasks {
		var out *pb.Outputs
		if len(outputs) > 0 && int(outputs[0].At) == i {
			out, outputs = outputs[0], outputs[1:]
		}
		if err := a.end(op, e, v, r.Fences[i], r, out); err != nil {
			ans.Refused = append(ans.Refused, v)
			continue
		}
		a.batch.Tally.task(e.State().Graph.Action[v], r, out)
		if e.State().Status(v) == model.TaskSucceeded {
			done = append(done, v)
		} else {
			a.taskEvent(op, e, v)
		}
	}
	a.taskEvents(op, e, done, model.TaskSucceeded)
	a.endings().finish(op, e)
	ans.Ready = e.Ready()[from:]
	return ans
}

func (a tasks) end(op *model.Operation, e *plan.Edit, v uint32, fence uint64, r *pb.Report, out *pb.Outputs) error {
	switch {
	case r.Started:
		return e.Start(v, fence)
	case r.Returned:
		return a.giveBack(op, e, v, fence)
	case e.State().Graph.Action[v] == model.Run && op.Type == model.OpRun:
		return a.endStep(op, e, v, fence, out)
	case out == nil || out.Outcome == pb.Outcome_OUTCOME_SUCCEEDED || out.Outcome == pb.Outcome_OUTCOME_UNSPECIFIED:
		return a.succeed(op, e, v, fence, out)
	}
	return a.fail(op, e, v, fence, out)
}

func (a tasks) giveBack(op *model.Operation, e *plan.Edit, v uint32, fence uint64) error {
	if table.Get[model.Operation](a.txn, table.Operations, "id", op.ID).Status == model.OpAborting {
		if !e.State().Valid(v, fence) {
			return plan.ErrStaleFence
		}
		e.Cancel(v, plan.End{Outcome: "returned"}, a.now)
		return nil
	}
	return e.Lose(v, fence, false, plan.End{Outcome: "returned"}, a.now)
}

func (a tasks) succeed(op *model.Operation, e *plan.Edit, v uint32, fence uint64, out *pb.Outputs) error {
	end := plan.End{}
	undone := false
	if n := e.Note(v); n != nil {
		undone = n.Undo
	}
	if out != nil {
		end.Adopted = out.Adopted
	}
	if err := e.Succeed(v, fence, end, a.now); err != nil {
		return err
	}
	if table.Get[model.Operation](a.txn, table.Operations, "id", op.ID).Status == model.OpAborting {
		e.CancelWaiting(a.now) // the tasks that this made ready must not run
	}
	if out != nil && len(out.Output) > 0 && !undone {
		a.output(op, e.State().Graph, v, out.Output)
	}
	if g := e.State().Graph; g.Action[v] == model.Start && e.State().Status(v) == model.TaskSucceeded {
		a.startedService(op, g.NodeID(int(v)), g.ServiceName(int(v)), fence)
	}
	return nil
}

// output writes the values that a plugin returned to the task's node.
func (a tasks) output(op *model.Operation, g *plan.Graph, v uint32, body []byte) {
	have := table.Get[model.Node](a.txn, table.Nodes, "id", op.Tenant, g.NodeID(int(v)))
	var o model.TaskOutput
	if have == nil || json.Unmarshal(body, &o) != nil {
		return // a worker checks outputs before it reports them
	}
	n := *have
	n.Version = a.index
	if o.Hostname != "" {
		n.Hostname = o.Hostname
	}
	n.IPAddresses = maps.Clone(n.IPAddresses)
	n.Results = maps.Clone(n.Results)
	if n.IPAddresses == nil && len(o.IPAddresses) > 0 {
		n.IPAddresses = map[string]string{}
	}
	if n.Results == nil && len(o.Result) > 0 {
		n.Results = map[string]any{}
	}
	maps.Copy(n.IPAddresses, o.IPAddresses)
	maps.Copy(n.Results, o.Result)
	if g.Action[v] == model.Create {
		n.Created = true
	}
	if g.Action[v].Hardware() {
		n.Found(o.Result)
	}
	a.put(table.Nodes, &n)
	a.event(model.Event{Type: "node.changed", Tenant: n.Tenant, Cluster: n.Cluster, Operation: op.ID, Subject: n.ID})
}

// fail records a failed attempt. The task is tried again if it has attempts left, and ends
// otherwise.
func (a tasks) fail(op *model.Operation, e *plan.Edit, v uint32, fence uint64, out *pb.Outputs) error {
	s := e.State()
	if !s.Valid(v, fence) {
		return plan.ErrStaleFence
	}
	end := plan.End{Outcome: outcomeName(out.Outcome), Message: out.Message, LogTail: out.LogTail}
	op = table.Get[model.Operation](a.txn, table.Operations, "id", op.ID)
	if op.Status == model.OpAborting {
		e.Cancel(v, end, a.now)
		return nil
	}
	action := s.Graph.Action[v]
	unseen := out.Outcome == pb.Outcome_OUTCOME_UNKNOWN && observed(action)
	if out.Outcome == pb.Outcome_OUTCOME_CANCELLED {
		// No operator wanted the task to end: its agent lost its connection, was stopped or was
		// killed. The task is not at fault, and its progress is unknown.
		a.takeBack(op, e, v, plan.End{Outcome: "cancelled", Message: out.Message, LogTail: out.LogTail})
		return nil
	}
	failures := 1
	if n := e.Note(v); n != nil {
		failures += n.Failures
	}
	if out.Outcome == pb.Outcome_OUTCOME_FATAL || failures >= MaxAttempts {
		if done, err := a.plans().tolerate(op, e, v, fence, unseen, end); done || err != nil {
			return err
		}
		if err := e.Fail(v, fence, unseen, end, a.now); err != nil {
			return err
		}
		a.failed(op, e, v, out.Message)
		return nil
	}
	if action == model.Confirm && out.Outcome != pb.Outcome_OUTCOME_UNKNOWN {
		if create, ok := s.Graph.Before(v, model.Create); ok {
			return e.Recreate(v, create, fence, end, out.RetryAtMs, a.now)
		}
	}
	return e.Retry(v, fence, unseen, end, out.RetryAtMs, a.now)
}

func outcomeName(o pb.Outcome) string {
	switch o {
	case pb.Outcome_OUTCOME_FATAL:
		return "fatal"
	case pb.Outcome_OUTCOME_NOTHING_DONE:
		return "nothing done"
	case pb.Outcome_OUTCOME_CANCELLED:
		return "cancelled"
	case pb.Outcome_OUTCOME_UNKNOWN:
		return "unknown"
	default:
	}
	return "failed"
}

func (a tasks) saveValue(s *pb.SaveValue) Answer {
	e := a.edit(s.Operation)
	if e == nil || int(s.Task) >= e.State().Graph.Len() {
		return refuse(problem.NotFound, "there is no task %s/%d", s.Operation, s.Task)
	}
	if !e.State().Valid(s.Task, s.Fence) {
		return refuse(problem.Stale, "task %s/%d: the lease is not valid any more", s.Operation, s.Task)
	}
	if e.State().Graph.OnAgent(int(s.Task)) {
		return refuse(problem.Invalid, "task %s/%d is on no node, so it keeps no values", s.Operation, s.Task)
	}
	a.put(table.Values, &table.ValueRow{Node: e.State().Graph.NodeID(int(s.Task)), Key: s.Key, Value: s.Value})
	return Answer{}
}

// failed decides how an operation continues after a task failed its last attempt
// (docs/spec/planner.md, "Transactions" 7).
func (a tasks) failed(have *model.Operation, e *plan.Edit, v uint32, message string) {
	have = table.Get[model.Operation](a.txn, table.Operations, "id", have.ID)
	if have.Status != model.OpRunning && have.Status != model.OpPaused {
		return
	}
	op := *have
	op.Version = a.index
	op.Message = e.State().Graph.Name(int(v)) + " failed: " + message
	held := have.Status == model.OpPaused || e.State().Halted(v)
	switch {
	case held && a.view().Understands(logformat.OrdersLevel): // an operator decides what happens
	case op.OnFailure == "pause":
		op.Status = model.OpPaused
	default:
		op.Status = model.OpAborting
		op.Undo = op.OnFailure == "rollback" && op.Before > 0 && !op.Done
		a.cancelWork(&op, e)
	}
	a.put(table.Operations, &op)
	a.operationEvent(&op)
	a.touch(op.ID)
}

// endStep ends a step of a program on a node. A failed step is not tried again automatically,
// because its effects would happen twice.
func (a tasks) endStep(op *model.Operation, e *plan.Edit, v uint32, fence uint64, out *pb.Outputs) error {
	ok := out == nil || out.Outcome == pb.Outcome_OUTCOME_SUCCEEDED || out.Outcome == pb.Outcome_OUTCOME_UNSPECIFIED
	var err error
	switch {
	case ok:
		err = a.succeed(op, e, v, fence, nil)
	case out.Outcome == pb.Outcome_OUTCOME_RETRYABLE:
		final := proto.CloneOf(out)
		final.Outcome = pb.Outcome_OUTCOME_FATAL
		err = a.fail(op, e, v, fence, final)
	default:
		err = a.fail(op, e, v, fence, out)
	}
	if err == nil && out != nil && len(out.Output) > 0 {
		g := e.State().Graph
		a.runs().exited(op, g.ServiceName(int(v)), g.NodeID(int(v)), out.Output, ok)
	}
	return err
}

// cancelWork cancels the waiting tasks of an operation, and for a program also the running ones.
func (a tasks) cancelWork(op *model.Operation, e *plan.Edit) {
	e.CancelWaiting(a.now)
	if op.Type != model.OpRun {
		return
	}
	for v := range e.State().Graph.Len() {
		e.Cancel(uint32(v), plan.End{Outcome: "cancelled", Message: op.Message}, a.now)
	}
}

// lose takes one lease away from an agent.
func (a tasks) lose(op *model.Operation, e *plan.Edit, v uint32, reason string) {
	a.takeBack(op, e, v, plan.End{Outcome: "lost", Message: reason})
	a.taskEvent(op, e, v)
}

// takeBack ends an attempt whose result is unknown through no fault of the task. The status of the
// operation and the number of lost attempts decide whether the task runs again.
func (a tasks) takeBack(op *model.Operation, e *plan.Edit, v uint32, end plan.End) {
	// Read the operation again: the batch may have changed it.
	op = table.Get[model.Operation](a.txn, table.Operations, "id", op.ID)
	fence := e.State().Fence(v)
	unseen := observed(e.State().Graph.Action[v])
	if op.Status == model.OpAborting {
		e.Cancel(v, end, a.now)
	} else if n := e.Note(v); n != nil && n.Lost >= maxLost {
		end.Message = "lost with its agent too often: " + end.Message
		_ = e.Fail(v, fence, unseen, end, a.now)
		a.failed(op, e, v, end.Message)
	} else {
		_ = e.Lose(v, fence, unseen, end, a.now)
	}
}

// observed reports whether the effect of an action must be observed before the action runs again,
// because it is not idempotent. Providers and automators promise that the other actions are
// idempotent.
func observed(a model.Action) bool {
	switch a {
	case model.Confirm, model.Delete, model.Bootstrap, model.Configure, model.Check:
		return false
	default:
	}
	return true
}

// maxLost bounds how often a task may be lost with its agent. Without it, a task that kills its
// agents would never end.
const maxLost = 8
