package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/lease"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

// session is the session of a worker.
type session struct {
	id, agent, machine string
	conn               Conn // nil while the worker is not connected
	slots              int
	plugins            map[string]bool
	heard              time.Time
	missed             int // checks since it was heard
	leaving            bool
	held               int  // tasks that are leased to it, or are being leased
	ending             bool // its end is being committed
	doomed             bool // its end was proposed, and may be committed at any time
}

func (s *session) free() int {
	if s.conn == nil || s.leaving || s.doomed {
		return 0
	}
	return max(0, s.slots-s.held) // an agent that offers no slots may still hold tasks
}

// send sends a message to the worker, if it is connected. Any goroutine may call it, as a Conn
// has its own lock.
func (s *session) send(m *pb.LeaderMessage) {
	if s != nil && s.conn != nil {
		s.conn.Send(m)
	}
}

// cancel sends the worker the order to end an attempt.
func (s *session) cancel(op string, u uint32, fence uint64, reason string) {
	s.send(&pb.LeaderMessage{Cancels: []*pb.Cancel{{Task: string(model.OperationID(op).Task(u)), Fence: fence, Reason: reason}}})
}

// Open begins the session of a worker. If the agent leaves in between, the session may still be
// committed; it lives until its TTL ends then. The agent's record, its plugins and its leases go to
// the log in one entry. id is the id of the new session. The first message that conn gets
// is the welcome. Open blocks until the session is committed.
func (d *Dispatcher) Open(ctx context.Context, id string, h *pb.Hello, conn Conn) error {
	agent := model.Agent{
		ID: h.Agent, Name: h.Name, PeerAddr: h.PeerAddr, APIAddr: h.ApiAddr, Build: h.Build, FeatureLevel: h.FeatureLevel,
		Incarnation: h.Incarnation, GossipAddr: h.GossipAddr, Zone: h.Zone, Class: h.Class, Slots: int(h.Slots), Eligible: h.Eligible,
		Plugins: map[string]string{},
	}
	plugins := map[string]bool{}
	open := &pb.OpenSession{Session: id, Agent: h.Agent, Number: h.Number, Types: h.Plugins}
	for _, m := range h.Plugins {
		t, err := logformat.DecodePluginType(m)
		if err != nil {
			return fmt.Errorf("agent %s: plugin type: %w", h.Name, err)
		}
		agent.Plugins[t.Key()] = t.Plugin
		plugins[t.Key()] = true
	}
	var err error
	if open.Record, err = logformat.EncodeAgent(&agent); err != nil {
		return err
	}
	for _, held := range h.Held {
		if !held.Lost {
			open.Keep = append(open.Keep, held.Fence)
		}
	}
	answers, err := d.cfg.Propose(ctx, &pb.Command{Change: &pb.Command_OpenSession{OpenSession: open}})
	if err == nil {
		err = refusal(d.cfg.Machine.View(), h.Agent, answers[0].Err)
	}
	if err != nil {
		return fmt.Errorf("session of agent %s: %w", h.Name, err)
	}
	done := make(chan struct{})
	ok := d.post(func() {
		d.opened(id, h, plugins, conn, answers[0].Index)
		close(done)
	})
	if !ok {
		return ErrOver
	}
	select {
	case <-done:
	case <-d.ended:
		return ErrOver // there will be no welcome
	case <-ctx.Done():
		d.Gone(id, conn)
		return ctx.Err()
	}
	// Before the results: a value is refused once its task has ended.
	if err := d.Save(ctx, id, h.Saves, h.LastSave); err != nil {
		d.Gone(id, conn)
		return err
	}
	var results []*pb.Result
	for _, held := range h.Held {
		if held.Result != nil {
			results = append(results, held.Result)
		}
	}
	d.Report(ctx, id, results)
	return nil
}

// Refusal is the error of Open for an outdated hello: its agent has sent a newer one since, or was removed.
type Refusal struct {
	// Incarnation is the lowest incarnation with which the agent's next hello is accepted.
	Incarnation uint64
	err         error
}

// Error returns the reason.
func (r *Refusal) Error() string { return r.err.Error() }

// Unwrap returns the error of the state.
func (r *Refusal) Unwrap() error { return r.err }

// refusal returns the error of an OpenSession, as a Refusal if a later hello may succeed.
func refusal(v *state.View, agent string, err error) error {
	if last, ok := v.LastHello(agent); ok && errors.Is(err, problem.Stale) {
		return &Refusal{Incarnation: lease.Next(last), err: err}
	}
	return err
}

// opened ties a connection to a session of the state, sends the worker the list of the leases that it keeps, and sends
// again the leased tasks that the worker never got.
func (d *Dispatcher) opened(id string, h *pb.Hello, plugins map[string]bool, conn Conn, epoch uint64) {
	v := d.cfg.Machine.View()
	if _, ok := v.Session(id); !ok {
		conn.Close() // it has ended, or the agent has a newer one
		return
	}
	for old, s := range d.sessions {
		if s.agent == h.Agent && old != id {
			if s.conn != nil {
				s.conn.Close()
			}
			d.vacate(s, nil)
			delete(d.sessions, old)
		}
	}
	s := d.sessions[id]
	if s == nil { // its batch has not been read yet
		s = &session{id: id, agent: h.Agent}
		d.sessions[id] = s
	}
	s.machine, s.conn, s.slots, s.plugins, s.heard, s.missed = h.Machine, conn, int(h.Slots), plugins, time.Now(), 0
	w := &pb.Welcome{Session: id, Epoch: epoch, TtlMs: d.cfg.TTL.Milliseconds(), HeartbeatMs: (d.cfg.TTL / 5).Milliseconds()}
	known := map[taskKey]bool{}
	for _, held := range h.Held {
		keep := false
		if op, u, err := model.TaskID(held.Task).Split(); err == nil {
			if p, ok := v.Plan(string(op)); ok && int(u) < p.Graph.Len() {
				keep = p.Valid(u, held.Fence) && p.Task(u).Holder.Session == id
				known[taskKey{string(op), u}] = keep
				if !keep && held.Result == nil && !held.Lost {
					d.ends(string(op), p.Graph, u, held.Fence, s)
				}
			}
		}
		w.Verdicts = append(w.Verdicts, &pb.Verdict{Task: held.Task, Fence: held.Fence, Keep: keep})
	}
	s.send(&pb.LeaderMessage{Welcome: w})
	var unsent []parcel
	for _, op := range v.ActiveOperations() {
		p, ok := v.Plan(op.ID)
		q := d.queues[op.ID]
		if !ok || q == nil {
			continue
		}
		for _, u := range p.Leased(id) {
			d.release(q, u)
			d.hold(q, u, s, d.cfg.Tasks.Needs(v, op, p.Graph, u).Limit).grant(p.Fence(u))
			if !known[taskKey{op.ID, u}] {
				unsent = append(unsent, parcel{taskKey: taskKey{op.ID, u}, fence: p.Fence(u), to: s})
			}
			if cancels(op) {
				s.cancel(op.ID, u, p.Fence(u), op.Message)
			}
		}
		d.refresh(v, op.ID, nil, true)
	}
	d.deliver(unsent)
	d.again = true
}

// forget drops the sessions that the state does not have any more, for example because the
// agent was removed. Leases to them are refused. Their workers begin new sessions.
func (d *Dispatcher) forget(v *state.View) {
	for id, s := range d.sessions {
		if _, ok := v.Session(id); ok {
			continue
		}
		if s.conn != nil {
			s.conn.Close()
		}
		d.vacate(s, v)
		delete(d.sessions, id)
	}
}

// vacate releases the tasks that a session holds. With a view, it also refreshes their
// operations.
func (d *Dispatcher) vacate(s *session, v *state.View) {
	d.hasEnded(func(e ending) bool { return e.session == s })
	for id, q := range d.queues {
		had := false
		for u, h := range q.held {
			if h.session == s {
				d.release(q, u)
				had = true
			}
		}
		if had && v != nil {
			d.refresh(v, id, nil, true)
		}
	}
}

// Hear notes a heartbeat of a worker and answers it.
func (d *Dispatcher) Hear(id string, beat uint64, leaving bool) {
	d.post(func() {
		s := d.sessions[id]
		if s == nil {
			return
		}
		s.heard, s.missed = time.Now(), 0
		s.leaving = s.leaving || leaving
		if beat > 0 && lease.Answers(s.doomed) {
			s.send(&pb.LeaderMessage{Heartbeat: beat})
		}
		if lease.Leaves(s.leaving, s.held) {
			d.finish(s, "the agent is leaving")
		}
	})
}

// Gone notes that a worker has disconnected. Its session lives until the TTL ends, as the
// agent may return.
func (d *Dispatcher) Gone(id string, conn Conn) {
	d.post(func() {
		if s := d.sessions[id]; s != nil && s.conn == conn {
			s.conn = nil
			if lease.Leaves(s.leaving, s.held) {
				d.finish(s, "the agent left")
			}
		}
	})
}

// Live returns the agents whose workers are connected, and how many of their slots are
// busy.
func (d *Dispatcher) Live() map[string]int {
	out := make(chan map[string]int, 1)
	ok := d.post(func() {
		m := map[string]int{}
		for _, s := range d.sessions {
			if s.conn != nil {
				m[s.agent] = s.held
			}
		}
		out <- m
	})
	if !ok {
		return nil
	}
	select {
	case m := <-out:
		return m
	case <-d.ended:
		return nil
	}
}

// Tell sends the agent registry to every worker.
func (d *Dispatcher) Tell(registry *pb.AgentRegistry) {
	d.post(func() {
		for _, s := range d.sessions {
			s.send(&pb.LeaderMessage{Registry: registry})
		}
	})
}

// expire ends the sessions that were silent for too long, and in as many checks. The clock alone
// does not count: when a leader was asleep, the heartbeats of its workers wait for it.
func (d *Dispatcher) expire(now time.Time) {
	for _, s := range d.sessions {
		s.missed++
		if d.cfg.MayEnd(now, s.heard, s.missed) {
			d.finish(s, fmt.Sprintf("its agent was silent for %s", now.Sub(s.heard).Round(time.Millisecond)))
		}
	}
}

// finish ends a session in the log. It is forgotten here when the state has it ended, whatever the answer
// is.
func (d *Dispatcher) finish(s *session, reason string) {
	if s.ending {
		return
	}
	s.ending, s.doomed = true, true
	d.cfg.Logger.Info("session ends", "agent", s.agent, "session", s.id, "reason", reason)
	d.async(func(ctx context.Context) {
		_, err := d.cfg.Propose(ctx, &pb.Command{Change: &pb.Command_EndSession{EndSession: &pb.EndSession{Session: s.id, Reason: reason}}})
		d.post(func() {
			s.ending = false
			if err == nil { // else the next check tries again, or the next leader
				d.forget(d.cfg.Machine.View())
				d.again = true
			} else if s.conn != nil {
				s.conn.Close() // a worker that is there asks for a new session
			}
		})
	})
}
