package runs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/profile"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Start asks for a run.
type Start struct {
	// Program is the name of a program, Version the version (0: the latest); or Inline is a
	// program that is not kept.
	Program string
	Version int
	Inline  *profile.Program
	// Profile chooses a profile, Nodes overrides how many nodes it has; both stand for
	// runtime arguments, and are "" and 0 where there are none.
	Profile string
	Nodes   int
	// Runtime are the runtime arguments.
	Runtime   map[string]string
	Arguments []string
}

// Prepared is a run that could begin.
type Prepared struct {
	Run *profile.Run
	// Version is that of the profile that it was made from.
	Version uint64
	Levels  profile.Levels
}

// Prepare makes a run of a request at a time. It fails with state.ErrNotFound,
// state.ErrConflict (a disabled profile) and model.Faults.
func Prepare(v *state.View, who model.Caller, s Start, now time.Time, random uint32) (*Prepared, error) {
	prog, err := program(v, who, s)
	if err != nil {
		return nil, err
	}
	levels := v.Levels(who.Tenant, s.Program)
	levels[3] = maps.Clone(s.Runtime)
	if levels[3] == nil {
		levels[3] = map[string]string{}
	}
	if s.Profile != "" {
		levels[3][profile.ProfileKey] = s.Profile
	}
	if s.Nodes > 0 {
		levels[3][profile.PropertyPrefix+profile.PropNodes] = strconv.Itoa(s.Nodes)
	}
	fs := profile.CheckSettings(levels[3], false)
	if len(fs) > 0 {
		return nil, fs
	}
	ref, err := levels.Choose()
	if err != nil {
		fs.Add("profile", err.Error())
		return nil, fs
	}
	p, ok := v.Profile(who.Tenant, ref)
	switch {
	case !ok:
		return nil, fmt.Errorf("%w: there is no profile %s", state.ErrNotFound, ref)
	case p.Status == profile.Disabled:
		return nil, fmt.Errorf("%w: profile %s is disabled: enable it, or choose another", state.ErrConflict, ref)
	}
	r := profile.New(profile.NewID(now.UnixMilli(), random), who.Tenant, *prog, now.UnixMilli())
	r.Of(&p, levels)
	r.Actor, r.Runtime, r.Arguments = who.Actor, levels[3], s.Arguments
	for _, spec := range v.Provisioners(who.Tenant) {
		if spec.Name == r.Provisioner {
			if fs := spec.Validate(profile.Values(r.Properties)); len(fs) > 0 {
				return nil, fs
			}
		}
	}
	return &Prepared{Run: r, Version: p.Version, Levels: levels}, nil
}

// program finds what is to run.
func program(v *state.View, who model.Caller, s Start) (*profile.Program, error) {
	if s.Inline != nil {
		p := *s.Inline
		p.Complete()
		if fs := p.Check(); len(fs) > 0 {
			for _, f := range fs {
				f.Path = "inline." + f.Path
			}
			return nil, fs
		}
		return &p, nil
	}
	p, ok := v.Program(who.Tenant, s.Program, s.Version)
	if !ok {
		what := fmt.Sprintf("program %q", s.Program)
		if s.Version > 0 {
			what += fmt.Sprintf(" of version %d", s.Version)
		}
		return nil, fmt.Errorf("%w: there is no %s", state.ErrNotFound, what)
	}
	return &p, nil
}

// Command gives the command that begins a prepared run; sched, at its version, is the
// schedule as it will be, or nil.
func (p *Prepared) Command(who model.Caller, sched *profile.Schedule, version uint64) (*pb.Command, error) {
	s := &pb.StartRun{ScheduleVersion: version}
	var errs [3]error
	if p.Run != nil {
		s.ProfileVersion = p.Version
		s.Run, errs[0] = json.Marshal(p.Run)
		s.Levels, errs[1] = json.Marshal(p.Levels)
	}
	if sched != nil {
		s.Schedule, errs[2] = json.Marshal(sched)
	}
	return &pb.Command{RequestId: who.Request, Tenant: who.Tenant, Actor: who.Actor, Change: &pb.Command_ChangeRuns{ChangeRuns: &pb.ChangeRuns{
		Change: &pb.ChangeRuns_Start{Start: s},
	}}}, errors.Join(errs[:]...)
}

// fireAll starts what schedules have due, and gives when to look again.
func (d *Driver) fireAll(ctx context.Context, v *state.View, now time.Time) time.Time {
	var next time.Time
	sooner := func(at time.Time) {
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	for _, s := range v.Schedules("") {
		if s.Status == profile.Disabled {
			continue
		}
		start, missed, due := s.Due(now.UnixMilli())
		if due > 0 {
			sooner(time.UnixMilli(due))
		}
		if len(start) == 0 && missed == 0 {
			continue
		}
		if err := d.fireOne(ctx, s, start, missed); err != nil && ctx.Err() == nil {
			d.cfg.Logger.Warn("a schedule could not be carried out", "tenant", s.Tenant, "schedule", s.Name, "error", err)
			sooner(now.Add(10 * time.Second))
		}
	}
	return next
}

// fireOne starts the runs of one schedule that are due.
func (d *Driver) fireOne(ctx context.Context, s profile.Schedule, start []int64, missed int) error {
	for i, at := range start {
		v := d.cfg.Machine.View()
		have, ok := v.Schedule(s.Tenant, s.Name)
		if !ok || have.Version != s.Version {
			return nil // it has changed: it is looked at again
		}
		next := have
		next.Last, next.Message, next.Waits = max(next.Last, at), "", 0
		if i == 0 {
			next.Skipped += int64(missed)
		}
		running := v.ScheduledRuns(s.Tenant, s.Name)
		p := &Prepared{}
		if len(running) >= have.MaxRuns && have.Concurrency != profile.Allow {
			switch have.Concurrency {
			case profile.Queue, profile.Replace:
				if have.Concurrency == profile.Replace {
					if err := d.replace(ctx, have, running); err != nil {
						return err
					}
				}
				if at == have.Waits {
					continue // there is no room yet
				}
				if next.Waits = at; have.Waits > 0 {
					next.Skipped++
				}
				next.Message = fmt.Sprintf("the run of %s waits for the end of run %s", stamp(at), running[0].ID)
			default:
				next.Skipped++
				next.Message = fmt.Sprintf("the run of %s was left out: run %s goes on", stamp(at), running[0].ID)
			}
		}
		who := model.Caller{Tenant: s.Tenant, Actor: have.Actor, Role: model.RoleAdmin}
		if next.Waits == 0 && next.Message == "" {
			var err error
			p, err = Prepare(v, who, Start{Program: have.Program, Runtime: have.Properties, Arguments: have.Arguments}, time.Now(), d.cfg.Random())
			if err != nil {
				p = &Prepared{}
				next.Skipped++
				next.Message = fmt.Sprintf("the run of %s could not begin: %v", stamp(at), err)
			} else {
				p.Run.Schedule, p.Run.Due = s.Name, at
			}
		}
		c, err := p.Command(who, &next, have.Version)
		if err != nil {
			return err
		}
		answers, err := d.cfg.Propose(ctx, c)
		if err == nil && !errors.Is(answers[0].Err, state.ErrLimit) {
			err = answers[0].Err
		}
		if err != nil {
			return err
		}
		s.Version = answers[0].Index
	}
	if len(start) > 0 || missed == 0 {
		return nil
	}
	next := s
	next.Skipped += int64(missed)
	next.Last = time.Now().UnixMilli()
	c, err := (&Prepared{}).Command(model.Caller{Tenant: s.Tenant, Actor: model.Self}, &next, s.Version)
	if err != nil {
		return err
	}
	_, err = d.cfg.Propose(ctx, c)
	return err
}

// replace stops the oldest runs of a schedule, as many as stand in the way of another.
func (d *Driver) replace(ctx context.Context, s profile.Schedule, running []*profile.Run) error {
	for _, r := range running[:len(running)-s.MaxRuns+1] {
		if r.Halt != nil {
			continue // its end is under way
		}
		if err := d.order(ctx, r, profile.Event{Kind: profile.Stop, Reason: "replaced by the next run of schedule " + s.Name}); err != nil {
			return err
		}
	}
	return nil
}

func stamp(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02 15:04Z") }

// order gives an order about a run by itself.
func (d *Driver) order(ctx context.Context, r *profile.Run, e profile.Event) error {
	body, err := json.Marshal(e)
	if err != nil {
		return err
	}
	answers, err := d.cfg.Propose(ctx, &pb.Command{Tenant: r.Tenant, Actor: model.Self, Change: &pb.Command_ChangeRuns{ChangeRuns: &pb.ChangeRuns{
		Change: &pb.ChangeRuns_Event{Event: &pb.RunEvent{Run: r.ID, Event: body}},
	}}})
	if err == nil && !errors.Is(answers[0].Err, state.ErrConflict) {
		err = answers[0].Err
	}
	return err
}
