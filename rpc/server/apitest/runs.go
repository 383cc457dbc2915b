package apitest

import (
	"context"
	"fmt"

	"github.com/coopr/coopr/consensus/duty/runs"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/profile"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Happen applies events to a run of tenant "acme", as the leader does.
func (s *Store) Happen(run string, events ...profile.Event) {
	for _, e := range events {
		change, err := logformat.RunEvent(run, 0, e)
		check(err)
		a, err := s.member.Propose(context.Background(), &pb.Command{Tenant: "acme", Actor: model.Self, Change: change})
		check(err)
		if a[0].Err != nil {
			panic(fmt.Sprintf("run %s, event %s: %v", run, e.Kind, a[0].Err))
		}
	}
}

// Lost are the events of a run whose cluster could not be deleted. They put the run on the list of
// orphans.
var Lost = []profile.Event{{Kind: profile.Requested}, {Kind: profile.Saw, Seen: profile.SeenOrphaned}}

// Ended returns the event of a program's end.
func Ended(s profile.Status, why string) profile.Event {
	return profile.Event{Kind: profile.ProgramIs, Status: s, Message: why}
}

// Up lets a run's cluster be created and its program begin, as the leader does.
func (s *Store) Up(id string) {
	ctx := context.Background()
	c := &runs.Clusters{Machine: s.member.Machine, Propose: s.member.Propose, Start: s.lead.Load().Orchestrator, Opener: s.member.Box}
	s.Happen(id, profile.Event{Kind: profile.Asking})
	in := runs.Request{Run: s.run(id)}
	in.Properties = profile.Values(in.Run.Properties)
	made, err := c.Create(ctx, in)
	check(err)
	s.Happen(id, profile.Event{Kind: profile.Returned, Cluster: made.Cluster, ID: made.ID, Operation: made.Operation})
	s.Finish(made.Operation)
	s.Happen(id, profile.Event{Kind: profile.Saw, Seen: profile.SeenRunning})
	ready, err := c.Initialize(ctx, runs.Request{Run: s.run(id)})
	check(err)
	s.Happen(id, profile.Event{Kind: profile.Ready, Cluster: ready})
	op, err := c.Begin(ctx, s.run(id))
	check(err)
	s.Happen(id, profile.Event{Kind: profile.Begun, Operation: op})
}

func (s *Store) run(id string) *profile.Run {
	r, ok := s.member.Machine.View().Run("acme", id)
	if !ok {
		panic("apitest: there is no run " + id)
	}
	return r
}

// Writes adds text to the log of the first task of a run's program, and lets the tasks end.
func (s *Store) Writes(run, text string) {
	op := s.run(run).Operation
	s.Log(string(model.OperationID(op).Task(0)), text)
	s.Finish(op)
}
