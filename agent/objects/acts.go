package objects

import (
	"context"
	"fmt"
	"time"

	"github.com/coopr/coopr/engine/change/object"
	"github.com/coopr/coopr/engine/change/site"
	pb "github.com/coopr/coopr/rpc/proto"
)

// watchLease is how often the lease is looked at while something runs under it.
const watchLease = 50 * time.Millisecond

// begin does something for an object, or puts it behind what is done for the
// object already, or aside where the lease does not allow it now.
func (c *cell) begin(ctx context.Context, t todo) {
	x := c.home.Object(t.act.ID)
	if x == nil || x.Incarnation() != t.inc {
		return // for a life that is over
	}
	if on := c.running[t.act.ID]; on != nil {
		on.next = append(on.next, t)
		return
	}
	if c.paused || !c.r.mayAct(c.session) {
		c.held = append(c.held, t)
		return
	}
	j, typ, err := c.job(t.act.ID)
	if err != nil {
		typ = x.Def().Type
		j = &Job{Tenant: c.key.tenant, Site: c.key.name, Object: &site.Object{Name: x.Def().Name}}
		c.tell(x, &running{todo: t}, j, typ, outcome{err: err}, c.r.now())
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	on := &running{todo: t, cancel: cancel}
	c.running[t.act.ID] = on
	session := c.session
	c.acting.Add(1)
	go func() {
		defer c.acting.Done()
		defer cancel()
		out := c.perform(ctx, session, j, typ, t)
		c.post(func(now int64) { c.ended(ctx, on, j, typ, out, now) })
	}()
}

// outcome is how an act ended.
type outcome struct {
	state   object.State // of a check
	err     error
	message string
	late    bool // it was not begun: the lease did not allow it any more
}

// perform runs beside the cell.
func (c *cell) perform(ctx context.Context, session string, j *Job, typ *object.Type, t todo) (out outcome) {
	select {
	case c.r.slots <- struct{}{}:
		defer func() { <-c.r.slots }()
	case <-ctx.Done():
		return outcome{err: ctx.Err()}
	}
	// The last moment before anything happens: see worker.InTouch.
	if !c.r.mayAct(session) {
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
				if !c.r.cfg.InTouch() {
					cancel() // another home may act for the object soon
				}
			}
		}
	}()
	defer func() { cancel(); <-watched }()
	if t.act.What == object.Run {
		return outcome{err: c.r.cfg.Performer.Run(ctx, j, typ.Actions[t.act.Transition.Action])}
	}
	name, note, err := c.r.cfg.Performer.Check(ctx, j)
	out = outcome{err: err, message: note}
	if err == nil && name != "" {
		var ok bool
		if out.state, ok = typ.State(name); !ok {
			out.err = fmt.Errorf("the check found state %q, which type %s does not have", name, typ.Name)
		}
	}
	return out
}

// ended takes the end of an act, and begins the next one for the object.
func (c *cell) ended(_ context.Context, on *running, j *Job, typ *object.Type, out outcome, now int64) {
	id := on.act.ID
	delete(c.running, id)
	if c.home == nil {
		return
	}
	if out.late {
		c.held = append(c.held, on.todo)
	} else if x := c.home.Object(id); x != nil && x.Incarnation() == on.inc {
		c.tell(x, on, j, typ, out, now)
	}
	c.held = append(c.held, on.next...) // step begins them
}

// tell gives an object the answer to an act.
func (c *cell) tell(x *object.Object, on *running, j *Job, typ *object.Type, out outcome, now int64) {
	id := x.Def().ID
	text := out.message
	if out.err != nil {
		text = out.err.Error()
	}
	if on.look != 0 {
		c.looked = append(c.looked, &pb.Looked{Id: uint32(id), Look: on.look, State: uint32(out.state), Message: text})
		return
	}
	if c.messages[id] != text {
		c.messages[id] = text
		c.dirty[id] = true
	}
	if on.act.What == object.Check {
		if out.err != nil {
			c.note(x.Def().Name, "failed", "check: "+text)
		}
		c.event(id, object.Event{What: object.Checked, State: out.state}, now)
		return
	}
	m := on.act.Transition
	step := fmt.Sprintf("%s: %s → %s", typ.Actions[m.Action], typ.States[m.From], typ.States[m.To])
	if out.err != nil {
		c.note(j.Object.Name, "failed", step+": "+text)
	} else {
		c.note(j.Object.Name, "moved", step)
	}
	c.event(id, object.Event{What: object.Done, OK: out.err == nil}, now)
}
