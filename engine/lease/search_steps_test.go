package lease_test

import "github.com/coopr/coopr/engine/lease"

// expand takes every step that is possible in the state that is expanded.
func (s *search) expand() {
	for who := range uint8(s.cfg.agents) {
		s.process(who)
		s.worker(who)
		s.arrivals(who)
		s.dispatcher(who)
		for place, e := range s.at.agents[who].log {
			if e != 0 {
				s.entry(who, place, e)
			}
		}
	}
	s.terms()
}

// process takes the steps of an agent's process and of its stream. An agent that is dead is one that takes no
// more steps; its next hello shows that it was started again.
func (s *search) process(who uint8) {
	a := &s.at.agents[who]
	s.step(who, "dies", func(_ *state, a *agent) {
		a.part()
		a.left, a.parcels = never, 0
		a.stop()
	})
	if a.stream != away {
		s.step(who, "loses its connection", func(_ *state, a *agent) { a.part() })
	} else if a.session == none && a.log[hello] != 0 {
		s.step(who, "is removed", func(_ *state, a *agent) { a.remove() })
	}
}

// stop ends what a worker does. Its journal has it.
func (a *agent) stop() {
	if a.does == working {
		a.does = ended
	}
}

// remove removes the record of an agent.
func (a *agent) remove() {
	for place := hello; place <= nextHello; place++ {
		if a.log[place] != 0 {
			a.log[place] |= removed
		}
	}
}

// worker takes the steps of a worker by itself.
func (s *search) worker(who uint8) {
	a := &s.at.agents[who]
	if a.stream == away && a.log[nextHello] == 0 && s.room() {
		s.step(who, "says hello", func(_ *state, a *agent) {
			place := hello
			if a.log[hello] != 0 {
				place = nextHello
			}
			a.stream = asking
			a.propose(place, fence(a.current))
		})
	}
	if a.stream == inside && a.beat == 0 {
		s.step(who, "sends a heartbeat", func(_ *state, a *agent) { a.beat, a.age = up, 0 })
	}
	if a.does == working {
		s.step(who, "ends the task", func(_ *state, a *agent) { a.stop() })
	}
	if a.left != never && !s.cfg.inTouch(now, a.until()) {
		s.step(who, "cancels its tasks", func(_ *state, a *agent) {
			a.stop()
			if a.left = never; a.stream == inside && !s.cfg.stays {
				a.part()
			}
		})
	}
	if a.stream == inside && a.leader == present && a.does == ended && a.log[reporting] == 0 && s.room() {
		s.step(who, "reports the task", func(_ *state, a *agent) { a.propose(reporting, fence(a.current)) })
	}
}

// arrivals takes the steps of what is on its way from a worker and to it.
func (s *search) arrivals(who uint8) {
	a := &s.at.agents[who]
	if a.stream == welcomed {
		s.step(who, "is welcome", func(_ *state, a *agent) {
			if !a.current { // the welcome says so
				a.stop()
			}
			a.rely(s.cfg.until(ago(a.age), now))
			a.stream, a.age = inside, 0
		})
	}
	if a.beat == up && !(a.leader == deposed && s.at.nap == asleep) {
		s.step(who, "is heard", func(_ *state, a *agent) { s.hear(a, false) })
		if a.leader == present {
			s.step(who, "is heard, and is leaving", func(_ *state, a *agent) { s.hear(a, true) })
		}
	}
	if a.beat == down {
		s.step(who, "is answered", func(_ *state, a *agent) {
			if s.cfg.renews(now, a.until()) {
				a.rely(s.cfg.until(ago(a.age), now))
			}
			a.beat, a.age = 0, 0
		})
	}
	for p := valid; p <= staleBefore; p <<= 1 {
		if a.parcels&p != 0 {
			s.parcel(who, p)
		}
	}
}

// hear takes a heartbeat to its leader.
func (s *search) hear(a *agent, leaving bool) {
	answered := a.leader == deposed
	if a.leader == present {
		a.heard, a.leaving = 0, a.leaving || leaving
		answered = s.cfg.answers(a.log[ending] != 0)
	}
	if a.beat = down; !answered {
		a.beat, a.age = 0, 0
	}
}

// parcel takes a task to its worker. It stays behind a welcome that is still on its way.
func (s *search) parcel(who, p uint8) {
	a := &s.at.agents[who]
	mine, current := p&here != 0, p&(valid|validBefore) != 0
	if mine && a.stream == welcomed {
		return
	}
	leasedIn, session := "before", ""
	if mine {
		leasedIn = "here"
	}
	if a.stream == inside {
		session = "here"
	}
	if !a.leaving && s.cfg.begins(leasedIn, session, now, a.until()) {
		s.step(who, "begins the task", func(_ *state, a *agent) {
			if !current {
				s.wrong = worksWithout
			}
			a.parcels &^= p
			a.does, a.current = working, current
		})
	}
	// Also a worker that is leaving, or cannot write its journal, begins no task.
	switch {
	case !mine || a.leader != present:
		s.step(who, "drops a task", func(_ *state, a *agent) { a.parcels &^= p })
	case a.log[reporting] == 0 && s.room():
		s.step(who, "returns a task", func(_ *state, a *agent) {
			a.parcels &^= p
			a.propose(reporting, fence(current))
		})
	}
}

// dispatcher takes the steps of the leader about an agent.
func (s *search) dispatcher(who uint8) {
	a := &s.at.agents[who]
	if !s.room() {
		return
	}
	if a.log[ending] == 0 && s.mayEnd(a) {
		s.step(who, "was silent, and its session is to end", func(_ *state, a *agent) { a.propose(ending, 0) })
	}
	held := 0 // or is about to be
	if s.at.task == who+1 || a.log[granting]&waits != 0 {
		held = 1
	}
	if a.log[ending] == 0 && a.session == own && s.cfg.leaves(a.leaving, held) {
		s.step(who, "leaves, and its session is to end", func(_ *state, a *agent) { a.propose(ending, 0) })
	}
	if s.at.task == 0 && a.talks() && a.log[ending] == 0 && !a.leaving && a.log[granting] == 0 && !s.choosing() {
		s.step(who, "is to have the task", func(_ *state, a *agent) { a.propose(granting, 0) })
	}
}

// choosing reports whether the leader has chosen an agent for the task and waits for the answer.
func (s *search) choosing() bool {
	return (s.at.agents[0].log[granting]|s.at.agents[1].log[granting])&waits != 0
}

var names = [places]string{"hello", "hello", "end of the session", "lease", "report"}

// entry takes the steps of an entry that is on its way.
func (s *search) entry(who uint8, place int, e entry) {
	s.step(who, names[place]+" is committed", func(n *state, a *agent) {
		if place == nextHello && a.log[hello] != 0 {
			a.log[hello] |= outdated
		}
		a.take(place)
		switch place {
		case hello, nextHello:
			s.open(n, a, who, e)
		case ending:
			if a.session == old {
				s.what = "end of a session of an earlier term is committed"
			}
			n.over(who)
		case granting:
			s.grant(n, a, who, e)
		case reporting:
			s.accept(n, e)
		}
	})
	s.step(who, names[place]+" is lost", func(_ *state, a *agent) {
		a.take(place)
		// The leader closes the connection, and the worker says another hello.
		if place == ending && a.talks() || place != granting && e&waits != 0 {
			a.part()
		}
	})
	if place == granting && e&waits != 0 { // of the others, the loss of the connection means the same
		s.step(who, "lease is late", func(_ *state, a *agent) { a.log[granting] &^= waits })
	}
}

// Fences. The rules compare them only.
const (
	staleFence = 1
	validFence = 2
)

// fence returns the mark of an entry that names a fence.
func fence(current bool) entry {
	if current {
		return fenced
	}
	return 0
}

func (e entry) fence() uint64 {
	if e&fenced != 0 {
		return validFence
	}
	return staleFence
}

// refused returns which entry the state will refuse, whenever it is committed, or "".
func (s *search) refused(place int, e entry) string {
	last, h := lease.Hello{Incarnation: 1, Number: 5}, lease.Hello{Incarnation: 1, Number: 6}
	if e&outdated != 0 {
		h.Number = 4
	}
	if e&removed != 0 {
		last = s.cfg.removed(last, 9)
	}
	switch {
	case e == 0:
	case place <= nextHello && !s.cfg.opens(last, h):
		return "older hello"
	case place == granting && e&outdated != 0 && !s.cfg.grants(false, false):
		return "lease in a session that is over"
	case place == reporting && e&fenced == 0 && !s.cfg.valid(true, validFence, e.fence()):
		return "report of a lease that is over"
	}
	return ""
}

// open applies a hello. The lease that it lists moves to the new session.
func (s *search) open(n *state, a *agent, who uint8, e entry) {
	if e&removed != 0 {
		s.wrong = "an agent that was removed is back without another hello"
	}
	kept := n.task == who+1 && s.cfg.keeps(validFence, []uint64{e.fence()})
	if kept {
		s.what, n.task = "hello with a lease is committed", 0
	}
	if n.over(who); kept {
		n.task = who + 1
	}
	answered := e&waits != 0
	a.leaving, a.waited = false, 0
	if a.session, a.met = own, s.cfg.meets(answered); answered {
		a.stream, a.leader = welcomed, present
	}
}

// grant applies a lease. The leader sends the task when it sees that.
func (s *search) grant(n *state, a *agent, who uint8, e entry) {
	open := e&outdated == 0
	if !s.cfg.grants(open, n.task != 0) {
		s.what = "lease is refused"
		return
	}
	if !open {
		s.wrong = "a task is leased in a session that is over"
	}
	n.free()
	n.task = who + 1
	if a.talks() && s.cfg.sends(e&waits != 0) {
		a.parcels |= valid
	}
}

// accept applies a report, and confirms it to the worker.
func (s *search) accept(n *state, e entry) {
	if s.cfg.valid(n.task != 0, validFence, e.fence()) {
		if e&fenced == 0 {
			s.wrong = "the report of a lease that is over is accepted"
		}
		n.free()
	}
}

// terms takes the steps of voters and of the time.
func (s *search) terms() {
	st := &s.at
	if !st.deposed || st.nap == asleep || st.nap == awake && int(st.awake) < s.cfg.deposed {
		s.step(nobody, "a tick passes", func(n *state, _ *agent) { s.pass(n) })
	}
	if !s.cfg.lasting {
		s.step(nobody, "the other voter is elected", func(n *state, _ *agent) { s.elect(n) })
	}
	if st.deposed {
		s.step(nobody, "the deposed leader learns of it", func(n *state, _ *agent) { n.depart() })
		switch st.nap {
		case awake:
			s.step(nobody, "the deposed leader sleeps", func(n *state, _ *agent) { n.nap = asleep })
		case asleep:
			s.step(nobody, "the deposed leader resumes", func(n *state, _ *agent) { n.nap = resumed })
		}
	}
	s.step(nobody, "the other voter sees the end of a term", func(n *state, _ *agent) {
		for i := range n.agents {
			if a := &n.agents[i]; a.ended == 1 {
				a.unseen = false
			}
		}
	})
	s.step(nobody, "the other voter starts again", func(n *state, _ *agent) {
		for i := range n.agents {
			a := &n.agents[i]
			a.unseen, a.waited = a.session == old, 0
		}
	})
}

// elect has the other voter lead. The leader goes on for a while, as it does not know.
func (s *search) elect(n *state) {
	n.depart()
	n.deposed = true
	for i := range n.agents {
		a := &n.agents[i]
		switch {
		case a.stream == asking:
			a.part()
		case a.talks() && s.cfg.answers(a.log[ending] != 0):
			a.leader = deposed
		case a.talks():
			a.leader = silent
		}
		a.log = [places]entry{} // what of them is in the log was committed before
		if a.session == none {
			continue
		}
		seen := a.session == own || !a.unseen // its own first entry ends the session's term
		if a.unseen = a.session == own; a.unseen {
			a.session, a.ended = old, 1
		}
		a.heard = int8(now.Sub(s.cfg.inherited(now, ago(a.ended-1), seen)) / tick)
		a.met = true
	}
}
