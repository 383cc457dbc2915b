package runs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/access"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/profile"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Start is a request for a run.
type Start struct {
	// Program is the name of a program and Version its version (0: the latest). Instead of
	// both, Inline may be a program that is not stored.
	Program string
	Version int
	Inline  *profile.Program
	// Profile chooses a profile, and Nodes overrides its number of nodes. Both are short
	// for runtime arguments; "" and 0 mean that there is none.
	Profile string
	Nodes   int
	// Runtime are the runtime arguments.
	Runtime   map[string]string
	Arguments []string
}

// Prepared is a run that can be started.
type Prepared struct {
	Run *profile.Run
	// Version is the version of the profile that the run was made from.
	Version uint64
	Levels  profile.Levels
}

// Prepare returns the run that a request asks for, created at now. It fails with
// problem.NotFound, problem.Conflict (the profile is disabled) or model.Faults.
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
	fs := profile.CheckSettings(levels[profile.OfRun], profile.OfRun)
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
		return nil, problem.New(problem.NotFound, "there is no profile %s", ref)
	case p.Status == profile.Disabled:
		return nil, problem.New(problem.Conflict, "profile %s is disabled: enable it, or choose another", ref)
	}
	r := profile.New(profile.NewID(now.UnixMilli(), random), who.Tenant, *prog, now.UnixMilli())
	r.Of(&p, levels)
	r.Actor, r.Runtime, r.Arguments = who.Actor, levels[3], s.Arguments
	if err := v.MayStart(who, r); err != nil {
		return nil, err
	}
	fs = profile.OutOfRange(r.Properties)
	for _, spec := range v.Provisioners(who.Tenant) {
		if spec.Name == r.Provisioner {
			fs = append(fs, spec.Validate(profile.Values(r.Properties))...)
		}
	}
	if len(fs) > 0 {
		return nil, fs
	}
	return &Prepared{Run: r, Version: p.Version, Levels: levels}, nil
}

// program returns the program that a request names or contains.
func program(v *state.View, who model.Caller, s Start) (*profile.Program, error) {
	if s.Inline != nil {
		p := *s.Inline
		p.Version = 0 // it is not stored
		p.Complete()
		if fs := p.Check(); len(fs) > 0 {
			for _, f := range fs {
				f.Path = "inline." + f.Path
			}
			return nil, fs
		}
		p.Author = who.Actor
		return &p, nil
	}
	p, ok := v.Program(who.Tenant, s.Program, s.Version)
	if !ok {
		what := fmt.Sprintf("program %q", s.Program)
		if s.Version > 0 {
			what += fmt.Sprintf(" of version %d", s.Version)
		}
		return nil, problem.New(problem.NotFound, "there is no %s", what)
	}
	return &p, nil
}

// Command returns the command that starts a prepared run. For a run of a schedule the
// command also updates the schedule: sched is its new value, and version is the version
// that sched replaces. Without a run in p the command only updates the schedule.
func (p *Prepared) Command(who model.Caller, sched *profile.Schedule, version uint64) (*pb.Command, error) {
	s := &pb.StartRun{ScheduleVersion: version}
	var errs [2]error
	if p.Run != nil {
		s.ProfileVersion = p.Version
		s.Run, errs[0] = logformat.EncodeRun(p.Run)
		s.Levels = logformat.EncodeLevels(p.Levels)
	}
	if sched != nil {
		s.Schedule, errs[1] = logformat.EncodeSchedule(sched)
	}
	return logformat.By(who, &pb.Command{Change: &pb.Command_ChangeRuns{ChangeRuns: &pb.ChangeRuns{
		Change: &pb.ChangeRuns_Start{Start: s},
	}}}), errors.Join(errs[:]...)
}

// fireAll starts the runs of schedules that are due. It returns the time at which the
// next run is due, or the zero time if there is none.
func (c *Controller) fireAll(ctx context.Context, v *state.View, now time.Time) time.Time {
	var next time.Time
	sooner := func(at time.Time) {
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	for _, s := range v.Schedules("") {
		if s.Status == profile.Disabled || s.Status == profile.SuspendedSchedule {
			continue
		}
		start, missed, due := s.Due(now.UnixMilli())
		if due > 0 {
			sooner(time.UnixMilli(due))
		}
		if len(start) == 0 && missed == 0 {
			continue
		}
		if err := c.fireOne(ctx, s, start, missed); err != nil && ctx.Err() == nil {
			c.cfg.Logger.Warn("the due runs of a schedule could not be handled", "tenant", s.Tenant, "schedule", s.Name, "error", err)
			sooner(now.Add(10 * time.Second))
		}
	}
	return next
}

// fireOne starts the due runs of one schedule.
func (c *Controller) fireOne(ctx context.Context, s profile.Schedule, start []int64, missed int) error {
	for i, at := range start {
		v := c.cfg.Machine.View()
		have, ok := v.Schedule(s.Tenant, s.Name)
		if !ok || have.Version != s.Version {
			return nil // the schedule has changed: that change adds the chore again
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
					if err := c.replace(ctx, have, running); err != nil {
						return err
					}
				}
				if at == have.Waits {
					continue // the run waits already
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
		who := v.Acting(s.Tenant, have.Actor)
		if next.Waits == 0 && next.Message == "" {
			var err error
			if err = c.permit(v, who, have.Program); err == nil {
				p, err = Prepare(v, who, Start{Program: have.Program, Runtime: have.Properties, Arguments: have.Arguments}, time.Now(), c.cfg.Random())
			}
			if errors.Is(err, problem.Forbidden) && v.FeatureLevel() >= logformat.SuspendLevel {
				return c.suspend(ctx, next, have.Version, at, err)
			}
			if err != nil {
				p = &Prepared{}
				next.Skipped++
				next.Message = fmt.Sprintf("the run of %s could not begin: %v", stamp(at), err)
			} else {
				p.Run.Schedule, p.Run.Due = s.Name, at
			}
		}
		command, err := p.Command(who, &next, have.Version)
		if err != nil {
			return err
		}
		answers, err := c.cfg.Propose(ctx, command)
		if err == nil && !errors.Is(answers[0].Err, problem.TooMany) {
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
	command, err := (&Prepared{}).Command(model.Caller{Tenant: s.Tenant, Actor: model.Self}, &next, s.Version)
	if err != nil {
		return err
	}
	_, err = c.cfg.Propose(ctx, command)
	return err
}

// permit returns problem.Forbidden if the user of a schedule is gone, or may not start runs of its program any more.
func (c *Controller) permit(v *state.View, who model.Caller, program string) error {
	if who.Role == "" {
		return problem.New(problem.Forbidden, "no user and no token of %s is called %q any more", who.Tenant, who.Actor)
	}
	d := c.sets.Of(v, who.Tenant).Decide(&access.Request{
		Principal: access.OfCaller(who), Action: access.Execute, Context: access.Context{Now: time.Now().UnixMilli(), Method: "token"},
		Resource: access.Named(access.TypeProgram, who.Tenant, program),
	})
	if !d.Allowed {
		return d.Refusal(who, "execute program "+program)
	}
	return nil
}

// suspend suspends a schedule whose run of a time must not begin, because of why.
func (c *Controller) suspend(ctx context.Context, next profile.Schedule, version uint64, at int64, why error) error {
	next.Status, next.Waits = profile.SuspendedSchedule, 0
	next.Skipped++
	next.Message = fmt.Sprintf("the run of %s must not begin: %v; somebody with the right has to write the schedule again", stamp(at), why)
	command, err := (&Prepared{}).Command(model.Caller{Tenant: next.Tenant, Actor: model.Self}, &next, version)
	if err != nil {
		return err
	}
	answers, err := c.cfg.Propose(ctx, command)
	if err == nil {
		err = answers[0].Err
	}
	return err
}

// replace stops as many of a schedule's oldest runs as it takes for another one to begin.
func (c *Controller) replace(ctx context.Context, s profile.Schedule, running []*profile.Run) error {
	for _, r := range running[:len(running)-s.MaxRuns+1] {
		if r.Halt != nil {
			continue // it is being stopped
		}
		if err := c.order(ctx, r, profile.Event{Kind: profile.Stop, Reason: "replaced by the next run of schedule " + s.Name}); err != nil {
			return err
		}
	}
	return nil
}

func stamp(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02 15:04Z") }

// order proposes an order about a run, whatever the version of its record is.
func (c *Controller) order(ctx context.Context, r *profile.Run, e profile.Event) error {
	change, err := logformat.RunEvent(r.ID, 0, e)
	if err != nil {
		return err
	}
	answers, err := c.cfg.Propose(ctx, &pb.Command{Tenant: r.Tenant, Actor: model.Self, Change: change})
	if err == nil && !errors.Is(answers[0].Err, problem.Conflict) {
		err = answers[0].Err
	}
	return err
}
