package agent

import (
	"context"
	"encoding/json"
	"maps"
	"sync"
	"time"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
)

// telling sends the list of record to every agent when it changed. A session
// lives on for its TTL when its conn breaks, for the agent may come back to its
// leases; whether the agent is alive is told sooner, for it can be asked.
type telling struct {
	a *Agent
	m *member
	l *leadership
}

// brokenConn is a session that nobody is behind any more.
type brokenConn struct{ session, agent string }

func (t *telling) Name() string                  { return "list of record" }
func (t *telling) Restore(context.Context) error { return nil }

const (
	// settle, and settleEach for each agent, is how long changes are gathered:
	// many agents join at once, and each is told of all.
	settle     = 50 * time.Millisecond
	settleEach = time.Millisecond
	// returning is how long agents have to come to a new leader before it asks
	// whether they are there.
	returning = 500 * time.Millisecond
)

// broke notes that the conn of a session is gone.
func (l *leadership) broke(session, agent string) {
	select {
	case l.broken <- brokenConn{session, agent}:
	default: // of very many at once some wait for the end of their TTL
	}
}

func (t *telling) Run(ctx context.Context) error {
	changed := make(chan struct{}, 1)
	stop := t.m.Machine.Watch(func(b state.Batch) {
		if b.Agents {
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	})
	defer stop()
	absent := t.a.records.absentees()
	found := make(chan string)
	var asking sync.WaitGroup
	defer asking.Wait()
	ask := func(b brokenConn) {
		asking.Go(func() {
			if !t.a.mesh.Answers(ctx, b.agent) {
				select {
				case found <- b.session:
				case <-ctx.Done():
				}
			}
		})
	}
	begun := time.After(returning)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case b := <-t.l.broken:
			ask(b)
			continue
		case <-begun:
			live := t.l.dispatcher.Live()
			for _, n := range t.m.Machine.View().Agents() {
				if _, ok := live[n.ID]; !ok && n.Session != "" {
					ask(brokenConn{n.Session, n.ID})
				}
			}
			continue
		case session := <-found:
			absent[session] = true
		case <-changed:
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(settle + time.Duration(len(t.m.Machine.View().Agents()))*settleEach):
		}
		list := t.m.Machine.View().Agents()
		absent = miss(list, absent)
		b, err := json.Marshal(list)
		if err != nil {
			return err
		}
		t.l.dispatcher.Tell(b)
	}
}

// miss marks the agents whose sessions are absent, and gives the sessions that
// it found in the list.
func miss(list []model.Agent, absent map[string]bool) map[string]bool {
	still := map[string]bool{}
	for i := range list {
		if absent[list[i].Session] {
			list[i].Alive, still[list[i].Session] = false, true
		}
	}
	return still
}

// told takes the list as the leader tells it.
func (a *Agent) told(list []model.Agent) {
	absent := map[string]bool{}
	for _, n := range list {
		if n.Session != "" && !n.Alive {
			absent[n.Session] = true
		}
	}
	a.records.mu.Lock()
	a.records.absent = absent
	a.records.mu.Unlock()
	a.takeRecords(list)
}

// absentees are the sessions of agents that do not answer, as the last leader
// told.
func (r *records) absentees() map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]bool{}
	maps.Copy(out, r.absent)
	return out
}
