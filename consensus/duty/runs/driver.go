package runs

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/profile"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Config of a Driver. Zero times and numbers take the defaults.
type Config struct {
	Machine *state.Machine
	Propose func(ctx context.Context, commands ...*pb.Command) ([]state.Answer, error)
	// Provisioner gives who makes the clusters of a run; false: no such thing is offered.
	Provisioner func(v *state.View, r *profile.Run) (Provisioner, profile.Spec, bool)
	Programs    Programs
	// Random gives ids of runs that schedules start.
	Random func() uint32
	Logger *slog.Logger
	// Parallel is how many calls go on at a time; 64.
	Parallel int
	// Keep is how long runs are kept that are over, and Most how many: 30 days, 10,000.
	Keep time.Duration
	Most int
}

// Programs carries out the programs of runs.
type Programs interface {
	// Begin begins a run's program once, whoever asks how often, and gives the id of its plan.
	Begin(ctx context.Context, r *profile.Run) (operation string, err error)
	// Status says where it stands and why; false: nothing is known of it any more.
	Status(v *state.View, r *profile.Run) (s profile.Status, why string, ok bool)
	// Abort ends what of it runs. It may be asked again.
	Abort(ctx context.Context, r *profile.Run) error
}

// Driver is the duty. It is made for one term. One goroutine, Run's, owns what it
// knows; calls go on in others and leave what comes next.
type Driver struct {
	cfg Config

	mu         sync.Mutex
	dirty      map[state.RunKey]bool
	operations map[string]bool // that changed
	all        bool            // everything may have changed
	schedules  bool
	wake       chan struct{}

	// Run's own:
	due   map[state.RunKey]time.Time // when to look at runs again
	busy  map[state.RunKey]bool      // a call is under way
	again map[state.RunKey]bool      // changed meanwhile
	ended chan outcome
	slots chan struct{}
	calls sync.WaitGroup
	fire  time.Time // when to look at schedules
	prune time.Time
}

// outcome is the end of a call.
type outcome struct {
	key state.RunKey
	// after is when to look again if nothing changes; 0: there is no need.
	after time.Duration
}

// New makes the driver of one term.
func New(cfg Config) *Driver {
	if cfg.Parallel == 0 {
		cfg.Parallel = 64
	}
	if cfg.Keep == 0 {
		cfg.Keep = 30 * 24 * time.Hour
	}
	if cfg.Most == 0 {
		cfg.Most = 10_000
	}
	return &Driver{
		cfg: cfg, dirty: map[state.RunKey]bool{}, operations: map[string]bool{}, wake: make(chan struct{}, 1),
		due: map[state.RunKey]time.Time{}, busy: map[state.RunKey]bool{}, again: map[state.RunKey]bool{},
		ended: make(chan outcome), slots: make(chan struct{}, cfg.Parallel),
	}
}

// Name names the duty.
func (d *Driver) Name() string { return "runs" }

// Restore has all runs looked at once.
func (d *Driver) Restore(context.Context) error {
	d.all = true
	return nil
}

// Run carries runs out until ctx ends.
func (d *Driver) Run(ctx context.Context) error {
	stop := d.cfg.Machine.Watch(d.changed)
	defer stop()
	defer d.calls.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	d.prune = time.Now().Add(time.Minute)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-d.wake:
		case <-timer.C:
		case o := <-d.ended:
			d.landed(o)
		}
		d.round(ctx, time.Now())
		timer.Reset(d.next(time.Now()))
	}
}

// changed notes what a batch changed.
func (d *Driver) changed(b state.Batch) {
	if len(b.Runs)+len(b.Operations) == 0 && !b.Schedules && !b.Restored {
		return
	}
	d.mu.Lock()
	for _, k := range b.Runs {
		d.dirty[k] = true
	}
	for id := range b.Operations {
		d.operations[id] = true
	}
	d.schedules = d.schedules || b.Schedules
	d.all = d.all || b.Restored
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// landed takes the end of a call.
func (d *Driver) landed(o outcome) {
	delete(d.busy, o.key)
	if d.again[o.key] {
		delete(d.again, o.key)
		d.due[o.key] = time.Time{}
		return
	}
	if o.after > 0 {
		d.due[o.key] = time.Now().Add(o.after)
	}
}

// next gives the time until something is due.
func (d *Driver) next(now time.Time) time.Duration {
	wait := d.prune.Sub(now)
	if !d.fire.IsZero() {
		wait = min(wait, d.fire.Sub(now))
	}
	for _, at := range d.due {
		wait = min(wait, at.Sub(now))
	}
	return max(wait, 0)
}

// round looks at what changed, and at what is due.
func (d *Driver) round(ctx context.Context, now time.Time) {
	v := d.cfg.Machine.View()
	d.mu.Lock()
	keys, operations, all, schedules := d.dirty, d.operations, d.all, d.schedules
	d.dirty, d.operations, d.all, d.schedules = map[state.RunKey]bool{}, map[string]bool{}, false, false
	d.mu.Unlock()
	for id := range operations {
		if op, ok := v.Operation("", id); ok {
			if r, ok := v.RunOf(op.Tenant, op.Cluster); ok {
				keys[state.RunKey{Tenant: r.Tenant, ID: r.ID}] = true
			}
		}
	}
	if all {
		for _, r := range v.LiveRuns() {
			keys[state.RunKey{Tenant: r.Tenant, ID: r.ID}] = true
		}
	}
	for k, at := range d.due {
		if !at.After(now) {
			keys[k] = true
		}
	}
	for k := range keys {
		if d.busy[k] {
			d.again[k] = true
			continue
		}
		delete(d.due, k)
		if r, ok := v.Run(k.Tenant, k.ID); ok {
			d.look(ctx, k, r, now)
		}
	}
	if schedules || all || !d.fire.IsZero() && !d.fire.After(now) {
		d.fire = d.fireAll(ctx, v, now)
	}
	if !d.prune.After(now) {
		d.prune = now.Add(time.Hour)
		if err := d.pruneAll(ctx, v, now); err != nil && ctx.Err() == nil {
			d.cfg.Logger.Warn("old runs could not be removed", "error", err)
		}
	}
}

// look does what is to be done about a run.
func (d *Driver) look(ctx context.Context, k state.RunKey, r *profile.Run, now time.Time) {
	act, wake := r.Next(now.UnixMilli())
	if act == profile.Nothing {
		if wake > 0 {
			d.due[k] = time.UnixMilli(wake)
		}
		return
	}
	d.busy[k] = true
	d.calls.Go(func() {
		o := outcome{key: k}
		select {
		case d.slots <- struct{}{}:
			o.after = d.do(ctx, r, act)
			<-d.slots
		case <-ctx.Done():
		}
		if wake > 0 {
			if until := time.Until(time.UnixMilli(wake)); o.after == 0 || until < o.after {
				o.after = max(until, time.Millisecond)
			}
		}
		select {
		case d.ended <- o:
		case <-ctx.Done():
		}
	})
}

// Pauses of things that do not tell when they change, and of what could not be written.
const (
	followPause = 30 * time.Second
	writePause  = time.Second
)

// do carries one act out. It gives when to look again if nothing changes.
func (d *Driver) do(ctx context.Context, r *profile.Run, act profile.Act) time.Duration {
	switch act {
	case profile.Create, profile.Look, profile.Initialize, profile.Delete:
		return d.provision(ctx, r, act)
	case profile.Begin:
		return d.begin(ctx, r)
	case profile.Follow, profile.Abort:
		return d.follow(ctx, r, act == profile.Abort)
	case profile.Expire:
		return d.tell(ctx, r, profile.Event{Kind: profile.Expired})
	case profile.GiveUp:
		return d.tell(ctx, r, profile.Event{Kind: profile.Overdue})
	case profile.TimeOut:
		return d.tell(ctx, r, profile.Event{Kind: profile.TimedOut})
	}
	return 0
}

// tell proposes what happened to a run. The state refuses it where the record has
// changed since; that change has the run looked at again.
func (d *Driver) tell(ctx context.Context, r *profile.Run, e profile.Event) time.Duration {
	body, err := json.Marshal(e)
	if err != nil {
		d.cfg.Logger.Error("an event of a run cannot be written", "run", r.ID, "error", err)
		return followPause
	}
	answers, err := d.cfg.Propose(ctx, &pb.Command{Tenant: r.Tenant, Actor: model.Self, Change: &pb.Command_ChangeRuns{ChangeRuns: &pb.ChangeRuns{
		Change: &pb.ChangeRuns_Event{Event: &pb.RunEvent{Run: r.ID, Version: r.Version, Event: body}},
	}}})
	switch {
	case err != nil:
		if ctx.Err() == nil {
			d.cfg.Logger.Debug("an event of a run was not written", "run", r.ID, "event", e.Kind, "error", err)
		}
		return writePause
	case answers[0].Err != nil:
		return writePause
	}
	return 0
}

// provision makes one call to a run's provisioner.
func (d *Driver) provision(ctx context.Context, r *profile.Run, act profile.Act) time.Duration {
	v := d.cfg.Machine.View()
	p, spec, ok := d.cfg.Provisioner(v, r)
	t := r.Current()
	if !ok {
		return d.tell(ctx, r, profile.Event{Kind: profile.CallFailed, Before: true, Error: "there is no provisioner " + r.Provisioner + ": no agent offers it"})
	}
	values, err := profile.Reveal(profile.Values(r.Properties), func(name string) (string, bool) { return v.Secret(r.Tenant, name) })
	first := act == profile.Create && r.Cluster.Requested == 0
	if err == nil && first {
		err = r.Fits(spec, profile.Values(r.Properties))
	}
	if err != nil {
		return d.tell(ctx, r, profile.Event{Kind: profile.CallFailed, Before: true, Error: err.Error()})
	}
	if first {
		return d.tell(ctx, r, profile.Event{Kind: profile.Asking})
	}
	in := Request{Run: r, Properties: values, Deprovision: t.Type == profile.Deprovision}
	var e profile.Event
	switch act {
	case profile.Create:
		var made Made
		made, err = p.Create(ctx, in)
		e = profile.Event{Kind: profile.Returned, Cluster: made.Cluster, ID: made.ID, Operation: made.Operation}
	case profile.Look:
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
		return writePause // whoever leads next asks again
	case errors.Is(err, ErrLater):
		return p.Poll()
	case err != nil:
		d.cfg.Logger.Debug("a call to a provisioner failed", "run", r.ID, "call", act, "error", err)
		return d.tell(ctx, r, profile.Event{Kind: profile.CallFailed, Error: err.Error(), Retryable: Retryable(err)})
	}
	if _, err := r.Apply(e, time.Now().UnixMilli()); errors.Is(err, profile.ErrIgnored) {
		return p.Poll() // nothing to write down
	}
	return d.tell(ctx, r, e)
}

// begin begins a run's program.
func (d *Driver) begin(ctx context.Context, r *profile.Run) time.Duration {
	if r.Halt != nil {
		return d.tell(ctx, r, profile.Event{Kind: profile.ProgramIs, Status: profile.Killed})
	}
	op, err := d.cfg.Programs.Begin(ctx, r)
	switch {
	case err == nil:
		return d.tell(ctx, r, profile.Event{Kind: profile.Begun, Operation: op})
	case ctx.Err() != nil, Retryable(err), errors.Is(err, ErrLater):
		return writePause
	}
	return d.tell(ctx, r, profile.Event{Kind: profile.ProgramIs, Status: profile.Failed, Message: "it could not be begun: " + err.Error()})
}

// follow looks where a run's program stands.
func (d *Driver) follow(ctx context.Context, r *profile.Run, abort bool) time.Duration {
	v := d.cfg.Machine.View()
	s, why, ok := d.cfg.Programs.Status(v, r)
	switch {
	case !ok:
		return d.tell(ctx, r, profile.Event{Kind: profile.ProgramIs, Status: profile.Failed, Message: "what became of its plan is not known any more"})
	case abort && !s.Ended():
		if err := d.cfg.Programs.Abort(ctx, r); err != nil {
			d.cfg.Logger.Debug("a program could not be stopped yet", "run", r.ID, "error", err)
			return writePause
		}
		return followPause
	}
	e := profile.Event{Kind: profile.ProgramIs, Status: s, Message: why}
	if _, err := r.Apply(e, time.Now().UnixMilli()); err != nil {
		return followPause
	}
	return d.tell(ctx, r, e)
}

// pruneAll removes runs that were over long ago.
func (d *Driver) pruneAll(ctx context.Context, v *state.View, now time.Time) error {
	var old []string
	kept := 0
	for _, r := range v.Runs("") { // the newest first
		if !r.Over() || r.Lost() {
			continue
		}
		if kept++; kept > d.cfg.Most || now.Sub(time.UnixMilli(max(r.Ended, r.Cluster.Down))) > d.cfg.Keep {
			old = append(old, r.Tenant+"/"+r.ID)
		}
	}
	if len(old) == 0 {
		return nil
	}
	_, err := d.cfg.Propose(ctx, &pb.Command{Change: &pb.Command_ChangeRuns{ChangeRuns: &pb.ChangeRuns{
		Change: &pb.ChangeRuns_Prune{Prune: &pb.PruneRuns{Runs: old}},
	}}})
	return err
}
