package object

import (
	"fmt"
	"slices"
)

// Phase is the current activity of an object.
type Phase uint8

// The phases.
const (
	Resting  Phase = iota // decides on each event
	Checking              // waits for its check; its state is unknown
	Moving                // a transition is running
	Backoff               // a transition or check failed; a check follows
)

var phaseNames = [...]string{"resting", "checking", "moving", "backoff"}

// String returns the phase's name.
func (p Phase) String() string { return phaseNames[p&3] }

// Parameters that slow down failures and oscillations (rules 5 and 27), in milliseconds.
const (
	firstBackoff = 1_000
	longBackoff  = 300_000
	// manyTurns is how many transitions an object may make in a row. One is forgotten every
	// turnLeak. A generation needs two.
	manyTurns = 8
	turnLeak  = 60_000
)

// hub is the number of dependents from which on requests are counted in a tally instead of
// being scanned.
const hub = 16

// Object is the state of one change object in its runtime. It behaves as a plain value: the
// same events produce the same object and the same effects. It is not safe for concurrent use.
type Object struct {
	def  *Def
	out  []Out // locks requested from others, parallel to def.Out
	in   []In  // requests of others, ascending by peer
	rare *rare // nil if all its fields are zero

	inc        uint32
	missing    int32  // needs that are not held
	granted    int32  // locks of this object that others hold
	silent     int32  // dependents that have not reported yet which locks they hold
	asking     int32  // number of requests
	turned     uint32 // when turns was last counted, in units of turnLeak
	state      State
	lent       State // state in which others hold locks of this object
	to         State // Moving: the state it moves to
	target     State
	phase      Phase
	turns      uint8
	key        need
	removing   bool
	urgent     bool  // the target is that of a removal
	open       bool  // grants requests for its state
	calling    bool  // recalls all granted locks
	recalled   bool  // a lock that it holds is recalled
	probing    bool  // a check for drift is running
	unresolved bool  // it is not known yet whether an earlier life held a lock
	alarmed    bool  // a timer is set
	stale      bool  // the running check is of an older content
	waited     uint8 // Nudges since the last other event
}

// rare holds the seldom-used fields of an object. Most objects of a large site have none.
type rare struct {
	later    *Def   // to follow as soon as no transition runs under the old one
	tally    *tally // requests of a hub
	until    int64  // no check and no transition before this time
	top      uint32 // the greatest epoch of removed links
	failures uint16
	drifts   uint16
}

// few returns the seldom-used fields, or zero values.
func (o *Object) few() rare {
	if o.rare == nil {
		return rare{}
	}
	return *o.rare
}

// keep stores the seldom-used fields.
func (o *Object) keep(r rare) {
	switch {
	case r == rare{}:
		o.rare = nil
	case o.rare == nil:
		o.rare = &rare{}
		fallthrough
	default:
		*o.rare = r
	}
}

// later returns the definition that the object will follow, or nil.
func (o *Object) later() *Def {
	if o.rare == nil {
		return nil
	}
	return o.rare.later
}

// tally returns the counted requests of a hub, or nil for other objects.
func (o *Object) tally() *tally {
	if o.rare == nil {
		return nil
	}
	return o.rare.tally
}

// stuck reports whether the type has no way from the state to the target (rule 17).
func (o *Object) stuck() bool {
	return o.phase == Resting && o.state != Unknown && o.state != o.target && o.key.next == Unknown
}

// need determines the locks that an object must hold: those for the state that it grants to
// dependents (hold), and those for its next transition (from state to next). hold or next is
// Unknown if there is no such state.
type need struct {
	state, next, hold State
	urgent, valid     bool
	drive             bool // also locks that drive others out of their preferred states
}

// Out is one lock that an object requests from another.
type Out struct {
	epoch, peerInc uint32
	want, need     State
	flags          outFlag
}

type outFlag uint8

const (
	held     outFlag = 1 << iota // granted to this object
	eager                        // release it as soon as it is not needed
	wanted                       // recalled: give it back even while waiting for others
	unknown                      // of an earlier life: not known yet what it held
	pressing                     // requested on behalf of a removal
	press                        // to be requested on behalf of a removal
)

// In is the request of one dependent.
type In struct {
	peer       ID
	epoch, inc uint32
	want       State
	flags      inFlag
}

type inFlag uint8

const (
	granted  inFlag = 1 << iota // it holds its lock
	called                      // its lock has been recalled
	silent                      // it has not reported the locks that it holds since this life began
	removal                     // it asks on behalf of a removal
	formerly                    // a dependent of an earlier generation that still holds a lock
)

type tally [2][MaxStates]int32

// New returns an object for a definition. The caller passes Started next.
func New(def *Def) *Object {
	o := &Object{}
	o.Init(def, make([]Out, len(def.Out)), make([]In, len(def.In)))
	return o
}

// Init initializes a zero Object for a definition. The caller provides the memory: as many
// Outs and Ins as the definition has.
func (o *Object) Init(def *Def, out []Out, in []In) {
	*o = Object{def: def, out: out, in: in, target: def.Preferred}
	for i := range in {
		in[i].peer = def.In[i].ID
	}
	o.count()
}

// count recomputes the tally of a hub.
func (o *Object) count() {
	r := o.few()
	r.tally = nil
	if len(o.in) >= hub {
		r.tally = &tally{}
		for i := range o.in {
			if s := &o.in[i]; s.want != Unknown {
				r.tally[class(s)][s.want]++
			}
		}
	}
	o.keep(r)
}

func class(s *In) int {
	if s.flags&removal != 0 {
		return 1
	}
	return 0
}

// Def returns the definition that the object follows.
func (o *Object) Def() *Def { return o.def }

// State returns the last known state.
func (o *Object) State() State { return o.state }

// Target returns the state that the object wants to be in.
func (o *Object) Target() State { return o.target }

// Phase returns the current activity.
func (o *Object) Phase() Phase { return o.phase }

// Incarnation returns the number of the object's current life.
func (o *Object) Incarnation() uint32 { return o.inc }

// AtRest reports whether nothing is left to do: the object is in its preferred state (or in
// its preRemove state while it is being removed) and no object requests another state.
func (o *Object) AtRest() bool {
	goal := o.def.Preferred
	if o.removing {
		goal = o.def.Type.PreRemove
	}
	return o.phase == Resting && o.state == goal && o.target == goal
}

// Waiting reports whether the object waits for others, so that it needs a Nudge from time to
// time.
func (o *Object) Waiting() bool {
	return o.silent > 0 || o.unresolved || o.phase == Resting && (o.missing > 0 || o.granted > 0 && o.calling || o.driven())
}

// Handle handles one event at the time now, in milliseconds of any clock that never goes back,
// and appends the effects to fx. It returns an error for an event that is impossible, such as
// a request over a link that the definition does not have (ErrNoLink).
func (o *Object) Handle(ev *Event, now int64, fx *Effects) error {
	if ev.What != Nudge {
		o.waited = 0
	}
	switch ev.What {
	case Started:
		o.start(ev.Inc, fx)
	case Received:
		if err := o.receive(&ev.Message, fx); err != nil {
			o.decide(now, fx)
			return err
		}
	case Checked:
		if int(ev.State) >= len(o.def.Type.States) {
			return fmt.Errorf("change object %s: a check found state %d, which type %s does not have", o.def.Name, ev.State, o.def.Type.Name)
		}
		o.checked(ev.State, now, fx)
	case Done:
		if err := o.done(ev.OK, now, fx); err != nil {
			return err
		}
	case Alarm:
		o.alarmed = false
		if until := o.few().until; o.phase == Backoff && now >= until {
			o.phase = Checking
			o.act(fx, Act{What: Check})
		} else if now < until {
			o.setTimer(fx)
		}
	case Nudge:
		if o.waited < 255 {
			o.waited++
		}
		// Repeat after 1, 2, 4, … nudges, and in the end after every 64th.
		if w := o.waited; o.Waiting() && (w&(w-1) == 0 || w%64 == 0) {
			o.nudge(nil, fx)
		}
	case Reconnected:
		o.nudge(ev.Of, fx)
	case Probe:
		if o.phase == Resting && o.state != Unknown && !o.probing {
			o.probing = true
			o.act(fx, Act{What: Check})
		}
	case Removing:
		o.removing = true
	case Switched:
		r := o.few()
		r.later = ev.Def
		o.keep(r)
	case Freed:
		o.freed(ev.Peer)
	default:
		return fmt.Errorf("change object %s: no such event: %d", o.def.Name, ev.What)
	}
	o.decide(now, fx)
	return nil
}

func (o *Object) act(fx *Effects, a Act) {
	a.ID = o.def.ID
	fx.Acts = append(fx.Acts, a)
}

func (o *Object) setTimer(fx *Effects) {
	if !o.alarmed {
		o.alarmed = true
		o.act(fx, Act{What: SetTimer, At: o.few().until})
	}
}

func (o *Object) send(fx *Effects, m Message) {
	m.From, m.FromInc = o.def.ID, o.inc
	fx.Messages = append(fx.Messages, m)
}

// start begins a life of the object (rule 20).
func (o *Object) start(inc uint32, fx *Effects) {
	in, out := o.in, o.out
	removing, old := o.removing, o.few()
	for i := range out {
		out[i] = Out{}
	}
	for i := range in {
		in[i] = In{peer: in[i].peer}
	}
	*o = Object{def: o.def, in: in, out: out, inc: inc, target: o.def.Preferred, phase: Checking, removing: removing}
	o.keep(rare{later: old.later, top: old.top})
	o.count()
	o.act(fx, Act{What: Check})
	if inc == 1 {
		return
	}
	for i := range in {
		in[i].flags = silent
		o.silent++
		o.send(fx, Message{To: in[i].peer, Kind: Resync})
	}
	for i := range out {
		out[i].flags = unknown
		o.unresolved = true
	}
}

// checked handles the result of a check (rules 1, 2 and 5).
func (o *Object) checked(s State, now int64, fx *Effects) {
	switch {
	case o.stale:
		o.stale, o.probing = false, false
		o.act(fx, Act{What: Check})
	case o.phase == Checking && s == Unknown:
		o.fail(now, fx)
	case o.phase == Checking:
		o.state, o.phase = s, Resting
	case o.phase == Resting && o.probing:
		o.probing = false
		if s != o.state && s != Unknown {
			o.state = s
			r := o.few()
			r.drifts++
			o.keep(r)
		}
	}
}

// done handles the end of a transition (rule 5).
func (o *Object) done(ok bool, now int64, fx *Effects) error {
	if o.phase != Moving {
		return fmt.Errorf("change object %s: a transition ended, but none runs", o.def.Name)
	}
	o.phase = Resting
	if ok {
		o.state = o.to
		if r := o.few(); r.failures > 0 {
			r.failures = 0
			if r.until <= now {
				r.until = 0
			}
			o.keep(r)
		}
		return nil
	}
	o.state = o.def.Type.Move(o.state, o.to).Error
	o.fail(now, fx)
	return nil
}

// fail delays the next check: 1 s, doubled with each failure, at most five minutes. The
// runtime adds random jitter.
func (o *Object) fail(now int64, fx *Effects) {
	o.phase = Backoff
	r := o.few()
	r.until = now + backoff(int(r.failures))
	r.failures = min(r.failures+1, 60_000)
	o.keep(r)
	o.setTimer(fx)
}

func backoff(n int) int64 {
	return min(int64(firstBackoff)<<min(n, 20), longBackoff)
}

// free reports whether the object can switch to its later definition now. It cannot switch during
// a transition, which relies on the locks of the current definition. While dependents hold locks
// of this object, the later definition must require every lock that the current one requires to
// grant them.
func (o *Object) free() bool {
	if o.phase == Moving {
		return false
	}
	if o.granted == 0 {
		return true
	}
	for i := range o.def.Needs {
		if n := &o.def.Needs[i]; n.Hold && n.From == o.lent && !o.later().holds(n.From, o.def.Out[n.Slot], n.State) {
			return false
		}
	}
	return true
}

// holds reports whether a definition has this lock dependency.
func (d *Def) holds(s State, provider ID, in State) bool {
	found := false
	d.Granting(s, func(p ID, z State) { found = found || p == provider && z == in })
	return found
}

// rebind switches to another definition of the same object. Links that stay keep their locks
// (rule 23).
func (o *Object) rebind(def *Def, fx *Effects) {
	old := *o
	oldDef, r := o.def, o.few()
	o.def = def
	o.out = make([]Out, len(def.Out))
	for j, p := range oldDef.Out {
		if def.slot(p) < 0 {
			s := old.out[j]
			if s.want != Unknown || s.flags&unknown != 0 {
				o.letGo(p, &s, fx)
			}
			r.top = max(r.top, s.epoch)
		}
	}
	o.keep(r)
	for i, p := range def.Out {
		o.out[i].epoch = r.top // so that a link that is added again does not count from 0
		if j := oldDef.slot(p); j >= 0 {
			o.out[i] = old.out[j]
		}
	}
	o.in = make([]In, 0, len(def.In))
	for _, d := range def.In {
		s := In{peer: d.ID}
		if j := findDependent(old.in, d.ID); j >= 0 {
			s = old.in[j]
			s.flags &^= formerly
		}
		o.in = append(o.in, s)
	}
	// A former dependent that has not switched yet keeps the locks that it holds until it has.
	// Its requests are void.
	for _, s := range old.in {
		if s.flags&(granted|silent) != 0 && findDependent(o.in, s.peer) < 0 {
			s.flags |= formerly
			s.want = Unknown
			at, _ := slices.BinarySearchFunc(o.in, s.peer, func(s In, id ID) int { return int(s.peer) - int(id) })
			o.in = slices.Insert(o.in, at, s)
		}
	}
	o.asking, o.granted, o.silent, o.recalled = 0, 0, 0, false
	for i := range o.in {
		s := &o.in[i]
		if s.want != Unknown {
			o.asking++
		}
		if s.flags&granted != 0 {
			o.granted++
		}
		if s.flags&silent != 0 {
			o.silent++
		}
	}
	for i := range o.out {
		o.recalled = o.recalled || o.out[i].flags&(held|wanted) == held|wanted
	}
	o.count()
	o.key, o.open, o.calling = need{}, false, false
	o.turns, o.removing = 0, false
	switch {
	case def.Content == oldDef.Content:
	case o.phase == Checking || o.probing:
		o.stale, o.phase, o.state = true, Checking, Unknown
	default:
		o.forget(fx)
	}
}

// forget sets the state to Unknown and requests a check.
func (o *Object) forget(fx *Effects) {
	r := o.few()
	r.failures, r.until = 0, 0
	o.keep(r)
	o.state, o.phase = Unknown, Checking
	o.act(fx, Act{What: Check})
}

// Knows reports whether peer depends on the object or may hold a lock of it.
func (o *Object) Knows(peer ID) bool { return findDependent(o.in, peer) >= 0 }

// freed forgets the locks of a dependent.
func (o *Object) freed(peer ID) {
	if i := findDependent(o.in, peer); i >= 0 {
		o.update(&o.in[i], In{peer: peer, inc: o.in[i].inc, epoch: o.in[i].epoch})
	}
}
