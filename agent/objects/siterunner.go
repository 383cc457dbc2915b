package objects

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/coopr/coopr/consensus/duty/loop"
	"github.com/coopr/coopr/engine/change/host"
	"github.com/coopr/coopr/engine/change/object"
	"github.com/coopr/coopr/engine/change/site"
	pb "github.com/coopr/coopr/rpc/proto"
)

var (
	errBroken     = errors.New("the stream has ended")
	errNotRunning = errors.New("this agent does not run change objects now")
)

const (
	// gather is how long changes are gathered before they are reported, in milliseconds.
	gather = 20
	// manyEarly bounds the messages that wait for orders because they refer to newer ones.
	manyEarly = 10_000
	// retry is the pause after which acts that may not begin are tried again, in
	// milliseconds.
	retry = 100
	// linger is how long a runner without objects is kept: packets may have come before
	// the orders that they need.
	linger = time.Minute
)

// siteRunner runs the objects of one site on this agent. Only mail is shared: everything
// else belongs to the calls of reconcile, which never overlap.
type siteRunner struct {
	r   *Runtime
	key siteKey

	mail loop.Mailbox[message]

	host    *host.Runtime
	session string // the one in which the last orders came
	kept    string // the one in which orders came without parts that are not here yet
	epoch   uint64
	version uint64
	probe   uint64 // the leader's last probe
	call    uint64 // the leader's last call, which has to be answered if asked
	asked   bool
	parts   map[uint64]*part
	follows map[string]uint64 // the generation that each of our hosts follows
	since   map[string]int64  // when each of our hosts was assigned to us in this session
	routes  map[object.ID]life
	lives   map[object.ID]site.Lived
	agents  map[string]string // by host
	nodes   map[string]site.Access
	paused  bool

	early   []packet
	waiting int // messages in early
	running map[object.ID]*running
	held    []todo // acts that may not begin now, and those behind them
	idle    int64  // since when there have been no objects; 0 if there are some

	news
}

// news is what a site runner has to report to the leader.
type news struct {
	dirty    map[object.ID]bool
	messages map[object.ID]string
	drifts   map[object.ID]int
	// events are those that no leader is known to have committed, with consecutive numbers that end with number. The last unsent
	// ones were not reported in this session.
	events   []*pb.ObjectEvent
	number   uint64
	unsent   int
	taken    bool // the leader of this session says what it has committed
	probed   []*pb.Probed
	reported int64
	// restless are the objects that are not at rest. stirs counts how often restless got its first
	// object.
	restless map[object.ID]bool
	stirs    uint64
}

// part is this agent's slice of a generation, compiled.
type part struct {
	site    *object.Site
	objects map[object.ID]*site.Object            // with references in place of secrets
	values  map[string]map[string]json.RawMessage // of these references, by host
}

// packet is a packet that another agent sent.
type packet struct {
	from string
	*pb.ChangePacket
}

// life is the agent that an object runs on, and which of the object's lives it is.
type life struct {
	agent string
	inc   uint32
}

// todo is an act of one life of an object.
type todo struct {
	act   object.Act
	inc   uint32
	probe uint64 // the number of the leader's probe that asks for the check, or 0
}

// running is the act that runs for an object, and those that wait behind it.
type running struct {
	todo
	cancel context.CancelFunc
	next   []todo
}

func newSiteRunner(r *Runtime, key siteKey) *siteRunner {
	sr := &siteRunner{r: r, key: key, running: map[object.ID]*running{}}
	sr.number = r.numbers
	r.numbers += 1 << 32 // a later runner of the site continues above
	sr.clear()
	return sr
}

// clear forgets all objects, and stops their acts.
func (sr *siteRunner) clear() {
	for _, x := range sr.running {
		x.cancel()
		x.next = nil
	}
	sr.host, sr.session, sr.kept, sr.version, sr.held = nil, "", "", 0, nil
	sr.parts, sr.follows, sr.since = map[uint64]*part{}, map[string]uint64{}, map[string]int64{}
	sr.routes, sr.lives, sr.agents = map[object.ID]life{}, map[object.ID]site.Lived{}, map[string]string{}
	sr.dirty, sr.messages, sr.drifts = map[object.ID]bool{}, map[object.ID]string{}, map[object.ID]int{}
	sr.events, sr.unsent, sr.probed, sr.call, sr.asked, sr.restless = nil, 0, nil, 0, false, map[object.ID]bool{}
}

// message is what a runner is to do; now is the time in milliseconds.
type message func(x *siteRunner, now int64)

// post has the runner handle a message, unless it was dropped.
func (sr *siteRunner) post(fn message) {
	if sr.mail.Post(fn) {
		sr.r.queue.Add(sr.key)
	}
}

// reconcile handles the messages that wait, starts the acts that are due, and returns when the next
// thing will be; 0 for never. It is not called twice at once.
func (sr *siteRunner) reconcile(ctx context.Context, now int64) int64 {
	mail := sr.mail.Take()
	for _, fn := range mail {
		fn(sr, now)
	}
	sr.step(ctx, now)
	if sr.host != nil || len(sr.running) > 0 {
		sr.idle = 0
		return sr.next(now)
	}
	if sr.idle == 0 || len(mail) > 0 {
		sr.idle = now
	}
	if now >= sr.idle+linger.Milliseconds() {
		sr.r.drop(sr)
		return 0
	}
	return sr.idle + linger.Milliseconds()
}

// next returns when something is due; 0 for never.
func (sr *siteRunner) next(now int64) int64 {
	next := int64(0)
	if sr.host != nil {
		next = sr.host.Next()
	}
	if sr.hasNews() && sr.session != "" {
		next = earlier(next, sr.reported+gather)
	}
	if len(sr.held) > 0 {
		next = earlier(next, now+retry)
	}
	return next
}

func earlier(a, b int64) int64 {
	if a == 0 || b < a {
		return b
	}
	return a
}

// step lets time pass for the objects, begins the acts that they want, sends their
// messages and reports them.
func (sr *siteRunner) step(ctx context.Context, now int64) {
	if sr.host == nil {
		return
	}
	if next := sr.host.Next(); next > 0 && next <= now {
		sr.host.Tick(now)
	}
	held := sr.held
	sr.held = nil
	for _, t := range held {
		sr.begin(ctx, t)
	}
	for acts := sr.host.Acts(); len(acts) > 0; acts = sr.host.Acts() { // an act that cannot begin is answered at once, and others may follow
		for _, a := range acts {
			if o := sr.host.Object(a.ID); o != nil {
				sr.begin(ctx, todo{act: a, inc: o.Incarnation()})
			}
		}
	}
	sr.host.Flush(now, func(p host.Packet) {
		m := &pb.ChangePacket{Tenant: sr.key.tenant, Site: sr.key.name, Epoch: sr.epoch, Version: sr.version}
		for i := range p.Messages {
			m.Messages = append(m.Messages, toWire(&p.Messages[i]))
		}
		sr.r.send(p.To, m)
	})
	if now >= sr.reported+gather {
		sr.report(now)
	}
}

// receive takes a packet. A packet whose sender had newer orders waits until these orders
// have come, so that all objects that it refers to are known.
func (sr *siteRunner) receive(p packet, now int64) {
	if sr.host == nil || p.Epoch > sr.epoch || p.Epoch == sr.epoch && p.Version > sr.version {
		if sr.waiting += len(p.Messages); sr.waiting > manyEarly {
			sr.early, sr.waiting = nil, len(p.Messages)
		}
		sr.early = append(sr.early, p)
		return
	}
	if p.Epoch < sr.epoch {
		return // of a deleted site of this name
	}
	list := make([]object.Message, 0, len(p.Messages))
	for _, m := range p.Messages {
		if x, ok := fromWire(m); ok {
			list = append(list, x)
		}
	}
	sr.host.Receive(p.from, list, now)
}

func (sr *siteRunner) route(id object.ID) host.Name { return sr.routes[id].agent }
