package state

import (
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
)

// place is a service on a node, or without a service the node itself.
type place struct{ node, service string }

// latestAttempts returns the fence of the latest attempt at a plan's tasks, by place; 0 where none was made.
func latestAttempts(s *plan.State) map[place]uint64 {
	latest := map[place]uint64{}
	for v := range uint32(s.Graph.Len()) {
		at := place{s.Graph.NodeID(int(v)), s.Graph.ServiceName(int(v))}
		latest[at] = max(latest[at], s.Fence(v))
	}
	return latest
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
			if mine := latest[at]; mine == 0 || at.service == "" || p.Fence(v) <= mine || p.Inherited(v) {
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
