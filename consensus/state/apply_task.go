package state

import (
	"encoding/json"
	"maps"

	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	pb "github.com/coopr/coopr/rpc/proto"
)

// MaxAttempts is the number of times that a task is tried before its operation fails
// (docs/spec/planner.md, "Graph" 5).
const MaxAttempts = 3

// lease grants tasks to sessions; the entry's index is the fence.
func (a *applier) lease(l *pb.Lease) Answer {
	ans := Answer{Subject: l.Operation}
	op := table.Get[model.Operation](a.txn, table.Operations, "id", l.Operation)
	e := a.edit(l.Operation)
	if op == nil || e == nil || op.Status != model.OpRunning {
		ans.Refused = l.Tasks
		return ans
	}
	holders := make([]plan.Holder, len(l.Sessions))
	for i, id := range l.Sessions {
		if s := table.Get[table.SessionRow](a.txn, table.Sessions, "id", id); s != nil {
			holders[i] = plan.Holder{Session: s.ID, Agent: s.Agent}
		}
	}
	taken := a.taken(op)
	granted := make([]uint32, 0, len(l.Tasks))
	for i, v := range l.Tasks {
		if i >= len(l.SessionOf) || int(l.SessionOf[i]) >= len(holders) || holders[l.SessionOf[i]].Session == "" {
			ans.Refused = append(ans.Refused, v)
			continue
		}
		if taken != nil && taken[e.State().Graph.NodeID(int(v))] {
			ans.Refused = append(ans.Refused, v) // another operation has begun on the node
			continue
		}
		if err := e.Lease(v, a.index, holders[l.SessionOf[i]], a.now); err != nil {
			ans.Refused = append(ans.Refused, v)
			continue
		}
		granted = append(granted, v)
	}
	a.taskEvents(op, e, granted, model.TaskLeased)
	return ans
}

// report records the results of leased tasks. It refuses a task whose fence is not the valid one,
// and changes nothing of it.
func (a *applier) report(r *pb.Report) Answer {
	ans := Answer{Subject: r.Operation}
	op := table.Get[model.Operation](a.txn, table.Operations, "id", r.Operation)
	e := a.edit(r.Operation)
	if op == nil || e == nil || len(r.Tasks) != len(r.Fences) {
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
		if e.State().Status(v) == model.TaskSucceeded {
			done = append(done, v)
		} else {
			a.taskEvent(op, e, v)
		}
	}
	a.taskEvents(op, e, done, model.TaskSucceeded)
	a.settle(op, e)
	ans.Ready = e.Ready()[from:]
	return ans
}

func (a *applier) end(op *model.Operation, e *plan.Edit, v uint32, fence uint64, r *pb.Report, out *pb.Outputs) error {
	switch {
	case r.Started:
		return e.Start(v, fence)
	case r.Returned:
		return a.giveBack(op, e, v, fence)
	case e.State().Graph.Action[v] == model.Run:
		return a.endStep(op, e, v, fence, out)
	case out == nil || out.Outcome == pb.Outcome_OUTCOME_SUCCEEDED || out.Outcome == pb.Outcome_OUTCOME_UNSPECIFIED:
		return a.succeed(op, e, v, fence, out)
	}
	return a.fail(op, e, v, fence, out)
}

func (a *applier) giveBack(op *model.Operation, e *plan.Edit, v uint32, fence uint64) error {
	if table.Get[model.Operation](a.txn, table.Operations, "id", op.ID).Status == model.OpAborting {
		if e.State().Fence(v) != fence || !e.State().Status(v).Held() {
			return plan.ErrStaleFence
		}
		e.Cancel(v, plan.End{Outcome: "returned"}, a.now)
		return nil
	}
	return e.Lose(v, fence, false, plan.End{Outcome: "returned"}, a.now)
}

func (a *applier) succeed(op *model.Operation, e *plan.Edit, v uint32, fence uint64, out *pb.Outputs) error {
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
	return nil
}

// output writes the values that a plugin returned to the task's node.
func (a *applier) output(op *model.Operation, g *plan.Graph, v uint32, body []byte) {
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
func (a *applier) fail(op *model.Operation, e *plan.Edit, v uint32, fence uint64, out *pb.Outputs) error {
	s := e.State()
	if int(v) >= s.Graph.Len() || !s.Status(v).Held() || s.Fence(v) != fence {
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
		if done, err := a.tolerate(op, e, v, fence, unseen, end); done || err != nil {
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

// taskEvent adds an event about the present status of one task.
func (a *applier) taskEvent(op *model.Operation, e *plan.Edit, v uint32) {
	s := e.State()
	ev := model.Event{Index: a.index, Time: a.now}
	describe(&ev, op, s.Graph, v, s.Status(v).String())
	if n := e.Note(v); n != nil && len(n.History) > 0 {
		last := n.History[len(n.History)-1]
		ev.Message = last.Outcome + ": " + last.Message
	}
	a.groups = append(a.groups, group{event: ev})
}

// taskEvents adds one group for many tasks that reached the same status. The group becomes an
// event for each task only when a reader needs them.
func (a *applier) taskEvents(op *model.Operation, e *plan.Edit, tasks []uint32, status model.TaskStatus) {
	if len(tasks) == 0 {
		return
	}
	a.groups = append(a.groups, group{
		event: model.Event{Index: a.index, Time: a.now, Tenant: op.Tenant, Status: status.String()},
		op:    op, graph: e.State().Graph, tasks: tasks,
	})
}
