package runs

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/coopr/coopr/consensus/duty/loop"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/access"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/profile"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Config configures a Controller. Zero times and numbers take the defaults.
type Config struct {
	Machine *state.Machine
	Propose func(ctx context.Context, commands ...*pb.Command) ([]state.Answer, error)
	// Provisioner returns the provisioner that makes the clusters of a run, and reports
	// false if no agent offers it.
	Provisioner func(v *state.View, r *profile.Run) (Provisioner, profile.Spec, bool)
	Programs    Programs
	// Opener decrypts secrets.
	Opener state.Opener
	// Random returns the random part of the ids of runs that schedules start.
	Random func() uint32
	Logger *slog.Logger
	// Parallel is how many runs are worked on at a time; default 64.
	Parallel int
	// Keep is how long runs that are over are kept (default 30 days), and Most how many
	// of them (default 10,000).
	Keep time.Duration
	Most int
}

// Programs carries out the programs of runs.
type Programs interface {
	// Begin starts a run's program and returns the id of its plan. Further calls for
	// the same run return the same plan.
	Begin(ctx context.Context, r *profile.Run) (operation string, err error)
	// Status returns the status of a run's program and the reason for it. It reports
	// false if nothing is known of the program any more.
	Status(v *state.View, r *profile.Run) (s profile.Status, why string, ok bool)
	// Abort stops a run's program. It may be called again.
	Abort(ctx context.Context, r *profile.Run) error
}

// Controller carries out runs and starts those of schedules. It is made for one term
// and keeps no state of its own but a cache of policies: the next act follows from the record of the run.
type Controller struct {
	cfg  Config
	sets access.Sets // the policies by which the runs of schedules are permitted
	runs *loop.Queue[state.RunKey]
	// chores is a queue of its own, so that slow provisioners do not delay schedules.
	chores *loop.Queue[chore]
}

// chore is work that is not about one run.
type chore int

const (
	schedules chore = iota // start the runs of schedules that are due
	prune                  // remove runs that ended long ago
)

// New returns the controller of one term.
func New(cfg Config) *Controller {
	if cfg.Parallel == 0 {
		cfg.Parallel = 64
	}
	if cfg.Keep == 0 {
		cfg.Keep = 30 * 24 * time.Hour
	}
	if cfg.Most == 0 {
		cfg.Most = 10_000
	}
	c := &Controller{cfg: cfg}
	c.runs = loop.New(loop.Config[state.RunKey]{Reconcile: c.reconcile, Parallel: cfg.Parallel})
	c.chores = loop.New(loop.Config[chore]{Reconcile: c.do, Failed: func(_ chore, err error, pause time.Duration) {
		cfg.Logger.Warn("old runs could not be removed; it is tried again after a pause", "error", err, "pause", pause)
	}})
	return c
}

// Name returns the name of the duty.
func (c *Controller) Name() string { return "runs" }

// Restore does nothing: Run adds all runs and schedules.
func (c *Controller) Restore(context.Context) error { return nil }

func (c *Controller) addAll() {
	for _, r := range c.cfg.Machine.View().LiveRuns() {
		c.runs.Add(state.RunKey{Tenant: r.Tenant, ID: r.ID})
	}
	c.chores.Add(schedules)
}

// Run carries runs out until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	stop := c.cfg.Machine.Watch(c.changed)
	defer stop()
	c.addAll()          // after Watch, so that no change falls between
	c.chores.Add(prune) // without a pause, because terms may be short
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error { return c.runs.Run(ctx) })
	both.Go(func() error { return c.chores.Run(ctx) })
	return both.Wait()
}

// changed adds what a batch changed.
func (c *Controller) changed(b state.Batch) {
	if b.Anew() {
		c.addAll()
	}
	c.runs.Add(b.Runs...)
	if b.Schedules {
		c.chores.Add(schedules)
	}
	if len(b.Operations) == 0 {
		return
	}
	v := c.cfg.Machine.View()
	for id := range b.Operations {
		if op, ok := v.Operation("", id); ok {
			if r, ok := v.RunOf(op.Tenant, op.Cluster); ok {
				c.runs.Add(state.RunKey{Tenant: r.Tenant, ID: r.ID})
			}
		}
	}
}

// do carries out a chore. It returns when the chore is due again.
func (c *Controller) do(ctx context.Context, what chore) (time.Time, error) {
	v, now := c.cfg.Machine.View(), time.Now()
	if held := v.Hold() != nil; held && what == schedules {
		return time.Time{}, nil // added again when the hold ends
	} else if held {
		return now.Add(time.Hour), nil // runs that a person may want to see
	}
	if what == schedules {
		return later(c.fireAll(ctx, v, now), now), nil
	}
	return now.Add(time.Hour), c.pruneAll(ctx, v, now)
}

// later returns at, or soon after now if at has passed. The zero time stays.
func later(at, now time.Time) time.Time {
	if soon := now.Add(time.Millisecond); !at.IsZero() && at.Before(soon) {
		return soon
	}
	return at
}

// reconcile carries out the next act of a run. It returns when the run has to be
// reconciled again if nothing changes before.
func (c *Controller) reconcile(ctx context.Context, key state.RunKey) (time.Time, error) {
	v := c.cfg.Machine.View()
	r, ok := v.Run(key.Tenant, key.ID)
	if !ok || v.Hold() != nil { // all are added when the hold ends
		return time.Time{}, nil
	}
	var again time.Time
	act, due := r.Next(time.Now().UnixMilli())
	if act != profile.Nothing {
		if pause := c.act(ctx, r, act); pause > 0 {
			again = time.Now().Add(pause)
		}
	}
	if at := time.UnixMilli(due); due > 0 && (again.IsZero() || at.Before(again)) {
		again = at
	}
	return later(again, time.Now()), nil
}

// followPause is the time between two polls of a resource that does not report its changes.
// writePause is the pause after an event that could not be written.
const (
	followPause = 30 * time.Second
	writePause  = time.Second
)

// act carries out one act of a run. It returns the time after which the run is examined again
// if nothing changes, or 0 if a change will follow.
func (c *Controller) act(ctx context.Context, r *profile.Run, act profile.Act) time.Duration {
	switch act {
	case profile.Create, profile.Poll, profile.Initialize, profile.Delete:
		return c.provision(ctx, r, act)
	case profile.Begin:
		return c.begin(ctx, r)
	case profile.Follow, profile.Abort:
		return c.follow(ctx, r, act == profile.Abort)
	case profile.Expire:
		return c.record(ctx, r, profile.Event{Kind: profile.Expired})
	case profile.GiveUp:
		return c.record(ctx, r, profile.Event{Kind: profile.Overdue})
	case profile.TimeOut:
		return c.record(ctx, r, profile.Event{Kind: profile.TimedOut})
	}
	return 0
}

// record proposes an event of a run. The state refuses the event if the record has
// changed since; that change adds the run again. The result is that of act.
func (c *Controller) record(ctx context.Context, r *profile.Run, e profile.Event) time.Duration {
	change, err := logformat.RunEvent(r.ID, r.Version, e)
	if err != nil {
		c.cfg.Logger.Error("an event of a run cannot be written", "run", r.ID, "error", err)
		return followPause
	}
	answers, err := c.cfg.Propose(ctx, &pb.Command{Tenant: r.Tenant, Actor: model.Self, Change: change})
	switch {
	case err != nil:
		if ctx.Err() == nil {
			c.cfg.Logger.Debug("an event of a run was not written", "run", r.ID, "event", e.Kind, "error", err)
		}
		return writePause
	case answers[0].Err != nil:
		return writePause
	}
	return 0
}

// provision makes one call to a run's provisioner and records the outcome. The result is that of
// act.
func (c *Controller) provision(ctx context.Context, r *profile.Run, act profile.Act) time.Duration {
	v := c.cfg.Machine.View()
	p, spec, ok := c.cfg.Provisioner(v, r)
	t := r.Current()
	if !ok {
		return c.record(ctx, r, profile.Event{Kind: profile.CallFailed, Before: true,
			Error: "there is no provisioner " + r.Provisioner + ": no agent offers it"})
	}
	var values map[string]string
	var err error
	if t.Type == profile.Deprovision {
		values, err = v.ProvisionedProperties(c.cfg.Opener, r)
	} else {
		values, err = v.RunProperties(c.cfg.Opener, r)
	}
	first := act == profile.Create && r.Cluster.Requested == 0
	if err == nil && first {
		err = r.Fits(spec, profile.Values(r.Properties))
	}
	if err != nil {
		return c.record(ctx, r, profile.Event{Kind: profile.CallFailed, Before: true, Error: err.Error()})
	}
	if first {
		return c.record(ctx, r, profile.Event{Kind: profile.Asking})
	}
	in := Request{Run: r, Properties: values, Deprovision: t.Type == profile.Deprovision}
	var e profile.Event
	switch act {
	case profile.Create:
		var made Made
		made, err = p.Create(ctx, in)
		e = profile.Event{Kind: profile.Returned, Cluster: made.Cluster, ID: made.ID, Operation: made.Operation}
	case profile.Poll:
		e.Kind = profile.Saw
		e.Seen, e.Message, err = p.Status(ctx, in)
	case profile.Initialize:
		e.Kind = profile.Ready
		e.Cluster, err = p.Initialize(ctx, in)
	case profile.Delete:
		e.Kind = profile.Requested
		e.Operation, err = p.Delete(ctx, in)
	}
	switch {
	case ctx.Err() != nil:
		return writePause // the next leader makes the call again
	case errors.Is(err, ErrLater):
		return p.Poll()
	case err != nil:
		c.cfg.Logger.Debug("a call to a provisioner failed", "run", r.ID, "call", act, "error", err)
		return c.record(ctx, r, profile.Event{Kind: profile.CallFailed, Error: err.Error(), Retryable: Retryable(err)})
	}
	if _, err := r.Apply(e, time.Now().UnixMilli()); errors.Is(err, profile.ErrIgnored) {
		return p.Poll() // nothing to write down
	}
	return c.record(ctx, r, e)
}

// begin starts a run's program.
func (c *Controller) begin(ctx context.Context, r *profile.Run) time.Duration {
	if r.Halt != nil {
		return c.record(ctx, r, profile.Event{Kind: profile.ProgramIs, Status: profile.Killed})
	}
	op, err := c.cfg.Programs.Begin(ctx, r)
	switch {
	case err == nil:
		return c.record(ctx, r, profile.Event{Kind: profile.Begun, Operation: op})
	case ctx.Err() != nil, Retryable(err), errors.Is(err, ErrLater):
		return writePause
	}
	return c.record(ctx, r, profile.Event{Kind: profile.ProgramIs, Status: profile.Failed, Message: "it could not be begun: " + err.Error()})
}

// follow records the status of a run's program. If abort is true and the program has not ended, it
// aborts the program instead. The result is that of act.
func (c *Controller) follow(ctx context.Context, r *profile.Run, abort bool) time.Duration {
	v := c.cfg.Machine.View()
	s, why, ok := c.cfg.Programs.Status(v, r)
	switch {
	case !ok:
		return c.record(ctx, r, profile.Event{Kind: profile.ProgramIs, Status: profile.Failed,
			Message: "the outcome of its plan is not known any more"})
	case abort && !s.Ended():
		if err := c.cfg.Programs.Abort(ctx, r); err != nil {
			c.cfg.Logger.Debug("a program could not be stopped yet", "run", r.ID, "error", err)
			return writePause
		}
		return followPause
	}
	e := profile.Event{Kind: profile.ProgramIs, Status: s, Message: why}
	if _, err := r.Apply(e, time.Now().UnixMilli()); err != nil {
		return followPause
	}
	return c.record(ctx, r, e)
}

// pruneAll removes the runs that ended long ago.
func (c *Controller) pruneAll(ctx context.Context, v *state.View, now time.Time) error {
	var old []string
	kept := 0
	for _, r := range v.Runs("") { // the newest first
		if !r.Over() || r.Lost() {
			continue
		}
		if kept++; kept > c.cfg.Most || now.Sub(time.UnixMilli(max(r.Ended, r.Cluster.Down))) > c.cfg.Keep {
			old = append(old, r.Tenant+"/"+r.ID)
		}
	}
	if len(old) == 0 {
		return nil
	}
	_, err := c.cfg.Propose(ctx, &pb.Command{Change: &pb.Command_ChangeRuns{ChangeRuns: &pb.ChangeRuns{
		Change: &pb.ChangeRuns_Prune{Prune: &pb.PruneRuns{Runs: old}},
	}}})
	return err
}
