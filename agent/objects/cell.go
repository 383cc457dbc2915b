package objects

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/coopr/coopr/engine/change/compile"
	"github.com/coopr/coopr/engine/change/host"
	"github.com/coopr/coopr/engine/change/object"
	"github.com/coopr/coopr/engine/change/site"
	pb "github.com/coopr/coopr/rpc/proto"
)

var (
	errBroken     = errors.New("the stream has ended")
	errNotRunning = errors.New("no home of change objects runs here yet, or any more")
)

const (
	// gather is how long reports wait for others, in milliseconds.
	gather = 20
	// manyEarly bounds the messages that wait for orders that they are newer than.
	manyEarly = 10_000
	// retry is when acts that may not begin are looked at again, in milliseconds.
	retry = 100
	// linger is how long a cell without objects is kept: a packet may have come
	// before the orders that it needs, and acts may still end.
	linger = time.Minute
)

// cell is one site's objects here. All but mail belongs to its goroutine.
type cell struct {
	r   *Runner
	key siteKey

	mu   sync.Mutex
	mail []func(now int64)
	wake chan struct{}

	home    *host.Runtime
	session string // under which the orders came
	epoch   uint64
	version uint64
	look    uint64
	call    uint64 // the last of the leader's; to be answered where asked
	asked   bool
	parts   map[uint64]*part
	follows map[string]uint64 // generation by host, of our hosts
	since   map[string]int64  // by host, when it came to be ours in this session
	routes  map[object.ID]life
	lives   map[object.ID]site.Lived
	homes   map[string]string
	nodes   map[string]json.RawMessage
	paused  bool

	early   []packet
	waiting int // messages in early
	running map[object.ID]*running
	held    []todo // acts that may not begin now
	acting  sync.WaitGroup

	dirty    map[object.ID]bool
	messages map[object.ID]string
	drifts   map[object.ID]int
	events   []*pb.ObjectEvent
	looked   []*pb.Looked
	reported int64
	// restless are the objects that are not settled; stirs counts how often there
	// came to be any.
	restless map[object.ID]bool
	stirs    uint64
}

// part is a slice of one generation, compiled.
type part struct {
	site    *object.Site
	objects map[object.ID]*site.Object
}

// packet is one that has come, and whose it is.
type packet struct {
	from string
	*pb.ChangePacket
}

// life is where an object runs, and which of its lives.
type life struct {
	home string
	inc  uint32
}

// todo is something to be done for one life of an object.
type todo struct {
	act  object.Act
	inc  uint32
	look uint64 // not 0: a check that changes nothing
}

// running is what is done for an object now, and what comes after it.
type running struct {
	todo
	cancel context.CancelFunc
	next   []todo
}

func newCell(r *Runner, key siteKey) *cell {
	c := &cell{r: r, key: key, wake: make(chan struct{}, 1), running: map[object.ID]*running{}}
	c.clear()
	return c
}

// clear forgets the objects; what runs for them is told to stop.
func (c *cell) clear() {
	for _, x := range c.running {
		x.cancel()
		x.next = nil
	}
	c.home, c.session, c.version, c.held = nil, "", 0, nil
	c.parts, c.follows, c.since = map[uint64]*part{}, map[string]uint64{}, map[string]int64{}
	c.routes, c.lives, c.homes = map[object.ID]life{}, map[object.ID]site.Lived{}, map[string]string{}
	c.dirty, c.messages, c.drifts = map[object.ID]bool{}, map[object.ID]string{}, map[object.ID]int{}
	c.events, c.looked, c.call, c.asked, c.restless = nil, nil, 0, false, map[object.ID]bool{}
}

// post lets the cell's goroutine do something.
func (c *cell) post(fn func(now int64)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mail = append(c.mail, fn)
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *cell) run(ctx context.Context) {
	defer func() {
		for _, x := range c.running {
			x.cancel()
		}
		c.acting.Wait()
	}()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		empty := c.home == nil && len(c.running) == 0
		switch next := c.next(); {
		case empty:
			timer.Reset(linger)
		case next > 0:
			timer.Reset(time.Duration(max(next-c.r.now(), 0)) * time.Millisecond)
		default:
			timer.Stop()
		}
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		case <-timer.C:
			if empty && c.r.drop(c) {
				return
			}
		}
		c.mu.Lock()
		mail := c.mail
		c.mail = nil
		c.mu.Unlock()
		now := c.r.now()
		for _, fn := range mail {
			fn(now)
		}
		c.step(ctx, now)
	}
}

// next says when the cell wants to be woken, 0 for never.
func (c *cell) next() int64 {
	next := int64(0)
	if c.home != nil {
		next = c.home.Next()
	}
	if c.news() && c.session != "" {
		next = earlier(next, c.reported+gather)
	}
	if len(c.held) > 0 {
		next = earlier(next, c.r.now()+retry)
	}
	return next
}

func earlier(a, b int64) int64 {
	if a == 0 || b < a {
		return b
	}
	return a
}

// step lets time pass and does what objects want.
func (c *cell) step(ctx context.Context, now int64) {
	if c.home == nil {
		return
	}
	if next := c.home.Next(); next > 0 && next <= now {
		c.home.Tick(now)
	}
	held := c.held
	c.held = nil
	for _, t := range held {
		c.begin(ctx, t)
	}
	for acts := c.home.Acts(); len(acts) > 0; acts = c.home.Acts() { // what cannot begin is answered at once, and may have others follow
		for _, a := range acts {
			if o := c.home.Object(a.ID); o != nil {
				c.begin(ctx, todo{act: a, inc: o.Incarnation()})
			}
		}
	}
	c.home.Flush(now, func(p host.Packet) {
		m := &pb.ChangePacket{Tenant: c.key.tenant, Site: c.key.name, Epoch: c.epoch, Version: c.version}
		for i := range p.Messages {
			m.Messages = append(m.Messages, toWire(&p.Messages[i]))
		}
		c.r.send(p.To, m)
	})
	if now >= c.reported+gather {
		c.report(now)
	}
}

// receive takes a packet. One that was sent with newer orders in mind waits for
// them here, so that who is heard of is known.
func (c *cell) receive(p packet, now int64) {
	if c.home == nil || p.Epoch > c.epoch || p.Epoch == c.epoch && p.Version > c.version {
		if c.waiting += len(p.Messages); c.waiting > manyEarly {
			c.early, c.waiting = nil, len(p.Messages)
		}
		c.early = append(c.early, p)
		return
	}
	if p.Epoch < c.epoch {
		return // of a site of this name that is gone
	}
	list := make([]object.Message, 0, len(p.Messages))
	for _, m := range p.Messages {
		if x, ok := fromWire(m); ok {
			list = append(list, x)
		}
	}
	c.home.Receive(p.from, list, now)
}

// orders takes what the leader says of the site.
func (c *cell) orders(session string, o *site.Orders, now int64) {
	if o.Gone || o.Epoch < c.epoch {
		if o.Gone && o.Epoch >= c.epoch {
			c.clear()
		}
		return
	}
	if o.Epoch > c.epoch {
		c.clear()
		c.epoch = o.Epoch
	}
	if session == c.session && o.Version < c.version {
		return
	}
	for i := range o.Parts {
		p, err := compiled(&o.Parts[i])
		if err != nil {
			c.r.cfg.Logger.Error("a generation cannot be followed", "site", c.key.name, "generation", o.Parts[i].Generation, "error", err)
			return
		}
		c.parts[o.Parts[i].Generation] = p
	}
	newest := o.Generation
	if newest == 0 {
		newest = o.Next
	}
	if c.parts[newest] == nil || o.Next != 0 && c.parts[o.Next] == nil {
		return // of a session whose beginning was not heard; it comes again
	}
	if c.home == nil {
		c.home = host.New(host.Config{Self: c.r.cfg.Self, Site: c.parts[newest].site, Route: c.route, Observe: c.observe,
			// Who else is removed is known by who has newer orders.
			Absent: func(object.ID) bool { return false }})
	}
	anew := session != c.session
	c.session, c.version, c.homes, c.nodes, c.paused = session, o.Version, o.Homes, o.Nodes, o.Paused
	routes := c.routes
	c.routes, c.lives = make(map[object.ID]life, len(o.Lives)), map[object.ID]site.Lived{}
	mine := map[string]bool{}
	for _, h := range o.Mine {
		mine[h] = true
	}
	for _, l := range o.Lives {
		c.routes[l.ID] = life{o.Homes[l.Host], l.Inc}
		if mine[l.Host] {
			c.lives[l.ID] = l
		}
	}
	c.hold(mine, anew, now)
	c.follow(o, mine, now)
	c.adopt(now)
	for _, id := range o.Removing {
		if x := c.home.Object(id); x != nil && !x.Status().Removing {
			c.event(id, object.Event{What: object.Removing}, now)
		}
	}
	c.free(o.Released, now)
	// What went to homes that do not run these objects any more is lost.
	c.home.Lost(func(id object.ID) bool { return anew || c.routes[id] != routes[id] }, now)
	early := c.early
	c.early, c.waiting = nil, 0
	for _, p := range early {
		c.receive(p, now)
	}
	if anew {
		c.home.Each(func(x *object.Object) { c.dirty[x.Def().ID] = true })
	}
	if o.Call != 0 && (anew || o.Call != c.call) {
		c.call, c.asked = o.Call, true
	}
	if o.Look != c.look {
		if c.look = o.Look; o.Look != 0 {
			c.home.Each(func(x *object.Object) {
				c.held = append(c.held, todo{act: object.Act{ID: x.Def().ID, What: object.Check}, inc: x.Incarnation(), look: o.Look})
			})
		}
	}
}

// hold remembers since when hosts are ours. In another session one may have been
// another home's meanwhile.
func (c *cell) hold(mine map[string]bool, anew bool, now int64) {
	maps.DeleteFunc(c.since, func(h string, _ int64) bool { return anew || !mine[h] })
	for h := range mine {
		if _, ok := c.since[h]; !ok {
			c.since[h] = now
		}
	}
}

// follow lets our hosts follow the generations that they should.
func (c *cell) follow(o *site.Orders, mine map[string]bool, now int64) {
	turned := map[string]bool{}
	for _, h := range o.Turned {
		turned[h] = true
	}
	switching := map[uint64]map[string]bool{}
	for h := range mine {
		want := o.Generation
		if turned[h] || want == 0 {
			want = o.Next
		}
		if is, ok := c.follows[h]; ok && is != want {
			if switching[want] == nil {
				switching[want] = map[string]bool{}
			}
			switching[want][h] = true
		}
		c.follows[h] = want
	}
	for h := range c.follows {
		if !mine[h] {
			delete(c.follows, h)
		}
	}
	for _, want := range slices.Sorted(maps.Keys(switching)) {
		c.home.Switch(c.parts[want].site, switching[want], now)
	}
	for n := range c.parts {
		if n+1 < o.Generation { // the last one may still be at work somewhere
			delete(c.parts, n)
		}
	}
}

// adopt starts the objects that are ours, and stops those that are not.
func (c *cell) adopt(now int64) {
	var gone []object.ID
	c.home.Each(func(x *object.Object) {
		if _, ok := c.lives[x.Def().ID]; !ok {
			gone = append(gone, x.Def().ID)
		}
	})
	for _, id := range gone {
		c.home.Stop(id)
		delete(c.dirty, id)
		delete(c.messages, id)
		delete(c.drifts, id)
		delete(c.restless, id)
	}
	for id, x := range c.running {
		if l, ok := c.lives[id]; !ok || l.Inc != x.inc {
			x.cancel() // of a life that is over
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.lives)) {
		l := c.lives[id]
		if x := c.home.Object(id); x != nil && x.Incarnation() >= l.Inc {
			continue
		}
		if def := c.def(id, l.Host); def != nil {
			c.home.Start(def, l.Inc, now)
		}
	}
}

// def gives the definition of an object of a host of ours, in the generation that
// the host follows.
func (c *cell) def(id object.ID, host string) *object.Def {
	p := c.parts[c.follows[host]]
	if p == nil || int(id) >= len(p.site.Defs) || p.site.Defs[id].Name == "" {
		return nil
	}
	return &p.site.Defs[id]
}

// free lets go of what released objects held of ours.
func (c *cell) free(released []object.ID, now int64) {
	if len(released) == 0 {
		return
	}
	var mine []object.ID
	c.home.Each(func(x *object.Object) { mine = append(mine, x.Def().ID) })
	for _, id := range mine {
		for _, peer := range released {
			if x := c.home.Object(id); x != nil && x.Knows(peer) {
				c.event(id, object.Event{What: object.Freed, Peer: peer}, now)
			}
		}
	}
}

func (c *cell) route(id object.ID) host.Name { return c.routes[id].home }

func (c *cell) event(id object.ID, ev object.Event, now int64) {
	if err := c.home.Event(id, ev, now); err != nil {
		c.r.cfg.Logger.Error("a change object", "site", c.key.name, "error", err)
	}
}

// observe notes what has to be reported.
func (c *cell) observe(_ int64, o *object.Object, ev *object.Event, _ *object.Effects) {
	id := o.Def().ID
	c.dirty[id] = true
	if o.Settled() {
		delete(c.restless, id)
	} else {
		if len(c.restless) == 0 {
			c.stirs++
		}
		c.restless[id] = true
	}
	if ev.What == object.Checked {
		if s := o.Status(); s.Drifts != c.drifts[id] {
			c.drifts[id] = s.Drifts
			if s.Drifts > 0 { // it is none where the object has begun anew
				c.note(o.Def().Name, "drifted", "found "+o.Def().Type.States[s.State])
			}
		}
	}
}

func (c *cell) note(object, status, message string) {
	c.events = append(c.events, &pb.ObjectEvent{Object: object, Status: status, Message: message})
}

// news says whether there is anything to report.
func (c *cell) news() bool { return len(c.dirty)+len(c.events)+len(c.looked) > 0 || c.asked }

// report tells the leader what has changed.
func (c *cell) report(now int64) {
	if c.session == "" || !c.news() {
		return
	}
	r := &pb.HomeReport{Tenant: c.key.tenant, Site: c.key.name, Epoch: c.epoch, Events: c.events, Looked: c.looked}
	for id := range c.dirty {
		if x := c.home.Object(id); x != nil {
			r.Objects = append(r.Objects, c.describe(x))
		}
	}
	if c.asked {
		r.Calm = &pb.Calm{Call: c.call, Settled: len(c.restless) == 0 && c.waiting == 0, Stirs: c.stirs}
	}
	clear(c.dirty)
	c.events, c.looked, c.asked, c.reported = nil, nil, false, now
	c.r.cfg.Report(c.session, r)
}

func (c *cell) describe(x *object.Object) *pb.ObjectReport {
	s := x.Status()
	waits := func(list []object.Wait) (out []*pb.ObjectWait) {
		for _, w := range list {
			out = append(out, &pb.ObjectWait{Why: uint32(w.Why), Peer: uint32(w.Peer), State: uint32(w.State)})
		}
		return out
	}
	return &pb.ObjectReport{
		Id: uint32(s.ID), Inc: s.Incarnation, State: uint32(s.State), Target: uint32(s.Target), Phase: uint32(s.Phase), To: uint32(s.To),
		Failures: uint32(s.Failures), Drifts: uint32(s.Drifts), Stuck: s.Stuck, Oscillating: s.Oscillating, Removing: s.Removing, Settled: x.Settled(),
		Until: s.Until, Waits: waits(s.Waits), Asked: waits(s.Asked), Message: c.messages[s.ID], Generation: c.follows[s.Def.Host],
	}
}

func compiled(p *site.Part) (*part, error) {
	s, err := compile.Part(p)
	if err != nil {
		return nil, err
	}
	out := &part{site: s, objects: make(map[object.ID]*site.Object, len(p.IDs))}
	for i, id := range p.IDs {
		out.objects[id] = &p.Document.Objects[i]
	}
	return out, nil
}

// job gives what a performer needs for an object.
func (c *cell) job(id object.ID) (*Job, *object.Type, error) {
	x := c.home.Object(id)
	if x == nil {
		return nil, nil, errors.New("the object is gone")
	}
	d := x.Def()
	for n, p := range c.parts {
		// The definition that the object itself follows: it may still finish
		// something of the last generation.
		if o := p.objects[id]; o != nil && int(id) < len(p.site.Defs) && p.site.Defs[id].Content == d.Content && p.site.Defs[id].Name == d.Name {
			return &Job{Tenant: c.key.tenant, Site: c.key.name, Object: o, Content: d.Content, Generation: n, Node: c.nodes[d.Host],
				Held: time.Duration(c.r.now()-c.since[d.Host]) * time.Millisecond}, d.Type, nil
		}
	}
	return nil, nil, fmt.Errorf("%s: its content is not known here", d.Name)
}
