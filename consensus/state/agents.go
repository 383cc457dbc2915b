package state

import (
	"cmp"
	"maps"
	"slices"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/lease"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/roster"
	pb "github.com/coopr/coopr/rpc/proto"
)

// agents changes the agent registry and the sessions of agents.
type agents struct{ *writer }

// record writes an agent's record and the plugin types that the agent offers. The record is the one
// that the agent sent, with the session and its fields (Epoch, Alive, Since) of the stored record.
func (a agents) record(s *pb.OpenSession) (*model.Agent, error) {
	n, err := logformat.DecodeAgent(s.Record)
	if err != nil {
		return nil, problem.New(problem.Unsupported, "the record of agent %q: %w", s.Agent, err)
	}
	if n.ID != s.Agent || n.ID == "" {
		return nil, problem.New(problem.Unsupported, "the record of agent %q is agent %q's", s.Agent, n.ID)
	}
	known, err := a.identities().of(n.ID)
	if err != nil {
		return nil, err
	}
	if known != nil {
		n.Zone, n.Eligible = cmp.Or(known.Zone, n.Zone), n.Eligible && known.Role == roster.Voter
	}
	types := make([]*model.PluginType, len(s.Types))
	for i, m := range s.Types {
		if types[i], err = logformat.DecodePluginType(m); err != nil {
			return nil, problem.New(problem.Unsupported, "a plugin type of agent %s: %w", n.Name, err)
		}
	}
	n.Session, n.Epoch, n.Alive, n.Since = "", 0, false, a.now
	if old := table.Get[model.Agent](a.txn, table.Agents, "id", n.ID); old != nil {
		n.Session, n.Epoch, n.Alive, n.Since = old.Session, old.Epoch, old.Alive, old.Since
	}
	for _, t := range types {
		a.put(table.PluginTypes, &table.PluginRow{Key: t.Key(), Type: *t})
	}
	a.put(table.Agents, n)
	a.batch.Agents = true
	return n, nil
}

// removeAgent removes an agent from the mesh.
func (a agents) removeAgent(r *pb.RemoveAgent) Answer {
	a.identities().removed(r.Id)
	if r.Revoke {
		return Answer{Subject: r.Id}
	}
	return a.removeRecord(r)
}

// removeRecord removes the record of an agent.
func (a agents) removeRecord(r *pb.RemoveAgent) Answer {
	id := r.Id
	n := table.Get[model.Agent](a.txn, table.Agents, "id", id)
	if n == nil {
		return refuse(problem.NotFound, "there is no agent %q", id)
	}
	if n.Session != "" {
		a.endSession(n.Session, "the agent left")
	}
	if n = table.Get[model.Agent](a.txn, table.Agents, "id", id); r.WithTypes {
		a.removeTypes(n)
	}
	a.remove(table.Agents, n)
	a.differs(id, false)
	a.mark(id)
	a.batch.Agents = true
	a.event(model.Event{Type: "agent.removed", Subject: n.Name})
	return Answer{Subject: id}
}

// keepMarks is how long the state keeps the marks of removed agents. No hello is under way for longer.
const keepMarks = 24 * 60 * 60 * 1000

// mark refuses all hellos that an agent sent before its removal, and drops the marks of agents that were
// removed long ago.
func (a agents) mark(id string) {
	for _, h := range table.List[table.HelloRow](a.txn, table.Hellos, "id") {
		if h.Removed > 0 && h.Removed < a.now-keepMarks {
			a.remove(table.Hellos, h)
		}
	}
	row := table.HelloRow{Agent: id, Removed: a.now}
	if h := table.Get[table.HelloRow](a.txn, table.Hellos, "id", id); h != nil {
		row.Last = h.Last
	}
	row.Last = lease.Removed(row.Last, a.now)
	a.put(table.Hellos, &row)
}

// removeTypes removes the plugin types that only this agent offers.
func (a agents) removeTypes(n *model.Agent) {
	others := map[string]bool{}
	table.Each(a.txn, table.Agents, "id", func(o *model.Agent) bool {
		for key := range o.Plugins {
			others[key] = others[key] || o.ID != n.ID
		}
		return true
	})
	for _, key := range slices.Sorted(maps.Keys(n.Plugins)) {
		if row := table.Get[table.PluginRow](a.txn, table.PluginTypes, "id", key); row != nil && !others[key] {
			a.remove(table.PluginTypes, row)
		}
	}
}

// openSession writes an agent's record and opens a new session for the agent. The leases that the
// agent keeps move to the new session. All its other leases are lost. A hello is refused if the agent
// has sent a newer one, or was removed since.
func (a agents) openSession(s *pb.OpenSession) Answer {
	if table.Get[table.SessionRow](a.txn, table.Sessions, "id", s.Session) != nil {
		return refuse(problem.Conflict, "session %s is open", s.Session)
	}
	hello := lease.Hello{Incarnation: s.GetRecord().GetIncarnation(), Number: s.Number}
	if row := table.Get[table.HelloRow](a.txn, table.Hellos, "id", s.Agent); row != nil && !lease.Opens(row.Last, hello) {
		if row.Removed > 0 {
			return refuse(problem.Stale, "agent %q was removed after it had asked for this session; it asks again by itself", s.Agent)
		}
		return refuse(problem.Stale, "agent %q has asked for a newer session", s.Agent)
	}
	old, err := a.record(s)
	if err != nil {
		return Answer{Err: err}
	}
	if hello != (lease.Hello{}) { // an earlier build sent neither, and no row means the same
		a.put(table.Hellos, &table.HelloRow{Agent: s.Agent, Last: hello})
	}
	if old.Session != "" {
		h := plan.Holder{Session: s.Session, Agent: s.Agent}
		a.eachHeld(old.Session, func(op *model.Operation, e *plan.Edit, v uint32) {
			fence := e.State().Fence(v)
			if lease.Keeps(fence, s.Keep) {
				_ = e.Keep(v, fence, h) // no error: the task is held with this fence
				return
			}
			a.tasks().lose(op, e, v, "the agent does not know this lease any more")
		})
		if row := table.Get[table.SessionRow](a.txn, table.Sessions, "id", old.Session); row != nil {
			a.remove(table.Sessions, row)
		}
	}
	a.put(table.Sessions, &table.SessionRow{ID: s.Session, Agent: s.Agent, Epoch: a.index})
	n := *old
	if !n.Alive {
		n.Since = a.now
		a.event(model.Event{Type: "agent.changed", Subject: n.Name, Status: "alive"})
	}
	n.Session, n.Epoch, n.Alive, n.Left = s.Session, a.index, true, false
	a.put(table.Agents, &n)
	a.batch.Agents = true
	return Answer{Subject: s.Session}
}

// endSession takes a session's leases away and marks its agent dead. It does nothing if the session
// has ended already.
func (a agents) endSession(id, reason string) Answer {
	row := table.Get[table.SessionRow](a.txn, table.Sessions, "id", id)
	if row == nil {
		return Answer{Subject: id}
	}
	a.eachHeld(id, func(op *model.Operation, e *plan.Edit, v uint32) { a.tasks().lose(op, e, v, reason) })
	a.remove(table.Sessions, row)
	a.batch.Agents = true
	if old := table.Get[model.Agent](a.txn, table.Agents, "id", row.Agent); old != nil && old.Session == id {
		n := *old
		n.Session, n.Alive, n.Since = "", false, a.now
		a.put(table.Agents, &n)
		a.event(model.Event{Type: "agent.changed", Subject: n.Name, Status: "dead", Message: reason})
	}
	return Answer{Subject: id}
}

// eachHeld calls fn for every lease of a session, in a fixed order.
func (a agents) eachHeld(session string, fn func(*model.Operation, *plan.Edit, uint32)) {
	for _, op := range table.List[model.Operation](a.txn, table.Operations, "active", "active") {
		e := a.edit(op.ID)
		if e == nil {
			continue
		}
		for _, v := range e.State().Leased(session) {
			fn(op, e, v)
		}
		a.endings().finish(op, e)
	}
}
