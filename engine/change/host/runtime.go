package host

import (
	"cmp"
	"errors"
	"slices"

	"github.com/coopr/coopr/engine/change/object"
)

// Times of a home, in milliseconds.
const (
	// Patience is how long an object waits for others before it asks again;
	// then twice as long, and so on. Streams between homes lose nothing while
	// they stand, so this is for what a broken one has lost.
	Patience = 5_000
	// Laze is how long a release that nobody waits for may wait for a packet
	// that goes the same way.
	Laze = 1_000
	// idle is how many messages a home keeps memory for.
	idle = 16
	// rest is how long messages wait that follow from each other without end.
	rest = 200
)

// Name names a home: the agent that it is on. The zero Name is nobody.
type Name = string

// Config is what a home needs.
type Config struct {
	Self Name
	Site *object.Site // the newest generation
	// Route says which home runs an object, or ran it last; "" where it never
	// ran or has been removed, so that no life of it can hold anything.
	Route func(object.ID) Name
	// Absent reports whether an object has been removed from the site; what Site leaves out,
	// where nil.
	Absent func(object.ID) bool
	// Observe, where not nil, is shown every event that an object has taken, and
	// what followed.
	Observe func(now int64, o *object.Object, ev *object.Event, fx *object.Effects)
	// Patience and Laze, where not 0, stand for the constants of these names.
	Patience, Laze int64
}

// Packet is what goes from one home to another at once.
type Packet struct {
	To       Name
	Messages []object.Message
}

// Runtime is the objects of one agent. Not for concurrent use: its owner gives it
// one event after the other and then takes what follows (Flush, Acts, Next).
type Runtime struct {
	cfg     Config
	objects []*object.Object // ascending by ID
	queue   []object.Message
	fx      object.Effects
	acts    []object.Act
	mail    map[Name]*mail
	posts   []*mail     // those with something to send, in order
	turned  []object.ID // objects that follow another definition just now
	early   map[object.ID][]object.Message
	timers  timers
	sweep   int64     // when to look for who waits, 0 for never
	probe   int64     // when to look for drift, 0 for never
	resume  int64     // when to go on with the queue, 0 for not
	asker   object.ID // who has sent what is taken just now,
	back    Name      // and from where; "" where it was nobody's packet

	// Sent counts messages to other homes by kind; a release that rides along
	// is counted in Rode too.
	Sent [8]int
	Rode int
	// Packets counts packets.
	Packets int
	// Decisions counts events that objects took.
	Decisions int
}

type mail struct {
	to       Name
	messages []object.Message
	lazy     []object.Message
	since    int64 // of the oldest lazy one
}

// New returns a home without objects.
func New(cfg Config) *Runtime {
	if cfg.Patience == 0 {
		cfg.Patience = Patience
	}
	if cfg.Laze == 0 {
		cfg.Laze = Laze
	}
	return &Runtime{cfg: cfg}
}

// Start begins to run an object with an incarnation that the leader gave: higher
// than any before, and 1 only if the object never ran (object.Started). It
// begins anew if it runs here already.
func (h *Runtime) Start(def *object.Def, inc uint32, now int64) {
	o := h.find(def.ID)
	if o != nil && o.Def() != def {
		h.Stop(def.ID)
		o = nil
	}
	if o == nil {
		o = &object.Object{}
		o.Init(def, make([]object.Out, len(def.Out)), make([]object.In, len(def.In)))
		h.objects = slices.Insert(h.objects, h.place(def.ID), o)
	}
	h.handle(o, &object.Event{What: object.Started, Inc: inc}, now)
	h.deliverEarly(def.ID, now)
	h.drain(now)
}

// deliverEarly replays messages that arrived before the object started.
func (h *Runtime) deliverEarly(id object.ID, now int64) {
	early := h.early[id]
	delete(h.early, id)
	for _, m := range early {
		h.deliver(m, now)
	}
}

// Stop ends the running of an object here: another home takes it over, or it is
// removed.
func (h *Runtime) Stop(id object.ID) {
	if h.find(id) != nil {
		at := h.place(id)
		h.objects = slices.Delete(h.objects, at, at+1)
	}
}

// place returns where an ID stands, or would stand, among the objects. On most homes the IDs
// follow each other without gaps.
func (h *Runtime) place(id object.ID) int {
	n := len(h.objects)
	if n == 0 || h.objects[n-1].Def().ID < id {
		return n
	}
	if at := int(id - h.objects[0].Def().ID); at >= 0 && at < n && h.objects[at].Def().ID == id {
		return at
	}
	at, _ := slices.BinarySearchFunc(h.objects, id, func(o *object.Object, id object.ID) int { return cmp.Compare(o.Def().ID, id) })
	return at
}

// find returns an object that runs here, nil where it does not.
func (h *Runtime) find(id object.ID) *object.Object {
	if at := h.place(id); at < len(h.objects) && h.objects[at].Def().ID == id {
		return h.objects[at]
	}
	return nil
}

// Event returns an object that runs here an event: the answer to an act, or an order. Events
// for objects that do not run here are dropped.
func (h *Runtime) Event(id object.ID, ev object.Event, now int64) error {
	o := h.find(id)
	if o == nil {
		return nil
	}
	err := h.handle(o, &ev, now)
	h.drain(now)
	return err
}

// Receive takes a packet's messages from another home. One of an object that is not
// known here, whose neighbour was removed and has left its number to another object
// meanwhile, is answered where it came from.
func (h *Runtime) Receive(from Name, messages []object.Message, now int64) {
	for _, m := range messages {
		h.asker, h.back = m.From, from
		h.deliver(m, now)
	}
	h.back = ""
	h.drain(now)
}

// Lost records that messages to and from some objects (nil: all objects) may have been lost,
// because a stream was made anew or another agent runs these objects. Waiting objects send
// their requests again immediately.
func (h *Runtime) Lost(of func(object.ID) bool, now int64) {
	for _, o := range h.objects {
		if o.Waiting() {
			h.handle(o, &object.Event{What: object.Reconnected, Of: of}, now)
		}
	}
	h.drain(now)
}

// Switch makes the objects of some hosts follow a new generation: they keep what
// has not changed (rule 23), and those that are removed are forgotten. Added
// ones are Started afterwards.
func (h *Runtime) Switch(site *object.Site, hosts map[string]bool, now int64) {
	if site.CheckInterval != h.cfg.Site.CheckInterval {
		h.probe = 0 // the next event sets it
	}
	h.cfg.Site = site
	var gone []*object.Def
	for _, o := range slices.Clone(h.objects) {
		d := o.Def()
		if !hosts[d.Host] {
			continue
		}
		if int(d.ID) >= len(site.Defs) || site.Defs[d.ID].Name != d.Name {
			gone = append(gone, d)
			h.Stop(d.ID)
			continue
		}
		h.handle(o, &object.Event{What: object.Switched, Def: &site.Defs[d.ID]}, now)
	}
	for _, d := range gone {
		for _, p := range d.Out {
			if o := h.find(p); o != nil {
				h.handle(o, &object.Event{What: object.Freed, Peer: d.ID}, now)
			}
		}
	}
	h.drain(now)
}

// Object returns an object that runs here, nil where it does not.
func (h *Runtime) Object(id object.ID) *object.Object {
	if o := h.find(id); o != nil {
		return o
	}
	return nil
}

// Each visits every object that runs here, by ID.
func (h *Runtime) Each(visit func(*object.Object)) {
	for _, o := range h.objects {
		visit(o)
	}
}

// Settled reports whether no object here has anything left to do.
func (h *Runtime) AtRest() bool {
	for _, o := range h.objects {
		if !o.AtRest() {
			return false
		}
	}
	return true
}

func (h *Runtime) handle(o *object.Object, ev *object.Event, now int64) error {
	h.fx.Reset()
	h.Decisions++
	def := o.Def()
	err := o.Handle(ev, now, &h.fx)
	if h.cfg.Observe != nil {
		h.cfg.Observe(now, o, ev, &h.fx)
	}
	if o.Def() != def {
		h.turned = append(h.turned, def.ID)
	}
	id := o.Def().ID
	for i := range h.fx.Messages {
		m := &h.fx.Messages[i]
		if h.find(m.To) != nil {
			h.queue = append(h.queue, *m)
		} else {
			h.post(m, now)
		}
	}
	for _, a := range h.fx.Acts {
		if a.What == object.SetTimer {
			h.timers.push(timer{a.At, id})
		} else {
			h.acts = append(h.acts, a)
		}
	}
	if h.probe == 0 && h.cfg.Site.CheckInterval > 0 {
		h.probe = now + h.cfg.Site.CheckInterval
	}
	if h.sweep == 0 && o.Waiting() {
		h.sweep = now + h.cfg.Patience
	}
	return err
}

// drain carries local messages until none is left. Objects that ask each other
// and take it back again and again do not keep the home from all else: what is
// left goes on a little later.
func (h *Runtime) drain(now int64) {
	h.resume = 0
	for i := 0; i < len(h.queue) || len(h.turned) > 0; {
		if i > 10_000+100*len(h.objects) {
			h.queue = append(h.queue[:0], h.queue[i:]...)
			h.resume = now + rest
			return
		}
		if n := len(h.turned); n > 0 {
			id := h.turned[n-1]
			h.turned = h.turned[:n-1]
			h.deliverEarly(id, now)
			continue
		}
		h.deliver(h.queue[i], now)
		i++
	}
	h.queue = h.queue[:0]
	if cap(h.queue) > idle {
		h.queue = nil // it was a busy moment
	}
}

func (h *Runtime) deliver(m object.Message, now int64) {
	o := h.find(m.To)
	if o != nil {
		err := h.handle(o, &object.Event{What: object.Received, Message: m}, now)
		if errors.Is(err, object.ErrNoLink) {
			h.keep(m, now)
		}
		return
	}
	h.keep(m, now)
}

// keep puts by what came for an object that does not run here, or over a link
// that is not known here, until the object starts or the generation switches.
// For one that the site does not have any more it answers that nothing is held.
func (h *Runtime) keep(m object.Message, now int64) {
	if h.absent(m.To) {
		if a, ok := object.Denial(&m); ok {
			h.post(&a, now)
		}
		return
	}
	if h.early == nil {
		h.early = map[object.ID][]object.Message{}
	}
	kept := h.early[m.To]
	for i := range kept {
		k := &kept[i]
		if k.From == m.From && k.Kind == m.Kind {
			if k.FromInc < m.FromInc || k.FromInc == m.FromInc && k.Epoch < m.Epoch {
				*k = m
			}
			return
		}
	}
	h.early[m.To] = append(kept, m)
}

// absent reports whether an object has been removed from the site.
func (h *Runtime) absent(id object.ID) bool {
	if h.cfg.Absent != nil {
		return h.cfg.Absent(id)
	}
	return int(id) < len(h.cfg.Site.Defs) && h.cfg.Site.Defs[id].Name == ""
}

// post puts a message into the mail for its home.
func (h *Runtime) post(m *object.Message, now int64) {
	to := h.cfg.Route(m.To)
	if to == "" && m.To == h.asker {
		to = h.back
	}
	if to == "" {
		if a, ok := object.Denial(m); ok {
			h.queue = append(h.queue, a)
		}
		return
	}
	if to == h.cfg.Self {
		h.keep(*m, now)
		return
	}
	if h.mail == nil {
		h.mail = map[Name]*mail{}
	}
	b := h.mail[to]
	if b == nil {
		b = &mail{to: to}
		h.mail[to] = b
		h.posts = append(h.posts, b)
	}
	if m.Lazy {
		if len(b.lazy) == 0 {
			b.since = now
		}
		b.lazy = append(b.lazy, *m)
	} else {
		b.messages = append(b.messages, *m)
	}
}

// Acts takes what is to be done: checks and transitions to run.
func (h *Runtime) Acts() []object.Act {
	acts := h.acts
	h.acts = nil
	return acts
}

// TakeActs is Acts into memory of the caller's.
func (h *Runtime) TakeActs(into []object.Act) []object.Act {
	into = append(into, h.acts...)
	h.acts = nil
	return into
}

// Flush takes the packets that are due, one for each home. A release that
// nobody waits for rides with other messages, or goes when it has waited long.
func (h *Runtime) Flush(now int64, send func(Packet)) {
	if len(h.posts) == 0 {
		return
	}
	later := h.posts[:0]
	for _, b := range h.posts {
		if len(b.messages) == 0 && now < b.since+h.cfg.Laze {
			later = append(later, b)
			continue
		}
		if len(b.messages) > 0 {
			h.Rode += len(b.lazy)
		}
		p := Packet{To: b.to, Messages: append(b.messages, b.lazy...)}
		for i := range p.Messages {
			h.Sent[p.Messages[i].Kind]++
		}
		h.Packets++
		delete(h.mail, b.to)
		send(p)
	}
	clear(h.posts[len(later):])
	h.posts = later
}

// Next returns when the home wants to be called (Tick) at the latest, 0 for never.
func (h *Runtime) Next() int64 {
	next := h.sweep
	if h.probe != 0 && (next == 0 || h.probe < next) {
		next = h.probe
	}
	if h.resume != 0 && (next == 0 || h.resume < next) {
		next = h.resume
	}
	if len(h.timers) > 0 && (next == 0 || h.timers[0].at < next) {
		next = h.timers[0].at
	}
	for _, b := range h.posts {
		if at := b.since + h.cfg.Laze; len(b.messages) == 0 && (next == 0 || at < next) {
			next = at
		}
	}
	return next
}

// Tick lets time pass: alarms that have come, objects that have waited long, and
// the look for drift that the site's check_interval wants.
func (h *Runtime) Tick(now int64) {
	if h.probe != 0 && h.probe <= now {
		h.probe = 0
		if every := h.cfg.Site.CheckInterval; every > 0 {
			h.probe = now + every
			for _, o := range h.objects {
				h.handle(o, &object.Event{What: object.Probe}, now)
			}
		}
	}
	for len(h.timers) > 0 && h.timers[0].at <= now {
		w := h.timers.pop()
		if o := h.find(w.id); o != nil {
			h.handle(o, &object.Event{What: object.Alarm}, now)
		}
	}
	if h.sweep != 0 && h.sweep <= now {
		h.sweep = 0
		for _, o := range h.objects {
			if !o.Waiting() {
				continue
			}
			h.handle(o, &object.Event{What: object.Nudge}, now)
			h.sweep = now + h.cfg.Patience
		}
	}
	h.drain(now)
}

// wakes is a heap of alarms.
type timers []timer

type timer struct {
	at int64
	id object.ID
}

func (w *timers) push(x timer) {
	a := append(*w, x)
	for i := len(a) - 1; i > 0; {
		p := (i - 1) / 2
		if a[p].at <= a[i].at {
			break
		}
		a[p], a[i] = a[i], a[p]
		i = p
	}
	*w = a
}

func (w *timers) pop() timer {
	a := *w
	top := a[0]
	a[0] = a[len(a)-1]
	a = a[:len(a)-1]
	for i := 0; ; {
		c := 2*i + 1
		if c >= len(a) {
			break
		}
		if c+1 < len(a) && a[c+1].at < a[c].at {
			c++
		}
		if a[i].at <= a[c].at {
			break
		}
		a[i], a[c] = a[c], a[i]
		i = c
	}
	*w = a
	return top
}
