package raftgroup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

// changeTimeout bounds the wait of a change while another change is under way.
const changeTimeout = 10 * time.Second

// Server is a member of the group's configuration.
type Server struct {
	ID    string `json:"id"`
	Addr  string `json:"address"`
	Voter bool   `json:"voter"`
}

// Bootstrap starts a new group with these members. Each of them may call it with the same list. If
// this member has Raft state already, Bootstrap changes nothing and returns ErrHasState; the caller
// need not do anything then.
func (g *Group) Bootstrap(ctx context.Context, servers []Server) error {
	conf, err := configuration(servers)
	if err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	err = g.ask(ctx, func() raft.Future { return g.raft.BootstrapCluster(conf) })
	if errors.Is(err, raft.ErrCantBootstrap) {
		return fmt.Errorf("bootstrap: %w", ErrHasState)
	}
	if err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	return nil
}

// ErrHasState is the error of Bootstrap on a member that has Raft state already.
var ErrHasState = errors.New("this agent has Raft state already")

func configuration(servers []Server) (raft.Configuration, error) {
	if err := checkServers(servers); err != nil {
		return raft.Configuration{}, err
	}
	var c raft.Configuration
	for _, s := range servers {
		suffrage := raft.Voter
		if !s.Voter {
			suffrage = raft.Nonvoter
		}
		c.Servers = append(c.Servers, raft.Server{ID: raft.ServerID(s.ID), Address: raft.ServerAddress(s.Addr), Suffrage: suffrage})
	}
	return c, nil
}

// Servers returns the group's latest configuration that this member knows. It may not be committed
// yet. It is empty on a member that waits to be added.
func (g *Group) Servers() []Server {
	return serversOf(g.raft.GetConfiguration().Configuration())
}

// ServersAt returns the group's last configuration that has been applied on this member, and its index.
// A change of the configuration can name that index as its precondition.
func (g *Group) ServersAt() ([]Server, uint64) {
	c := g.state.conf.Load()
	if c == nil {
		return nil, 0
	}
	return serversOf(c.Configuration), c.index
}

func serversOf(c raft.Configuration) []Server {
	out := make([]Server, 0, len(c.Servers))
	for _, s := range c.Servers {
		out = append(out, Server{ID: string(s.ID), Addr: string(s.Address), Voter: s.Suffrage == raft.Voter})
	}
	return out
}

// Member reports whether this member is part of the latest configuration that it knows.
func (g *Group) Member() bool {
	for _, s := range g.Servers() {
		if s.ID == g.cfg.ID {
			return true
		}
	}
	return false
}

// AddVoter makes a member a voter, or gives a voter a new address. Leader only.
// If prev is not 0, the change applies only to the configuration with that index; AddVoter returns
// ErrChanged when that is no longer the latest.
func (g *Group) AddVoter(ctx context.Context, id, addr string, prev uint64) error {
	return g.change(ctx, "make voter "+id, func() raft.Future {
		return g.raft.AddVoter(raft.ServerID(id), raft.ServerAddress(addr), prev, changeTimeout)
	}, prev)
}

// AddNonvoter adds a member that receives the log but has no vote, or changes the address of such a
// member. Leader only; prev as in AddVoter.
func (g *Group) AddNonvoter(ctx context.Context, id, addr string, prev uint64) error {
	return g.change(ctx, "add "+id, func() raft.Future {
		return g.raft.AddNonvoter(raft.ServerID(id), raft.ServerAddress(addr), prev, changeTimeout)
	}, prev)
}

// Demote removes a member's vote; the member still receives the log. Leader only; prev as in AddVoter.
func (g *Group) Demote(ctx context.Context, id string, prev uint64) error {
	return g.change(ctx, "demote "+id, func() raft.Future {
		return g.raft.DemoteVoter(raft.ServerID(id), prev, changeTimeout)
	}, prev)
}

// RemoveAt removes a member from the group, the leader itself included. Leader only; prev as in
// AddVoter.
func (g *Group) RemoveAt(ctx context.Context, id string, prev uint64) error {
	return g.change(ctx, "remove "+id, func() raft.Future {
		return g.raft.RemoveServer(raft.ServerID(id), prev, changeTimeout)
	}, prev)
}

// Remove removes a member from the group. Leader only. A leader that is asked to remove itself
// transfers its leadership first and returns ErrTransferring; the caller must ask the new leader to
// remove it. The removed member may never learn of its removal. A member that must know is demoted
// first, because a demoted member still receives the log (see WaitNoVote).
func (g *Group) Remove(ctx context.Context, id string) error {
	if id == g.cfg.ID && g.IsLeader() && otherVoters(g.Servers(), g.cfg.ID) > 0 {
		if err := g.Transfer(ctx, ""); err != nil {
			return fmt.Errorf("remove %s: %w", id, err)
		}
		return fmt.Errorf("remove %s: %w", id, ErrTransferring)
	}
	return g.RemoveAt(ctx, id, 0)
}

// WaitNoVote returns when this member knows that it has no vote. A leaving agent may stop then,
// because the group does not count on it.
func (g *Group) WaitNoVote(ctx context.Context) error {
	pause := 5 * time.Millisecond
	for {
		vote := false
		for _, s := range g.Servers() {
			vote = vote || (s.ID == g.cfg.ID && s.Voter)
		}
		if !vote {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until this member has no vote: %w", ctx.Err())
		case <-g.done:
			return fmt.Errorf("wait until this member has no vote: %w", ErrShutdown)
		case <-time.After(pause):
			pause = min(2*pause, 100*time.Millisecond)
		}
	}
}

func otherVoters(servers []Server, self string) int {
	n := 0
	for _, s := range servers {
		if s.Voter && s.ID != self {
			n++
		}
	}
	return n
}

func (g *Group) change(ctx context.Context, what string, do func() raft.Future, prev uint64) error {
	if !g.IsLeader() {
		return fmt.Errorf("%s: %w", what, g.notLeader())
	}
	err := g.ask(ctx, do)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", what, err)
	}
	if prev != 0 {
		if _, now := g.ServersAt(); now != prev && !errors.Is(err, raft.ErrLeadershipLost) {
			return fmt.Errorf("%s: %w (%w)", what, ErrChanged, err)
		}
	}
	return fmt.Errorf("%s: %w", what, g.outcome(err))
}
