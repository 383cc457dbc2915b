package member

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coopr/coopr/agent/mesh"
	"github.com/coopr/coopr/consensus/raftgroup"
	pb "github.com/coopr/coopr/rpc/proto"
)

const (
	// bootstrapInterval is how often an agent without a Raft group decides again
	// whether to start one.
	bootstrapInterval = 500 * time.Millisecond
	// outsideInterval replaces it once a group is known to exist elsewhere.
	outsideInterval = time.Minute
)

// bootstrap starts the first Raft group, once enough agents have met and none of
// them holds any state. It returns when this agent belongs to a group.
func (m *Member) bootstrap(ctx context.Context) error {
	if m.cfg.BootstrapExpect == 0 {
		return nil
	}
	select { // an agent that has not been reached yet may belong to a group
	case <-m.cfg.Mesh.JoinTried():
	case <-ctx.Done():
		return nil
	}
	changed, stop := m.cfg.Mesh.Subscribe()
	defer stop()
	why := ""
	for {
		if m.Group.Stats().LastIndex > 0 || len(m.Group.Servers()) > 0 {
			if s := m.Group.Servers(); len(s) == 1 && s[0].ID == m.cfg.ID {
				m.campaign()
			}
			return nil
		}
		d, group := m.decideBootstrap(ctx)
		if d.Bootstrap {
			return m.startGroup(ctx, d.Servers)
		}
		if d.Why != why {
			why = d.Why
			m.cfg.Logger.Info("this agent belongs to no Raft group yet", "why", why)
		}
		again, interval := changed, bootstrapInterval
		if group {
			// Most agents of a large mesh are never added to the group. They must not
			// ask every other agent twice a second for the rest of their lives.
			again, interval = nil, outsideInterval
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again:
		case <-time.After(interval):
		}
	}
}

// decideBootstrap asks the other agents for their status in Raft and decides. group
// reports whether one of them belongs to a Raft group.
func (m *Member) decideBootstrap(ctx context.Context) (d mesh.Decision, group bool) {
	answers := map[string]mesh.RaftState{m.cfg.ID: {}}
	d = mesh.ShouldBootstrap(m.cfg.ID, m.cfg.Mesh.Members(), m.cfg.BootstrapExpect, answers)
	if len(d.Ask) == 0 {
		return d, false
	}
	for _, other := range d.Ask {
		if st, err := askStatus(ctx, m.cfg.Peers, other.RPCAddr, ""); err == nil {
			answers[other.ID] = mesh.RaftState{HasState: st.HasState, Peers: serverIDs(st.Servers)}
			group = group || st.HasState
		}
	}
	return mesh.ShouldBootstrap(m.cfg.ID, m.cfg.Mesh.Members(), m.cfg.BootstrapExpect, answers), group
}

func (m *Member) startGroup(ctx context.Context, agents []mesh.Member) error {
	var servers []raftgroup.Server
	for _, s := range agents {
		servers = append(servers, raftgroup.Server{ID: s.ID, Addr: s.RPCAddr, Voter: true})
	}
	m.cfg.Logger.Info("starting the first Raft group", "voters", len(servers))
	err := m.Group.Bootstrap(ctx, servers)
	switch {
	case err == nil:
		m.campaign()
	case !errors.Is(err, raftgroup.ErrHasState):
		return fmt.Errorf("start the first Raft group: %w", err)
	}
	return nil
}

// campaign starts an election in a group that cannot have a leader yet, without
// waiting for the election timeout.
func (m *Member) campaign() {
	if err := m.Group.Campaign(); err != nil {
		m.cfg.Logger.Debug("the first election waits for the election timeout", "error", err)
	}
}

func serverIDs(list []*pb.Server) []string {
	var out []string
	for _, s := range list {
		out = append(out, s.Id)
	}
	return out
}
