package apitest

import (
	"encoding/json"
	"slices"

	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/engine/model"
)

// Audit returns the log of all changes.
func (v view) Audit() *audit.Trail { return v.log }

// Prune drops all but the newest records of the audit log.
func (s *Store) Prune(keep uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.now.clone()
	w := next.log.Write()
	w.Prune(0, keep)
	next.log = w.Done()
	s.now = next
}

// record adds the records of a change to the audit log, one for each of its events.
func (s *Store) record(before, next *state, who model.Caller, events []model.Event) {
	w := next.log.Write()
	for _, e := range events {
		if e.Task != "" {
			s.step(w, before, next, e)
			continue
		}
		c := &audit.Change{
			Index: next.Index, Time: s.clock, Type: e.Type, Tenant: e.Tenant, Actor: who.Actor, Request: who.Request,
			Cluster: e.Cluster, Operation: e.Operation, Subject: e.Subject, Message: e.Message,
		}
		if e.Status != "" {
			c.After, _ = json.Marshal(map[string]string{"status": e.Status})
		}
		w.Change(c)
	}
	next.log = w.Done()
}

// step adds the record of a task whose status has changed.
func (s *Store) step(w *audit.Writer, before, next *state, e model.Event) {
	tasks := next.Tasks[e.Operation]
	i := slices.IndexFunc(tasks, func(t model.Task) bool { return t.ID == e.Task })
	if i < 0 || len(before.Tasks[e.Operation]) <= i {
		return
	}
	p := s.plans[e.Operation]
	if p == nil {
		p = &audit.Plan{ID: e.Operation, Operation: e.Operation, Tenant: e.Tenant, Cluster: e.Cluster}
		for v, t := range tasks {
			p.Nodes, p.Services = append(p.Nodes, t.Node), append(p.Services, t.Service)
			p.Node, p.Service, p.Action = append(p.Node, int32(v)), append(p.Service, int16(v)), append(p.Action, t.Action)
		}
		s.plans[e.Operation] = p
	}
	c := audit.TaskChange{Vertex: uint32(i), From: before.Tasks[e.Operation][i].Status, To: tasks[i].Status, Attempt: uint8(tasks[i].Attempt),
		Agent: tasks[i].Agent}
	if e.Message != "" {
		c.End = &audit.End{Outcome: e.Status, Message: e.Message}
	}
	w.Tasks(&audit.Tasks{Plan: p, Index: next.Index, Time: s.clock, Actor: "coopr", Items: []audit.TaskChange{c}})
}
