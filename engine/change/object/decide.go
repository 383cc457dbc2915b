package object

// decide derives the next step of the object from everything it knows (rules 10 to 17). It
// runs after every change of that.
func (o *Object) decide(now int64, fx *Effects) {
	if r := o.few(); r.later != nil && o.free() {
		def := r.later
		r.later = nil
		o.keep(r)
		o.rebind(def, fx)
	}
	if o.unresolved {
		o.resolveClaims(fx)
	}
	o.target, o.urgent = o.aim()
	if o.phase == Moving {
		return // with all its locks, and none of its own granted
	}
	o.require(fx)
	if o.phase == Resting && o.state != o.target && o.move(now, fx) {
		return
	}
	o.yield(fx)
	o.grant(fx)
	o.call(fx)
}

// aim chooses the target (rule 10). Requests on behalf of removals win over all others (rule
// 24), also over the object's own removal, because that removal may depend on them.
func (o *Object) aim() (State, bool) {
	if o.asking > 0 {
		best, urgent := o.best()
		if best != Unknown && (urgent || !o.removing) {
			return best, urgent
		}
	}
	if o.removing {
		return o.def.Type.PreRemove, true
	}
	return o.def.Preferred, false
}

// best returns the state of the request with the highest priority.
func (o *Object) best() (best State, urgent bool) {
	rank := &o.def.Type.rank
	if t := o.tally(); t != nil {
		for c := 1; c >= 0; c-- {
			for s, n := range t[c] {
				if n > 0 && (best == Unknown || rank[s] > rank[best]) {
					best = State(s)
				}
			}
			if best != Unknown {
				return best, c == 1
			}
		}
		return Unknown, false
	}
	for i := range o.in {
		s := &o.in[i]
		if s.want == Unknown {
			continue
		}
		u := s.flags&removal != 0
		if best == Unknown || u && !urgent || u == urgent && rank[s.want] > rank[best] {
			best, urgent = s.want, u
		}
	}
	return best, urgent
}

// asked returns how many requests there are for a state.
func (o *Object) asked(s State) int32 {
	if o.asking == 0 {
		return 0
	}
	if t := o.tally(); t != nil {
		return t[0][s] + t[1][s]
	}
	n := int32(0)
	for i := range o.in {
		if o.in[i].want == s {
			n++
		}
	}
	return n
}

// driven reports whether the object is in another state than its preferred one only because of
// a request. If the revoke of that request was lost, the object would stay there for ever.
func (o *Object) driven() bool {
	return o.asking > 0 && (o.target != o.def.Preferred || o.asked(o.target) < o.asking)
}

// require determines which locks the object needs (rules 11, 13, 15, 16), requests those and
// releases all others.
func (o *Object) require(fx *Effects) {
	k := need{state: o.state, urgent: o.urgent, valid: true}
	switch {
	case o.granted > 0:
		// Other objects rely on this state, whatever has happened to this object since.
		k.hold = o.lent
	case o.phase == Resting && o.state != Unknown && o.state == o.target && o.asked(o.state) > 0:
		k.hold = o.state
	}
	if o.phase == Resting && o.state != Unknown && o.state != o.target {
		k.next, _ = o.def.Type.Next(o.state, o.target)
	}
	// The object drives others out of their preferred states only after it holds every lock on
	// providers that stay in theirs. So no object is stopped for an object that cannot continue
	// yet, or that is being stopped itself.
	was := o.key
	was.drive = false
	if k == was {
		k.drive = o.key.drive || k.next != Unknown && o.missing == 0
	}
	for k != o.key {
		o.key = k
		o.demand(fx)
		k.drive = k.drive || k.next != Unknown && o.missing == 0
	}
}

// demand requests the locks that the key describes and releases all others.
func (o *Object) demand(fx *Effects) {
	k := o.key
	for i := range o.out {
		o.out[i].need = Unknown
		o.out[i].flags &^= press
	}
	o.missing = 0
	for i := range o.def.Needs {
		n := &o.def.Needs[i]
		if n.Hold && n.From == k.hold {
			s := &o.out[n.Slot]
			s.need = n.State
			if o.urgent && k.hold == o.target {
				s.flags |= press // only locks on the target state are urgent
			}
		}
	}
	if k.next != Unknown {
		for i := range o.def.Needs {
			n := &o.def.Needs[i]
			if !n.Covers(k.state, k.next) || n.Drives && !k.drive {
				continue
			}
			s := &o.out[n.Slot]
			if s.need == Unknown {
				s.need = n.State
				if o.urgent {
					s.flags |= press
				}
			} else if s.need != n.State {
				o.missing++ // until its own locks are back
			}
		}
	}
	for i := range o.out {
		o.ask(i, fx)
	}
}

// ask brings the request over one link in line with the need for it.
func (o *Object) ask(i int, fx *Effects) {
	s := &o.out[i]
	if s.flags&unknown != 0 {
		if s.need != Unknown {
			o.missing++
		}
		return
	}
	if s.want != s.need {
		if s.need == Unknown {
			o.letGo(o.def.Out[i], s, fx)
			return
		}
		s.epoch++
		s.want, s.flags = s.need, s.flags&press|pressed(s)
		o.request(i, fx)
	} else if s.want != Unknown && s.flags&pressing != pressed(s) {
		s.epoch++
		s.flags ^= pressing
		o.request(i, fx)
	}
	if s.need != Unknown && s.flags&held == 0 {
		o.missing++
	}
}

// pressed returns pressing if a lock is to be requested on behalf of a removal.
func pressed(s *Out) outFlag {
	if s.flags&press != 0 {
		return pressing
	}
	return 0
}

// request sends the current request of a link.
func (o *Object) request(i int, fx *Effects) {
	s := &o.out[i]
	o.send(fx, Message{To: o.def.Out[i], ToInc: s.peerInc, Epoch: s.epoch, Kind: Request, State: s.want,
		Urgent: s.flags&pressing != 0, Held: s.flags&held != 0})
}

// letGo returns a lock to its provider, or withdraws the request for it.
func (o *Object) letGo(provider ID, s *Out, fx *Effects) {
	m := Message{To: provider, ToInc: s.peerInc, Kind: Revoke}
	if s.flags&held != 0 {
		m.Kind, m.Lazy = Release, s.flags&(eager|wanted) == 0
	}
	s.epoch++
	s.want, s.flags = Unknown, 0
	m.Epoch = s.epoch
	o.send(fx, m)
}

// move starts a transition if the object can make one (rule 14), and reports whether it did.
func (o *Object) move(now int64, fx *Effects) bool {
	if o.later() != nil || o.key.next == Unknown || o.missing > 0 || o.granted > 0 || o.silent > 0 || o.probing {
		return false
	}
	// An object that keeps changing its state is slowed down (rule 27).
	t := uint32(now / turnLeak)
	if gone := t - o.turned; gone > 0 {
		o.turns -= uint8(min(uint32(o.turns), gone))
		o.turned = t
	}
	if now < o.few().until {
		o.setTimer(fx)
		return false
	}
	if o.turns < 255 {
		o.turns++
	}
	if o.turns > manyTurns {
		r := o.few()
		r.until = now + backoff(int(o.turns)-manyTurns-1)
		o.keep(r)
	}
	next := o.key.next
	o.phase, o.to, o.open, o.calling = Moving, next, false, false
	o.act(fx, Act{What: Run, Transition: o.def.Type.Move(o.state, next)})
	return true
}

// yield returns every recalled lock that nothing relies on to its provider, and requests it
// again. Without it, two objects that hold what each other needs would wait for ever.
func (o *Object) yield(fx *Effects) {
	if !o.recalled {
		return
	}
	o.recalled = false
	for i := range o.out {
		s := &o.out[i]
		if s.flags&(held|wanted) != held|wanted {
			continue
		}
		if o.granted > 0 {
			o.recalled = true
			return
		}
		s.epoch++
		s.flags &= pressing | press
		if s.need != Unknown {
			o.missing++
		}
		o.request(i, fx)
	}
}

// grant grants the requests for the object's state (rule 12).
func (o *Object) grant(fx *Effects) {
	open := o.later() == nil && o.phase == Resting && o.state != Unknown && o.state == o.target && o.key.hold == o.state && o.missing == 0 &&
		!o.recalled
	if open && !o.open {
		for i := range o.in {
			o.grantTo(i, fx)
		}
	}
	o.open = open
}

// grantTo grants one request for the object's state, unless it is granted already.
func (o *Object) grantTo(i int, fx *Effects) {
	s := &o.in[i]
	if s.want != o.state || s.flags&granted != 0 {
		return
	}
	s.flags = s.flags&^called | granted
	o.granted++
	o.lent = s.want
	o.sendGrant(s, fx)
}

func (o *Object) sendGrant(s *In, fx *Effects) {
	leave := o.removing || o.state != o.def.Preferred
	o.send(fx, Message{To: s.peer, ToInc: s.inc, Epoch: s.epoch, Kind: Grant, State: s.want, Eager: leave})
}

// call recalls all granted locks if the object wants to leave its state or cannot vouch for
// it.
func (o *Object) call(fx *Effects) {
	calling := o.granted > 0 && !o.open
	if calling && !o.calling {
		for i := range o.in {
			o.callFrom(i, fx)
		}
	}
	o.calling = calling
}

func (o *Object) callFrom(i int, fx *Effects) {
	s := &o.in[i]
	if s.flags&granted == 0 || s.flags&called != 0 {
		return
	}
	s.flags |= called
	o.send(fx, Message{To: s.peer, ToInc: s.inc, Epoch: s.epoch, Kind: Recall})
}

// resolveClaims decides which locks the object's earlier life held, for each link for which
// this is known now. It held none for a transition, as none is running. For the states that it
// granted it held what its dependents still hold (rule 20).
func (o *Object) resolveClaims(fx *Effects) {
	o.unresolved = false
	for i := range o.out {
		s := &o.out[i]
		if s.flags&unknown == 0 {
			continue
		}
		claim, known := o.claim(i)
		if !known {
			o.unresolved = true
			continue
		}
		s.flags = 0
		s.epoch++
		o.key = need{}
		if claim == Unknown {
			o.send(fx, Message{To: o.def.Out[i], ToInc: s.peerInc, Epoch: s.epoch, Kind: Revoke})
			continue
		}
		s.want, s.flags = claim, held
		o.request(i, fx)
	}
}

func (o *Object) claim(slot int) (claim State, known bool) {
	for i := range o.def.Needs {
		n := &o.def.Needs[i]
		if !n.Hold || int(n.Slot) != slot {
			continue
		}
		for j := range o.in {
			s := &o.in[j]
			if s.flags&silent != 0 && o.mayAsk(s.peer, n.From) {
				return Unknown, false
			}
			if s.flags&granted != 0 && s.want == n.From {
				claim = n.State
			}
		}
	}
	return claim, true
}

func (o *Object) mayAsk(peer ID, s State) bool {
	for _, d := range o.def.In {
		if d.ID == peer {
			return d.Asks&(1<<s) != 0
		}
	}
	return true
}

// nudge repeats the requests to some neighbours, or to all, because messages may have been
// lost.
func (o *Object) nudge(of func(ID) bool, fx *Effects) {
	for i := range o.out {
		if s := &o.out[i]; s.want != Unknown && s.flags&held == 0 && (of == nil || of(o.def.Out[i])) {
			o.request(i, fx)
		}
	}
	driven := o.driven()
	for i := range o.in {
		s := &o.in[i]
		switch {
		case of != nil && !of(s.peer):
		case s.flags&silent != 0, driven && s.want == o.target && s.flags&called == 0:
			o.send(fx, Message{To: s.peer, Kind: Resync})
		case s.flags&(granted|called) == granted|called:
			o.send(fx, Message{To: s.peer, ToInc: s.inc, Epoch: s.epoch, Kind: Recall})
		}
	}
}
