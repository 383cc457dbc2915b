package agent

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/coopr/coopr/agent/mesh"
	"github.com/coopr/coopr/consensus/raftgroup/voters"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
)

// records is the list of record as this agent has it: from its own state where
// it holds one, from the leader otherwise.
type records struct {
	mu      sync.Mutex
	latest  []model.Agent
	changed chan struct{}
	absent  map[string]bool // sessions whose agents do not answer, as the leader told
}

// takeRecords takes the list.
func (a *Agent) takeRecords(list []model.Agent) {
	a.records.mu.Lock()
	defer a.records.mu.Unlock()
	a.records.latest = list
	if a.records.changed == nil {
		a.records.changed = make(chan struct{}, 1)
	}
	select {
	case a.records.changed <- struct{}{}:
	default:
	}
}

func (a *Agent) recordsChanged() (<-chan struct{}, func() []model.Agent) {
	a.records.mu.Lock()
	defer a.records.mu.Unlock()
	if a.records.changed == nil {
		a.records.changed = make(chan struct{}, 1)
	}
	return a.records.changed, func() []model.Agent {
		a.records.mu.Lock()
		defer a.records.mu.Unlock()
		return a.records.latest
	}
}

// keepRecords completes the gossip's view from the list of record.
func (a *Agent) keepRecords(ctx context.Context) error {
	changed, latest := a.recordsChanged()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
		list := latest()
		out := make([]mesh.Member, 0, len(list))
		for _, r := range list {
			out = append(out, memberOf(r))
		}
		a.mesh.Repair(out)
	}
}

func memberOf(r model.Agent) mesh.Member {
	m := mesh.Member{
		ID: r.ID, Addr: r.GossipAddr, Epoch: r.Incarnation, Status: mesh.StatusAlive,
		Self: mesh.Self{Name: r.Name, RPCAddr: r.PeerAddr, APIAddr: r.APIAddr, Build: r.Build, FeatureLevel: r.FeatureLevel, Zone: r.Zone, Class: r.Class, Eligible: r.Eligible},
	}
	switch {
	case r.Left:
		m.Status = mesh.StatusLeft
	case !r.Alive:
		m.Status = mesh.StatusFailed
	}
	return m
}

// watch hands the state's own list of record to this agent when it changes.
func (a *Agent) watch(m *member) func(state.Batch) {
	return func(b state.Batch) {
		if b.Resources || b.Restored {
			a.shelf.look()
		}
		if b.Agents {
			list := m.Machine.View().Agents()
			miss(list, a.records.absentees())
			a.takeRecords(list)
		}
	}
}

// sendRecords sends the list to one worker.
func (a *Agent) sendRecords(m *member, c *conn) {
	if b, err := json.Marshal(m.Machine.View().Agents()); err == nil {
		c.Send(&pb.LeaderMessage{Records: b})
	}
}

// candidateOf is an agent as one that may vote; live says that it has a session
// with this one. A record alone is no sign of life: when a lost quorum comes
// back by an operator's hand, the dead are in the records as they were.
func candidateOf(m mesh.Member, live bool) voters.Candidate {
	return voters.Candidate{
		ID: m.ID, Addr: m.RPCAddr, Zone: m.Zone, Eligible: m.Eligible, Alive: m.Alive() && (m.Gossip.Alive() || live), Leaving: m.Leaving,
		FeatureLevel: int(m.FeatureLevel), JoinedAt: m.Since,
	}
}
