package agent

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

// ChangeSetting does something to a profile, a program, a schedule, preferences or a secret.
func (b *backend) ChangeSetting(ctx context.Context, who model.Caller, s api.Setting) (api.Written, error) {
	p, err := logformat.PutSetting(s.Kind, s.Name, s.Order, s.Value)
	if err != nil {
		return api.Written{}, err
	}
	p.System = s.System
	return b.propose(ctx, who, &pb.Command{Change: &pb.Command_ChangeRuns{ChangeRuns: &pb.ChangeRuns{Change: &pb.ChangeRuns_Put{Put: p}}}})
}

// StartRun begins a run.
func (b *backend) StartRun(ctx context.Context, who model.Caller, req api.StartRun) (string, api.Written, error) {
	m, _, ok := b.supervisor.Leader()
	if !ok {
		return "", api.Written{}, problem.NoLeader
	}
	const tries = 5
	for try := 1; ; try++ {
		v := m.Machine.View()
		p, err := runs.Prepare(v, who, runs.Start{
			Program: req.Program, Version: req.Version, Inline: req.Inline, Profile: req.Profile, Nodes: req.Nodes, Runtime: req.Runtime, Arguments: req.Arguments,
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
		switch w := (api.Written{Index: a.Index, Repeated: a.Repeated}); {
		case errors.Is(a.Err, problem.Stale) && try < tries:
			continue
		case errors.Is(a.Err, problem.TooMany):
			return a.Subject, w, a.Err
		case a.Err != nil:
			return "", w, a.Err
		default:
			return a.Subject, w, nil
		}
	}
}

// OrderRun gives an order about a run.
func (b *backend) OrderRun(ctx context.Context, who model.Caller, run string, e profile.Event) (api.Written, error) {
	change, err := logformat.RunEvent(run, 0, e)
	if err != nil {
		return api.Written{}, err
	}
	return b.propose(ctx, who, &pb.Command{Change: change})
}
