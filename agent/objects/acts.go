package objects

import (
	"context"
	"fmt"
	"time"

	"github.com/coopr/coopr/engine/change/object"
	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/internal/mask"
	pb "github.com/coopr/coopr/rpc/proto"
)

// watchLease is how often the lease is checked while an act runs under it.
const watchLease = 50 * time.Millisecond

// begin begins an act of an object. The act waits if another one runs for the object, and
// is held if the lease does not allow it now.
func (sr *siteRunner) begin(ctx context.Context, t todo) {
	x := sr.host.Object(t.act.ID)
	if x == nil || x.Incarnation() != t.inc {
		return // the object's life is over
	}
	if on := sr.running[t.act.ID]; on != nil {
		on.next = append(on.next, t)
		return
	}
	if sr.paused || !sr.r.mayAct(sr.session) {
		sr.held = append(sr.held, t)
		return
	}
	j, typ, err := sr.job(t.act.ID)
	if err != nil {
		typ = x.Def().Type
		j = &Job{Tenant: sr.key.tenant, Site: sr.key.name, Object: &site.Object{Name: x.Def().Name}}
		sr.answer(x, &running{todo: t}, j, typ, outcome{err: err}, sr.r.now())
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	on := &running{todo: t, cancel: cancel}
	sr.running[t.act.ID] = on
	session := sr.session
	sr.r.work.Go(func() {
		defer cancel()
		out := sr.perform(ctx, session, j, typ, t)
		sr.post(func(sr *siteRunner, now int64) { sr.ended(ctx, on, j, typ, out, now) })
	})
}

// outcome is the outcome of an act.
type outcome struct {
	state   object.State // of a check
	err     error
	message string
	late    bool // it was not begun, as the lease did not allow it any more
}

// perform carries out an act. It runs in a goroutine of its own.
func (sr *siteRunner) perform(ctx context.Context, session string, j *Job, typ *object.Type, t todo) (out outcome) {
	select {
	case sr.r.slots <- struct{}{}:
		defer func() { <-sr.r.slots }()
	case <-ctx.Done():
		return outcome{err: ctx.Err()}
	}
	// The last moment before anything happens: see worker.InTouch.
	if !sr.r.mayAct(session) {
		return outcome{late: true}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		tick := time.NewTicker(watchLease)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if !sr.r.cfg.InTouch() {
					cancel() // another agent may act for the object soon
				}
			}
		}
	}()
	defer func() { cancel(); <-watched }()
	if t.act.What == object.Run {
		return outcome{err: sr.r.cfg.Performer.Run(ctx, j, typ.Actions[t.act.Transition.Action])}
	}
	name, note, err := sr.r.cfg.Performer.Check(ctx, j)
	out = outcome{err: err, message: note}
	if err == nil && name != "" {
		var ok bool
		if out.state, ok = typ.State(name); !ok {
			out.err = fmt.Errorf("the check found state %q, which type %s does not have", name, typ.Name)
		}
	}
	return out
}

// ended handles the end of an act.
func (sr *siteRunner) ended(_ context.Context, on *running, j *Job, typ *object.Type, out outcome, now int64) {
	id := on.act.ID
	delete(sr.running, id)
	if sr.host == nil {
		return
	}
	if out.late {
		sr.held = append(sr.held, on.todo)
	} else if x := sr.host.Object(id); x != nil && x.Incarnation() == on.inc {
		sr.answer(x, on, j, typ, out, now)
	}
	sr.held = append(sr.held, on.next...) // step begins the next one
}

// answer passes the outcome of an act to its object, and notes it for the leader.
func (sr *siteRunner) answer(x *object.Object, on *running, j *Job, typ *object.Type, out outcome, now int64) {
	id := x.Def().ID
	text := out.message
	if out.err != nil {
		text = out.err.Error()
	}
	text = mask.New(j.Secrets...).Text(text)
	if on.probe != 0 {
		sr.probed = append(sr.probed, &pb.Probed{Id: uint32(id), Probe: on.probe, State: uint32(out.state), Message: text})
		return
	}
	if sr.messages[id] != text {
		sr.messages[id] = text
		sr.dirty[id] = true
	}
	if on.act.What == object.Check {
		if out.err != nil {
			sr.note(x.Def().Name, "failed", "check: "+text)
		}
		sr.event(id, object.Event{What: object.Checked, State: out.state}, now)
		return
	}
	m := on.act.Transition
	step := fmt.Sprintf("%s: %s → %s", typ.Actions[m.Action], typ.States[m.From], typ.States[m.To])
	if out.err != nil {
		sr.note(j.Object.Name, "failed", step+": "+text)
	} else {
		sr.note(j.Object.Name, "moved", step)
	}
	sr.event(id, object.Event{What: object.Done, OK: out.err == nil}, now)
}
