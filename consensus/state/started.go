package state

import (
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
)

// startedService records that a task of an operation has started a service, so that nothing starts it a second time: it is not paused any
// more, and restarts and resumes of it that have only to start it are done with it. These take over the fence of the attempt: the entry
// with its success may lease the next task of the node, which is the later one.
func (a tasks) startedService(op *model.Operation, node, service string, fence uint64) {
	have := table.Get[model.NodeHealth](a.txn, table.Health, "id", op.Tenant, node)
	if have == nil || !a.view().Understands(logformat.OrdersLevel) {
		return
	}
	n := table.Get[model.Node](a.txn, table.Nodes, "id", op.Tenant, node)
	if have.Paused[service] == model.Paused && n != nil {
		h := a.health().healthOf(n)
		delete(h.Paused, service)
		a.health().putHealth(h, "operation "+op.ID+" has started "+service)
	}
	if have.Operation == "" {
		return // no restart or resume was ever about the node
	}
	for _, other := range a.operations().others(op) {
		if other.Type != model.OpRecover && other.Type != model.OpResumeNode {
			continue
		}
		e := a.edit(other.ID)
		if e == nil {
			continue
		}
		if v, waits := onlyStarts(e.State(), node, service); waits && e.Adopt(v, fence, a.now) == nil {
			a.taskEvents(other, e, []uint32{v}, model.TaskSucceeded)
			a.endings().finish(other, e)
		}
	}
}

// adoptStarts ends the tasks of a restart, which goes on after it gave up, that are to start services that another operation has started
// meanwhile.
func (a tasks) adoptStarts(op *model.Operation, e *plan.Edit) {
	started := a.endings().startedSince(op, e.State())
	for u := range uint32(e.State().Graph.Len()) {
		at := place{e.State().Graph.NodeID(int(u)), e.State().Graph.ServiceName(int(u))}
		if v, waits := onlyStarts(e.State(), at.node, at.service); waits && v == u && started[at] && e.Adopt(v, a.index, a.now) == nil {
			a.taskEvents(op, e, []uint32{v}, model.TaskSucceeded)
		}
	}
}

// onlyStarts returns the task of a plan that is to start a service, and reports whether it waits and the plan has not to stop the service
// before.
func onlyStarts(s *plan.State, node, service string) (start uint32, waits bool) {
	for _, v := range s.Graph.On(node) {
		switch status := s.Status(v); {
		case s.Graph.ServiceName(int(v)) != service:
		case s.Graph.Action[v] == model.Start:
			start, waits = v, !status.Held() && !status.Ended()
		case status != model.TaskSucceeded:
			return 0, false
		}
	}
	return start, waits
}
