package host

import (
	"cmp"
	"errors"
	"slices"

	"github.com/coopr/coopr/engine/change/object"
)

// Times of a runtime, in milliseconds.
const (
	// Patience is how long an object waits for others before it repeats its requests; the time
	// then doubles with each repetition. A stream between agents loses nothing while it lasts,
	// so repetitions only replace what a broken stream lost.
	Patience = 5_000
	// Laze is how long a release that no object waits for may wait for another packet to the
	// same agent.
	Laze = 1_000
	// idle is how many queued messages a runtime keeps memory for.
	idle = 16
	// rest is how long the queue pauses when messages cause each other without end.
	rest = 200
)

// Name is the name of the agent that a runtime is on. The zero Name is not an agent.
type Name = string

// Config holds the dependencies of a runtime.
type Config struct {
	Self Name
	Site *object.Site // the newest generation
	// Route returns the agent that runs an object, or ran it last. It returns "" for an object
	// that never ran or has been removed, so that no life of it can hold a lock.
	Route func(object.ID) Name
	// Absent reports whether an object has been removed from the site. If it is nil, the
	// objects that Site lacks count as removed.
	Absent func(object.ID) bool
	// Observe, if not nil, is called with every event that an object has handled and with its
	// effects.
	Observe func(now int64, o *object.Object, ev *object.Event, fx *object.Effects)
	// Patience and Laze replace the constants of the same names if they are not 0.
	Patience, Laze int64
}

// Packet is a batch of messages for another agent.
type Packet struct {
	To       Name
	Messages []object.Message
}

// Runtime runs the change objects of one agent. It is not safe for concurrent use: its owner
// passes one event after the other and then takes the effects (Flush, Acts, Next).
type Runtime struct {
	cfg     Config
	objects []*object.Object // ascending by ID
	queue   []object.Message
	fx      object.Effects
	acts    []object.Act
	mail    map[Name]*mail
	posts   []*mail     // mail with something to send, in order
	turned  []object.ID // objects that are following another definition in this call
	early   map[object.ID][]object.Message
	timers  timers
	sweep   int64     // when to look for waiting objects, 0 for never
	probe   int64     // when to check for drift, 0 for never
	resume  int64     // when to continue with the queue, 0 if it is not paused
	asker   object.ID // sender of the message being handled,
	back    Name      // and from where; "" where it was nobody's packet

	// Sent counts messages to other agents by kind. Rode counts the releases among them that
	// travelled with other messages.
	Sent [8]int
	Rode int
	// Packets counts the packets sent.
	Packets int
	// Decisions counts the events that objects handled.
	Decisions int
}

type mail struct {
	to       Name
	messages []object.Message
	lazy     []object.Message
	since    int64 // of the oldest lazy message
}

// New returns a runtime without objects.
func New(cfg Config) *Runtime {
	if cfg.Patience == 0 {
		cfg.Patience = Patience
	}
	if cfg.Laze == 0 {
		cfg.Laze = Laze
	}
	return &Runtime{cfg: cfg}
}

// Start begins to run an object with an incarnation from the leader: higher than any before, and 1
// only if the object never ran (object.Started). An object that runs here already begins a new
// life.
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

// Stop stops running an object here, because another agent takes it over or it is removed.
func (h *Runtime) Stop(id object.ID) {
	if h.find(id) != nil {
		at := h.place(id)
		h.objects = slices.Delete(h.objects, at, at+1)
	}
}

// place returns the position of an ID among the objects, or the position where it would be
// inserted. On most agents the IDs are consecutive.
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

// find returns the object with this ID if it runs here, or nil.
func (h *Runtime) find(id object.ID) *object.Object {
	if at := h.place(id); at < len(h.objects) && h.objects[at].Def().ID == id {
		return h.objects[at]
	}
	return nil
}

// Event passes an event to an object that runs here: the result of an act, or an order. Events
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

// Receive handles the messages of a packet from another agent. A question about an object that
// is unknown here, because it was removed and another object has its ID now, is answered to
// the agent that asked.
func (h *Runtime) Receive(from Name, messages []object.Message, now int64) {
	for _, m := range messages {
		h.asker, h.back = m.From, from
		h.deliver(m, now)
	}
	h.back = ""
	h.drain(now)
}

// Lost records that messages to and from some objects (nil: all objects) may have been lost,
// because a stream was replaced or another agent runs these objects now. Waiting objects send their
// requests again immediately.
func (h *Runtime) Lost(of func(object.ID) bool, now int64) {
	for _, o := range h.objects {
		if o.Waiting() {
			h.handle(o, &object.Event{What: object.Reconnected, Of: of}, now)
		}
	}
	h.drain(now)
}

// Switch makes the objects of some hosts follow a new generation. They keep everything that
// has not changed (rule 23), and removed objects are forgotten. The caller starts added
// objects afterwards.
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

// Object returns the object with this ID if it runs here, or nil.
func (h *Runtime) Object(id object.ID) *object.Object {
	if o := h.find(id); o != nil {
		return o
	}
	return nil
}

// Each calls visit for every object that runs here, in the order of IDs.
func (h *Runtime) Each(visit func(*object.Object)) {
	for _, o := range h.objects {
		visit(o)
	}
}

// AtRest reports whether no object here has anything left to do.
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

// drain delivers local messages until none is left. If objects keep requesting and withdrawing
// without end, the rest is delivered a little later, so that other work is not blocked.
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
		h.queue = nil // a burst is over: release its memory
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

// keep stores a message for an object that does not run here, or over a link that is unknown
// here, until the object starts or the generation switches. For an object that the site no
// longer has it answers that no lock is held.
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

// post adds a message to the mail for the agent of its receiver.
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

// Acts returns the checks and transitions to run and clears them.
func (h *Runtime) Acts() []object.Act {
	acts := h.acts
	h.acts = nil
	return acts
}

// TakeActs appends the acts to run to a slice of the caller and clears them.
func (h *Runtime) TakeActs(into []object.Act) []object.Act {
	into = append(into, h.acts...)
	h.acts = nil
	return into
}

// Flush sends the packets that are due, one for each agent. A release that no object waits for
// travels with other messages, or alone once it has waited long enough.
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

// Next returns the latest time at which the caller must call Tick, or 0 for never.
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

// Tick advances the time: it fires timers, repeats requests of objects that have waited long,
// and starts the checks for drift of the site's check_interval.
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

// timers is a heap of timers by time.
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
