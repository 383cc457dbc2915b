package lease_test

import (
	"time"

	"github.com/coopr/coopr/engine/lease"
)

// rules are the decisions that are made in the model. A test breaks one and expects that the search finds it.
type rules struct {
	// The state.
	opens   func(last, hello lease.Hello) bool
	removed func(last lease.Hello, nowMs int64) lease.Hello
	keeps   func(fence uint64, listed []uint64) bool
	grants  func(open, held bool) bool
	valid   func(held bool, current, fence uint64) bool

	// The dispatcher. meets and sends are about a session and a lease that were committed: whether the
	// dispatcher learns of the one and sends the other, if its proposal was answered or was not.
	inherited    func(now, ended time.Time, seen bool) time.Time
	mayEnd       func(now, heard time.Time, missed int) bool
	leaves       func(leaving bool, held int) bool
	answers      func(ending bool) bool
	meets, sends func(answered bool) bool

	// The worker. until is given the time at which the answer came, too.
	until   func(sent, answered time.Time) time.Time
	inTouch func(now, until time.Time) bool
	renews  func(now, until time.Time) bool
	begins  func(leasedIn, session string, now, until time.Time) bool
	stays   bool // a worker that has cancelled its tasks goes on in its session
}

// today returns the rules that production runs. The dispatcher follows the batches of the state, and not
// the answers to its proposals.
func today(t lease.Timing) rules {
	always := func(bool) bool { return true }
	return rules{
		opens: lease.Opens, removed: lease.Removed, keeps: lease.Keeps, grants: lease.Grants, valid: lease.Valid,
		inherited: t.Inherited, mayEnd: t.MayEnd, leaves: lease.Leaves, answers: lease.Answers, meets: always, sends: always,
		until:   func(sent, _ time.Time) time.Time { return lease.Until(sent, t.TTL) },
		inTouch: lease.InTouch, renews: lease.InTouch, begins: lease.Begins,
	}
}

// The stream of an agent to a leader.
const (
	away     = iota // there is none
	asking          // its hello has no answer yet
	welcomed        // the answer is on its way
	inside          // the worker has a session
)

// The leader at the other end of a session's stream.
const (
	present = iota
	deposed // goes on answering for a while
	silent  // has nothing to say, as the session is over or about to end
)

// The machine of a deposed leader. It sleeps once at most: when it resumes, the leader soon hears of the other.
const (
	awake = iota
	asleep
	resumed
)

// States of the task at a worker.
const (
	nothing = iota
	working // until it ends, or is cancelled
	ended   // the leader has not confirmed the end yet
)

// The session of an agent in the state.
const (
	none = iota
	own  // of the present term
	old  // of an earlier term
)

// A heartbeat on its way.
const (
	up   = 1 + iota // to the leader
	down            // its answer
)

// Tasks on their way to a worker: sent over its stream or over an earlier one, with the fence of the valid
// lease or with one that is over.
const (
	valid uint8 = 1 << iota
	stale
	validBefore
	staleBefore

	here   = valid | stale
	before = validBefore | staleBefore
)

// never is the value of agent.left of a worker that has no session on which it could rely.
const never = -128

// Places in agent.log, one for each entry that may be on its way to the log.
const (
	hello     = iota
	nextHello // was said after the other one
	ending    // of the session
	granting  // of the task to the session
	reporting // the end of the task
	places
)

// entry is what is on its way to the log; 0 means nothing.
type entry uint8

const (
	underWay entry = 1 << iota
	waits          // its proposer waits for the answer
	outdated       // a newer hello was committed, or the session of the lease is over
	removed        // the agent was removed after this hello
	fenced         // the hello or the report names the fence of the valid lease
)

// agent is one agent: its process, what is on its way to and from it, and what the state and the leader
// have of it.
type agent struct {
	stream, leader uint8
	left           int8 // tenths of a tick for which the worker may rely on its leases
	does           uint8
	current        bool  // the fence of what it does is that of the valid lease
	beat           uint8 // the heartbeat
	age            uint8 // ticks since it sent the hello or the heartbeat
	parcels        uint8
	leaving        bool // the worker begins no more tasks, and the leader of its session knows
	log            [places]entry

	session uint8
	ended   uint8 // ticks since the term of an old session ended, plus 1
	unseen  bool  // the other voter has not seen that; it does so at once or when it is elected
	heard   int8  // ticks since the leader heard of the session
	met     bool  // the leader knows of the session
	waited  uint8 // ticks for which the session without a stream could not be ended
}

// state is all that there is.
type state struct {
	agents [2]agent
	world
}

// world is what is not about an agent.
type world struct {
	task    uint8 // 0: nobody's; otherwise the agent that has the lease, plus 1
	deposed bool  // there is a deposed leader that does not know it yet
	nap     uint8 // whether its machine sleeps
	awake   uint8 // ticks for which it has gone on
}

// packed is a state, short. Agents are numbers in the order in which they were first seen, and the lower one is
// first, as the two are alike.
type packed struct {
	agents [2]uint32
	world
}

func (s *search) pack(n *state) (p packed, swapped bool) {
	p.world = n.world
	for i, a := range n.agents {
		id, known := s.numbers[a]
		if !known {
			id = uint32(len(s.forms))
			s.numbers[a] = id
			s.forms = append(s.forms, a)
		}
		p.agents[i] = id
	}
	if a := &p.agents; s.cfg.agents > 1 && (a[1] < a[0] || a[0] == a[1] && p.task == 2) {
		a[0], a[1] = a[1], a[0]
		if swapped = true; p.task > 0 {
			p.task = 3 - p.task
		}
	}
	return p, swapped
}

func (s *search) unpack(p packed) state {
	return state{agents: [2]agent{s.forms[p.agents[0]], s.forms[p.agents[1]]}, world: p.world}
}

// room reports whether another entry may be proposed.
func (s *search) room() bool {
	n := 0
	for i := range s.at.agents {
		for _, e := range s.at.agents[i].log {
			if e != 0 {
				n++
			}
		}
	}
	return n < s.cfg.entries
}

// propose puts an entry on its way. Its proposer waits for the answer, if the answer makes a difference.
func (a *agent) propose(place int, e entry) {
	if a.log[place] = e | underWay; place != ending {
		a.log[place] |= waits
	}
}

// take takes an entry off its way. Hellos keep their order.
func (a *agent) take(place int) {
	if place == hello {
		a.log[hello] = a.log[nextHello]
		place = nextHello
	}
	a.log[place] = 0
}

// talks reports whether a worker and the leader share a stream.
func (a *agent) talks() bool { return a.stream >= welcomed && a.leader == present }

// part ends the stream of an agent. Nobody waits for what was proposed over it.
func (a *agent) part() {
	a.stream, a.leader, a.beat, a.age = away, present, 0, 0
	a.parcels = a.parcels&here<<2 | a.parcels&before
	for place := range a.log {
		if place != granting {
			a.log[place] &^= waits
		}
	}
}

// free ends the lease of the task: from now on its fence is stale.
func (s *state) free() {
	s.task = 0
	for i := range s.agents {
		a := &s.agents[i]
		a.current = false
		a.parcels = a.parcels&(valid|validBefore)<<1 | a.parcels&(stale|staleBefore)
		for place := range a.log {
			a.log[place] &^= fenced
		}
	}
}

// over removes the session of an agent from the state, and the lease with it.
func (s *state) over(who uint8) {
	if s.task == who+1 {
		s.free()
	}
	a := &s.agents[who]
	a.log[ending] = 0
	if a.log[granting] != 0 {
		a.log[granting] |= outdated
	}
	if a.talks() {
		a.leader = silent
	}
	a.session, a.ended, a.unseen, a.heard, a.met = none, 0, false, 0, false
}

// depart ends the streams of a deposed leader.
func (s *state) depart() {
	s.deposed, s.nap, s.awake = false, awake, 0
	for i := range s.agents {
		if s.agents[i].leader == deposed {
			s.agents[i].part()
		}
	}
}

// tidy removes from a state what makes no difference any more, so that fewer states differ.
func (s *search) tidy(n *state) {
	for i := range n.agents {
		a := &n.agents[i]
		for place := places - 1; place >= 0; place-- {
			if why := s.refused(place, a.log[place]); why != "" {
				s.taken[why+" is refused"]++
				a.take(place)
			}
		}
		if a.stream == asking && (a.log[hello]|a.log[nextHello])&waits == 0 {
			a.part() // the leader ends the stream of a hello that failed
		}
		if !s.cfg.untidy {
			s.tidyAgent(a)
		}
		if !s.stuck(a) {
			a.waited = 0
		}
	}
	if n.agents[0].leader != deposed && n.agents[1].leader != deposed && !s.cfg.untidy {
		n.depart() // no worker hears of the deposed leader
	}
}

func (s *search) tidyAgent(a *agent) {
	if !s.cfg.begins("before", "here", now, now.Add(1)) {
		a.parcels &= here // no worker begins a task of an earlier session
	}
	lapsed := a.left != never && !s.cfg.inTouch(now, a.until())
	final := lapsed && !s.cfg.renews(now, a.until())
	if !a.current && (a.does == ended || a.does == working && final) {
		a.does = nothing // the state would refuse the report
	}
	if a.beat == down && (final || !s.cfg.inTouch(now, s.cfg.until(ago(a.age), now))) {
		a.beat, a.age = 0, 0 // the answer comes too late
	}
	if a.stream == inside && a.parcels&here == 0 && (a.leader == silent && a.beat != down ||
		lapsed && !s.cfg.stays && a.does == nothing && a.log[granting] == 0) {
		a.part() // nothing comes over it, or it is given up without a task to cancel
	}
	if a.stream != inside && a.does != working {
		a.left = never // the welcome sets it
	}
	if a.session != own && a.parcels&here == 0 {
		a.leaving = false
	}
}

// tick is the unit of the time in the model. All times are counted from now, the present in every state.
const tick = 10 * time.Second

var now = time.Unix(1_000_000, 0)

// ago returns the time so many ticks ago.
func ago[T int8 | uint8](ticks T) time.Time { return now.Add(-time.Duration(ticks) * tick) }

// until returns the time until which a worker may rely on its leases.
func (a *agent) until() time.Time {
	if a.left == never {
		return time.Time{}
	}
	return now.Add(time.Duration(a.left) * tick / 10)
}

// rely sets the time until which a worker may rely on its leases.
func (a *agent) rely(until time.Time) { a.left = int8(min(max(until.Sub(now)*10/tick, -1), 100)) }

// mayEnd reports whether the leader may end the session of an agent now. Its clock is a moment ahead, as
// things happen between the ticks.
func (s *search) mayEnd(a *agent) bool {
	return a.session != none && a.met && s.cfg.mayEnd(now.Add(1), ago(a.heard), lease.Checks)
}

// stuck reports whether the session of an agent without a stream can neither be ended nor is about to be.
func (s *search) stuck(a *agent) bool {
	return a.stream == away && a.session != none && a.log[ending] == 0 && !s.mayEnd(a)
}

// pass lets a tick pass. Ages stop where they mean nothing more.
func (s *search) pass(n *state) {
	ttl, grace := s.cfg.ttl, s.cfg.grace
	for i := range n.agents {
		a := &n.agents[i]
		if s.stuck(a) {
			a.waited++
		}
		if a.left != never {
			a.left = max(a.left-10, -1)
		}
		if a.stream == asking || a.stream == welcomed || a.beat != 0 {
			a.age = min(a.age+1, uint8(ttl))
		}
		if a.session != none {
			a.heard = min(a.heard+1, int8(ttl))
		}
		if a.session == old {
			a.ended = min(a.ended+1, uint8(ttl+grace+1))
		}
	}
	if n.deposed && n.nap == awake {
		n.awake++
	}
}
