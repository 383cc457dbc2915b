package objects

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/coopr/coopr/engine/change/object"
	"github.com/coopr/coopr/internal/mask"
	pb "github.com/coopr/coopr/rpc/proto"
)

func (sr *siteRunner) event(id object.ID, ev object.Event, now int64) {
	if err := sr.host.Event(id, ev, now); err != nil {
		sr.r.cfg.Logger.Error("a change object", "site", sr.key.name, "error", err)
	}
}

// observe notes what has to be reported after an event of an object.
func (sr *siteRunner) observe(_ int64, o *object.Object, ev *object.Event, _ *object.Effects) {
	id := o.Def().ID
	sr.dirty[id] = true
	if o.AtRest() {
		delete(sr.restless, id)
	} else {
		if len(sr.restless) == 0 {
			sr.stirs++
		}
		sr.restless[id] = true
	}
	if ev.What == object.Checked {
		if s := o.Status(); s.Drifts != sr.drifts[id] {
			sr.drifts[id] = s.Drifts
			if s.Drifts > 0 { // 0 when the object has begun another life
				sr.note(o.Def().Name, "drifted", "found "+o.Def().Type.States[s.State])
			}
		}
	}
}

func (sr *siteRunner) note(object, status, message string) {
	sr.events = append(sr.events, &pb.ObjectEvent{Object: object, Status: status, Message: message})
	sr.number++
	sr.unsent++
}

// committed forgets the events up to a number, which the leader has committed.
func (sr *siteRunner) committed(number uint64) {
	first := sr.number - uint64(len(sr.events)) + 1
	if number >= first && number <= sr.number {
		sr.events = sr.events[number-first+1:]
		sr.unsent = min(sr.unsent, len(sr.events))
	}
}

// hasNews reports whether there is anything to report to the leader.
func (sr *siteRunner) hasNews() bool {
	return len(sr.dirty)+sr.unsent+len(sr.probed) > 0 || sr.asked
}

// report sends the leader what has changed.
func (sr *siteRunner) report(now int64) {
	if sr.session == "" || !sr.hasNews() {
		return
	}
	r := &pb.RuntimeReport{Tenant: sr.key.tenant, Site: sr.key.name, Epoch: sr.epoch, Probed: sr.probed,
		Events: slices.Clone(sr.events[len(sr.events)-sr.unsent:])}
	if sr.unsent > 0 {
		r.FirstEvent = sr.number - uint64(sr.unsent) + 1
	}
	for id := range sr.dirty {
		if x := sr.host.Object(id); x != nil {
			r.Objects = append(r.Objects, sr.describe(x))
		}
	}
	if sr.asked {
		r.Calm = &pb.Calm{Call: sr.call, AtRest: len(sr.restless) == 0 && sr.waiting == 0, Stirs: sr.stirs}
	}
	clear(sr.dirty)
	sr.unsent, sr.probed, sr.asked, sr.reported = 0, nil, false, now
	if !sr.taken {
		sr.events = nil // a leader of an older build keeps them as long as it leads
	}
	sr.r.cfg.Report(sr.session, r)
}

func (sr *siteRunner) describe(x *object.Object) *pb.ObjectReport {
	s := x.Status()
	waits := func(list []object.Wait) (out []*pb.ObjectWait) {
		for _, w := range list {
			out = append(out, &pb.ObjectWait{Why: uint32(w.Why), Peer: uint32(w.Peer), State: uint32(w.State)})
		}
		return out
	}
	return &pb.ObjectReport{
		Id:     uint32(s.ID),
		Inc:    s.Incarnation,
		State:  uint32(s.State),
		Target: uint32(s.Target),
		Phase:  uint32(s.Phase),
		To:     uint32(s.To),
		Failures: uint32(
			s.Failures,
		),
		Drifts:      uint32(s.Drifts),
		Stuck:       s.Stuck,
		Oscillating: s.Oscillating,
		Removing:    s.Removing,
		AtRest:      x.AtRest(),
		Until:       s.Until,
		Waits:       waits(s.Waits),
		Asked:       waits(s.Asked),
		Message:     sr.messages[s.ID],
		Generation:  sr.follows[s.Def.Host],
	}
}

// job returns the job of an object, and the object's type.
func (sr *siteRunner) job(id object.ID) (*Job, *object.Type, error) {
	x := sr.host.Object(id)
	if x == nil {
		return nil, nil, errors.New("the object is gone")
	}
	d := x.Def()
	for n, p := range sr.parts {
		// The definition that the object itself follows, which may still be that of the
		// previous generation.
		if o := p.objects[id]; o != nil && int(id) < len(p.site.Defs) && p.site.Defs[id].Content == d.Content && p.site.Defs[id].Name == d.Name {
			j := &Job{Tenant: sr.key.tenant, Site: sr.key.name, Stored: o, Values: sr.values(d.Host), Content: d.Content, Generation: n,
				Held: time.Duration(sr.r.now()-sr.since[d.Host]) * time.Millisecond}
			if a, ok := sr.nodes[d.Host]; ok {
				j.Node = &a
			}
			var err error
			if j.Object, err = o.Open(j.Values, func(v any) { j.Secrets = append(j.Secrets, mask.Texts(v)...) }); err != nil {
				return nil, nil, fmt.Errorf("%s: %w", d.Name, err)
			}
			return j, d.Type, nil
		}
	}
	return nil, nil, fmt.Errorf("%s: this agent does not have the content of the object", d.Name)
}

// values returns the values of references that the leader has sent for objects on a host, with the generations that are here.
func (sr *siteRunner) values(host string) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for _, p := range sr.parts {
		maps.Copy(out, p.values[host])
	}
	return out
}
