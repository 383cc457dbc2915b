package service

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/coopr/coopr/consensus/duty/runs"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/rpc/api"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Runs writes profiles, programs, schedules, preferences and secrets, and controls runs.
type Runs struct {
	Supervisor Supervisor
}

// ChangeSetting writes or deletes a profile, a program, a schedule, preferences or a secret.
func (r *Runs) ChangeSetting(ctx context.Context, who model.Caller, s api.Setting) (api.Written, error) {
	put, err := logformat.PutSetting(s.Kind, s.Name, s.Order, s.Value)
	if err != nil {
		return api.Written{}, err
	}
	put.System = s.System
	return write(ctx, r.Supervisor, who, &pb.Command{Change: &pb.Command_ChangeRuns{ChangeRuns: &pb.ChangeRuns{Change: &pb.ChangeRuns_Put{Put: put}}}})
}

// startTries is how often a run is prepared again because the state changed.
const startTries = 5

// Start starts a run. With problem.TooMany, id is that of the rejected run.
func (r *Runs) Start(ctx context.Context, who model.Caller, req api.StartRun) (id string, w api.Written, err error) {
	m, _, err := leader(r.Supervisor)
	if err != nil {
		return "", api.Written{}, err
	}
	for try := 1; ; try++ {
		v := m.Machine.View()
		p, err := runs.Prepare(v, who, runs.Start{
			Program: req.Program, Version: req.Version, Inline: req.Inline, Profile: req.Profile,
			Nodes: req.Nodes, Runtime: req.Runtime, Arguments: req.Arguments,
		}, time.Now(), rand.Uint32())
		if err != nil {
			if id, ok := v.Request(who); ok {
				return id, api.Written{Index: v.Index(), Repeated: true}, nil
			}
			return "", api.Written{}, err
		}
		c, err := p.Command(who, nil, 0)
		if err != nil {
			return "", api.Written{}, err
		}
		answers, err := m.Propose(ctx, c)
		if err != nil {
			return "", api.Written{}, err
		}
		a := answers[0]
		switch {
		case errors.Is(a.Err, problem.Stale) && try < startTries:
			continue
		case a.Err == nil, errors.Is(a.Err, problem.TooMany):
			return a.Subject, written(a), a.Err
		}
		return "", written(a), a.Err
	}
}

// Order carries out an order about a run.
func (r *Runs) Order(ctx context.Context, who model.Caller, run string, e profile.Event) (api.Written, error) {
	change, err := logformat.RunEvent(run, 0, e)
	if err != nil {
		return api.Written{}, err
	}
	return write(ctx, r.Supervisor, who, &pb.Command{Change: change})
}
