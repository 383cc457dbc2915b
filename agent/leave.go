package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/coopr/coopr/agent/mesh"
	"github.com/coopr/coopr/consensus/raftgroup"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
	pb "github.com/coopr/coopr/rpc/proto"
)

// leaveMesh takes this agent out for good: it gives up its vote, then Run
// ends. A vote that cannot be given up in time (the last voter's) is kept, and
// the agent stays.
func (a *Agent) leaveMesh(ctx context.Context) error {
	if a.leaving.Swap(true) {
		return nil
	}
	if err := a.mesh.SetSelf(a.self()); err != nil {
		a.leaving.Store(false)
		return err
	}
	if m := a.supervisor.Member(); m != nil && m.Group.Member() {
		wait, cancel := context.WithTimeout(ctx, 15*time.Second)
		defer cancel()
		a.supervisor.HandOver()
		if err := m.Group.WaitNoVote(wait); err != nil && !errors.Is(err, raftgroup.ErrShutdown) {
			a.leaving.Store(false)
			return errors.Join(fmt.Errorf("this agent's vote is still needed, so it stays: add another agent first, or stop this one with SIGTERM: %w", err), a.mesh.SetSelf(a.self()))
		}
	}
	close(a.quit)
	return nil
}

// Leave takes another, dead agent out of the mesh, or this one.
func (b *backend) Leave(ctx context.Context, agent string) error {
	if agent == "" || agent == b.id || agent == b.settings.Load().Name {
		return b.leaveMesh(ctx)
	}
	id := agent
	for _, m := range b.mesh.Members() {
		if m.Name == agent || m.ID == agent {
			if id = m.ID; m.Gossip.Alive() || m.Alive() && m.Gossip != mesh.StatusNone {
				return problem.New(problem.Conflict, "agent %s is alive: let it leave itself, with coopr leave at its own address", agent)
			}
		}
	}
	m, _, ok := b.supervisor.Leader()
	if !ok {
		return b.leaderForgets(ctx, id)
	}
	for _, s := range m.Group.Servers() {
		// What has no vote is missed by nobody; a vote goes when its successor
		// votes. It goes first, so that the command can be given again.
		if s.ID == id && !s.Voter {
			if err := m.Group.Remove(ctx, id); err != nil {
				return err
			}
		}
	}
	answers, err := m.Propose(ctx, &pb.Command{Change: &pb.Command_RemoveAgent{RemoveAgent: &pb.RemoveAgent{Id: id}}})
	if err == nil {
		err = answers[0].Err
	}
	if err != nil {
		return err
	}
	_ = b.mesh.Remove(ctx, id) // gossip may not know it at all
	return nil
}

// leaderForgets passes on to the leader that an agent is no more. The route is
// one that every agent answers itself, for most requests mean the one asked.
func (b *backend) leaderForgets(ctx context.Context, id string) error {
	body, err := json.Marshal(api.LeaveBody{Agent: id})
	if err != nil {
		return err
	}
	header := http.Header{"Authorization": {"Bearer " + b.token}, "Content-Type": {"application/json"}}
	status, _, answer, err := b.LeaderTransport().RoundTripToLeader(ctx, http.MethodPost, "/v1/leave", header, bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer answer.Close()
	if status < http.StatusMultipleChoices {
		return nil
	}
	p := &api.Problem{Status: status}
	if err := json.NewDecoder(io.LimitReader(answer, 1<<20)).Decode(p); err != nil {
		return fmt.Errorf("the leader's answer of status %d: %w", status, err)
	}
	return p
}
