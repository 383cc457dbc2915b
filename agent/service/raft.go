package service

import (
	"context"

	"github.com/coopr/coopr/consensus/duty/integrity"
	"github.com/coopr/coopr/consensus/raftgroup"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
)

// Raft controls the Raft group and snapshots of the whole state.
type Raft struct {
	ID    string        // of this agent
	Name  func() string // of this agent; a reload may change it
	Build string        // version of this agent's binary

	Supervisor Supervisor
	Gossip     Gossip
}

// Peers returns the members of the Raft group.
func (r *Raft) Peers(context.Context) ([]api.RaftPeer, error) {
	m, err := voter(r.Supervisor)
	if err != nil {
		return nil, err
	}
	leader, _ := m.Group.Leader()
	var compared integrity.Verdict // only the leader has one
	if _, l, ok := r.Supervisor.Leader(); ok {
		compared = l.Integrity.Last()
	}
	var out []api.RaftPeer
	for _, s := range m.Group.Servers() {
		p := api.RaftPeer{ID: s.ID, Name: s.ID, Addr: s.Addr, Voter: s.Voter, Leader: s.ID == leader, Healthy: s.ID == r.ID}
		if x, ok := r.Gossip.Member(s.ID); ok {
			p.Name, p.Healthy = x.Name, x.Alive()
		}
		if p.Checkpoint = compared.Index; p.Checkpoint > 0 {
			p.State = compared.Of(s.ID)
		}
		out = append(out, p)
	}
	return out, nil
}

// peerID returns the id of the agent with a name, or the name itself if there is none.
func (r *Raft) peerID(name string) string {
	for _, x := range r.Gossip.Members() {
		if x.Name == name {
			return x.ID
		}
	}
	return name
}

// Transfer transfers the leadership to a voter, by id or name, or to any voter if to is "".
func (r *Raft) Transfer(ctx context.Context, to string) error {
	m, _, err := leader(r.Supervisor)
	if err != nil {
		return err
	}
	if to == "" {
		return m.Group.Transfer(ctx, "")
	}
	id := r.peerID(to)
	for _, s := range m.Group.Servers() {
		if s.ID == id && s.Voter {
			return m.Group.Transfer(ctx, id)
		}
	}
	return problem.New(problem.NotFound, "%q is not a voter", to)
}

// Remove removes a member of the Raft group, by id or name.
func (r *Raft) Remove(ctx context.Context, id string) error {
	m, _, err := leader(r.Supervisor)
	if err != nil {
		return err
	}
	id = r.peerID(id)
	voters, found := 0, raftgroup.Server{}
	for _, s := range m.Group.Servers() {
		if s.Voter {
			voters++
		}
		if s.ID == id {
			found = s
		}
	}
	switch {
	case found.ID == "":
		return problem.New(problem.NotFound, "%q is not in the Raft group", id)
	case found.Voter && voters == 1:
		return problem.New(problem.Conflict, "%q is the only voter of the Raft group: add another agent first", id)
	}
	return m.Group.Remove(ctx, id)
}
