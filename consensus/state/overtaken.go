package state

import (
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
)

// place is a service on a node, or without a service the node itself.
type place struct{ node, service string }

// attempts are the fences of the latest attempts of a plan at a place: at all tasks, and at those that start or stop the service; 0 if none
// was made.
type attempts struct {
	all, moves uint64
	left       bool // not all tasks are done
}

// before returns the fence after which an action of another operation is the later one. A service that the plan is done with runs or not
// as the latest start or stop has left it, also if an order has repeated another task of it since, such as INSTALL.
func (a attempts) before(action model.Action) uint64 {
	if moves(action) && !a.left && a.moves > 0 {
		return a.moves
	}
	return a.all
}

func moves(action model.Action) bool { return action == model.Start || action == model.Stop }

func latestAttempts(s *plan.State) map[place]attempts {
	out := map[place]attempts{}
	for v := range uint32(s.Graph.Len()) {
		at := place{s.Graph.NodeID(int(v)), s.Graph.ServiceName(int(v))}
		is := out[at]
		is.all = max(is.all, s.Fence(v))
		if moves(s.Graph.Action[v]) {
			is.moves = max(is.moves, s.Fence(v))
		}
		is.left = is.left || s.Status(v) != model.TaskSucceeded
		out[at] = is
	}
	return out
}

// deletions returns the fences of a plan's latest deletions of machines, by node. A CREATE that is repeated finds its machine again, unless
// it has to undo an earlier attempt.
func deletions(s *plan.State) map[string]uint64 {
	out := map[string]uint64{}
	for v := range uint32(s.Graph.Len()) {
		id, fence := s.Graph.NodeID(int(v)), uint64(0)
		switch s.Graph.Action[v] {
		case model.Delete:
			fence = s.Fence(v)
		case model.Create:
			if n := s.Note(v); n != nil {
				for _, a := range n.History {
					if a.Outcome == plan.Undone {
						fence = a.Fence
					}
				}
			}
		}
		if fence > out[id] {
			out[id] = fence
		}
	}
	return out
}

// later is the work of main operations on a service after a concurrent operation was done with it.
type later struct{ configured, initialized bool }

// overtaken returns the services on which main operations, which have ended while a concurrent operation was under way, worked after it was
// done with them. The records of their nodes show the later work already.
func (a endings) overtaken(op *model.Operation, s *plan.State) map[place]later {
	if !op.Type.Concurrent() {
		return nil
	}
	latest, out := latestAttempts(s), map[place]later{}
	for _, other := range table.List[model.Operation](a.txn, table.Operations, "cluster", op.Tenant, op.Cluster) {
		ended := other.Status == model.OpRollingBack || other.Status.Ended() && other.EndedAt >= op.CreatedAt
		p := a.plan(other.ID)
		if other.Type.Concurrent() || !ended || p == nil {
			continue
		}
		for v := range uint32(p.Graph.Len()) {
			at := place{p.Graph.NodeID(int(v)), p.Graph.ServiceName(int(v))}
			if mine := latest[at].before(p.Graph.Action[v]); mine == 0 || at.service == "" || p.Fence(v) <= mine || p.Inherited(v) {
				continue
			}
			by, seen := out[at], true
			switch p.Graph.Action[v] {
			case model.Bootstrap, model.Check, model.Run:
				seen = false
			case model.Configure:
				by.configured = true
			case model.Initialize, model.Remove:
				by.initialized = true
			}
			if seen {
				out[at] = by
			}
		}
	}
	return out
}

// startedSince returns the services that another operation has started after an operation was done with them, and that none has stopped
// since. An order that has forced a task on a service to be complete counts more.
func (a endings) startedSince(op *model.Operation, s *plan.State) map[place]bool {
	latest := latestAttempts(s)
	for v := range uint32(s.Graph.Len()) {
		if s.Task(v).Forced {
			delete(latest, place{s.Graph.NodeID(int(v)), s.Graph.ServiceName(int(v))})
		}
	}
	out, newest := map[place]bool{}, map[place]uint64{}
	for _, other := range table.List[model.Operation](a.txn, table.Operations, "cluster", op.Tenant, op.Cluster) {
		p := a.plan(other.ID)
		if other.ID == op.ID || p == nil || other.Status.Ended() && other.EndedAt < op.CreatedAt {
			continue
		}
		for v := range uint32(p.Graph.Len()) {
			at := place{p.Graph.NodeID(int(v)), p.Graph.ServiceName(int(v))}
			mine, fence := latest[at].moves, p.Fence(v)
			if moves(p.Graph.Action[v]) && mine > 0 && fence > max(mine, newest[at]) {
				newest[at] = fence
				out[at] = p.Graph.Action[v] == model.Start && p.Status(v) == model.TaskSucceeded
			}
		}
	}
	return out
}

// restore gives a service of a node, on which the effects of the earlier operation were written, the state that its record had. Of the
// earlier operation it keeps what the later work did not do again.
func (l later) restore(n, had *model.Node, service string) {
	if was, ok := had.States[service]; ok {
		n.States[service] = was
	} else {
		delete(n.States, service)
	}
	m, ok := had.Marks[service]
	if !ok {
		delete(n.Marks, service)
		return
	}
	mine := n.Marks[service]
	m.Started = mine.Started
	if !l.configured {
		m.Configured, m.Config = mine.Configured, mine.Config
	}
	if !l.initialized {
		m.Initialized = mine.Initialized
	}
	n.Marks[service] = m
}
