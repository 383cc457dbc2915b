package service

import (
	"context"
	"errors"
	"time"

	"github.com/coopr/coopr/consensus/duty/runs"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/sealed"
	"github.com/coopr/coopr/engine/hostexec"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/rpc/api"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Runs writes profiles, programs, schedules, preferences and secrets, and controls runs.
type Runs struct {
	Supervisor Supervisor
	// Now and Random make the ids of runs; Now is also the time at which they were created.
	Now    func() time.Time
	Random func() uint32
	// HostExec decides who may start runs on control hosts.
	HostExec hostexec.Rules
}

// ChangeSetting writes or deletes a profile, a program, a schedule, preferences or a secret.
func (r *Runs) ChangeSetting(ctx context.Context, who model.Caller, s api.Setting) (api.Written, error) {
	if secret, ok := s.Value.(profile.Secret); ok {
		return r.putSecret(ctx, who, s, secret)
	}
	if p, ok := s.Value.(profile.Profile); ok && p.HasRange() {
		m, _, err := leader(r.Supervisor)
		if err != nil {
			return api.Written{}, err
		}
		if !m.Machine.View().Understands(logformat.RangeLevel) {
			return api.Written{}, problem.New(problem.Conflict, "profile %s has a range, which some agents of the mesh are too old to keep: "+
				"upgrade these agents (`coopr members -o wide` shows their versions)", s.Name)
		}
	}
	put, err := logformat.PutSetting(s.Kind, s.Name, s.Order, s.Value)
	if err != nil {
		return api.Written{}, err
	}
	put.System = s.System
	return write(
		ctx,
		r.Supervisor,
		who,
		&pb.Command{Change: &pb.Command_ChangeRuns{ChangeRuns: &pb.ChangeRuns{Change: &pb.ChangeRuns_Put{Put: put}}}},
	)
}

// putSecret writes a secret. Its value is encrypted before it is proposed.
func (r *Runs) putSecret(ctx context.Context, who model.Caller, s api.Setting, secret profile.Secret) (api.Written, error) {
	for try := 1; ; try++ {
		m, l, err := leader(r.Supervisor)
		if err != nil {
			return api.Written{}, err
		}
		id, version := sealed.NewID(), uint32(0)
		if have, ok := m.Machine.View().Secret(who.Tenant, s.Name); ok && have.ID != "" {
			id, version = have.ID, have.Version
		}
		value, err := l.Keys.Sealer.Seal(ctx, who.Tenant, id, version+1, []byte(secret.Value.Reveal()))
		if err != nil {
			return api.Written{}, err
		}
		put, err := logformat.PutSetting(s.Kind, s.Name, s.Order, logformat.Secret{Value: value, UsableBy: secret.UsableBy})
		if err != nil {
			return api.Written{}, err
		}
		w, err := write(ctx, r.Supervisor, who,
			&pb.Command{Change: &pb.Command_ChangeRuns{ChangeRuns: &pb.ChangeRuns{Change: &pb.ChangeRuns_Put{Put: put}}}})
		if !errors.Is(err, problem.Stale) || try == sealTries {
			return w, err
		}
	}
}

// sealTries is how often a value is encrypted again because it was changed meanwhile.
const sealTries = 5

// startTries is how often a run is prepared again because the state changed.
const startTries = 5

// Start starts a run. With problem.TooMany the run is recorded as rejected.
func (r *Runs) Start(ctx context.Context, who model.Caller, req api.StartRun) (api.Written, error) {
	m, _, err := leader(r.Supervisor)
	if err != nil {
		return api.Written{}, err
	}
	for try := 1; ; try++ {
		v := m.Machine.View()
		if w, ok := (view{View: v}).Answered(who); ok {
			return w, nil
		}
		p, err := runs.Prepare(v, who, runs.Start{
			Program: req.Program, Version: req.Version, Inline: req.Inline, Profile: req.Profile,
			Nodes: req.Nodes, Runtime: req.Runtime, Arguments: req.Arguments,
		}, r.Now(), r.Random())
		if err != nil {
			return api.Written{}, err
		}
		if pr, plain := profile.Plain(p.Run.Provisioner, profile.Values(p.Run.Properties)); plain {
			uses := hostexec.Provider(pr.ProviderType, pr.Provisioner)
			err := r.HostExec.Ask(who, uses)
			if err == nil {
				err = r.HostExec.Ask(v.Acting(who.Tenant, p.Run.Program.Author), uses)
			}
			if err != nil {
				return api.Written{}, err
			}
		}
		c, err := p.Command(who, nil, 0)
		if err != nil {
			return api.Written{}, err
		}
		a, err := propose(ctx, r.Supervisor, who, c)
		if errors.Is(err, problem.Stale) && try < startTries {
			continue
		}
		return written(a), err
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
