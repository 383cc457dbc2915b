package service

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/coopr/coopr/consensus/archive"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
	pb "github.com/coopr/coopr/rpc/proto"
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
	var out []api.RaftPeer
	for _, s := range m.Group.Servers() {
		p := api.RaftPeer{ID: s.ID, Name: s.ID, Addr: s.Addr, Voter: s.Voter, Leader: s.ID == leader, Healthy: s.ID == r.ID}
		if x, ok := r.Gossip.Member(s.ID); ok {
			p.Name, p.Healthy = x.Name, x.Alive()
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
	for _, s := range m.Group.Servers() {
		if s.ID == id {
			return m.Group.Remove(ctx, id)
		}
	}
	return problem.New(problem.NotFound, "%q is not in the Raft group", id)
}

// Save writes an archive of the whole state to w.
func (r *Raft) Save(ctx context.Context, w io.Writer) error {
	m, _, err := leader(r.Supervisor)
	if err != nil {
		return err
	}
	if err := m.Fresh(ctx, false); err != nil {
		return err
	}
	var buf bytes.Buffer
	index, err := m.Save(&buf)
	if err != nil {
		return err
	}
	meta := archive.Meta{
		Index: index, Term: m.Group.Term(), Size: int64(buf.Len()), SnapshotVersion: 1, FeatureLevel: state.FeatureLevel,
		Agent: r.Name(), Build: r.Build, TakenAt: time.Now().UTC(),
	}
	return archive.Write(w, meta, &buf)
}

// maxSnapshot bounds the size in bytes of the state in an archive that is restored.
const maxSnapshot = 4 << 30

// Restore replaces the whole state by that of an archive. It deletes the records of agents
// that are not in the present state: they have left since the archive was written.
func (r *Raft) Restore(ctx context.Context, in io.Reader) error {
	m, _, err := leader(r.Supervisor)
	if err != nil {
		return err
	}
	var buf bytes.Buffer
	if _, err := archive.Read(in, &buf, maxSnapshot); err != nil {
		return model.Faults{{Path: "snapshot", Message: err.Error()}}
	}
	data := buf.Bytes()
	index, _, err := state.Check(bytes.NewReader(data))
	if err != nil {
		return model.Faults{{Path: "snapshot", Message: err.Error()}}
	}
	present := map[string]bool{}
	for _, a := range m.Machine.View().Agents() {
		present[a.ID] = true
	}
	if err := m.Restore(ctx, index, int64(len(data)), bytes.NewReader(data)); err != nil {
		return err
	}
	for _, a := range m.Machine.View().Agents() {
		if present[a.ID] {
			continue
		}
		if _, err := m.Propose(ctx, &pb.Command{Change: &pb.Command_RemoveAgent{RemoveAgent: &pb.RemoveAgent{Id: a.ID}}}); err != nil {
			return fmt.Errorf("the snapshot is restored, but it lists agents that have left since; remove them with coopr leave: %w", err)
		}
	}
	return nil
}
