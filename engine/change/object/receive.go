package object

import (
	"errors"
	"fmt"
)

// ErrNoLink is the error of a request over a link that the object's definition
// does not have: the neighbour follows another generation. The home keeps it
// for later.
var ErrNoLink = errors.New("the object has no such link")

// receive takes a neighbour's message (rule 19).
func (o *Object) receive(m *Message, fx *Effects) error {
	switch m.Kind {
	case Request, Revoke, Release:
		i := findDependent(o.in, m.From)
		if i < 0 {
			return fmt.Errorf("change object %s: a %s of object %d: %w", o.def.Name, m.Kind, m.From, ErrNoLink)
		}
		if m.Kind == Request && (int(m.State) >= len(o.def.Type.States) || !o.def.Type.Targetable(m.State)) {
			return fmt.Errorf("change object %s: object %d asks for state %d, which type %s does not have", o.def.Name, m.From, m.State, o.def.Type.Name)
		}
		if o.in[i].flags&formerly != 0 {
			return o.parted(&o.in[i], m)
		}
		o.heard(i, m, fx)
		return nil
	case Grant, Recall, Resync:
		i := o.def.slot(m.From)
		if i < 0 {
			o.deny(m, fx)
			return nil
		}
		o.told(i, m, fx)
		return nil
	}
	return fmt.Errorf("change object %s: no such message: %d", o.def.Name, m.Kind)
}

// deny answers somebody of another generation who asks what this object holds of
// it: by this generation nothing.
func (o *Object) deny(m *Message, fx *Effects) {
	if a, ok := Denial(m); ok {
		a.FromInc = o.inc
		fx.Messages = append(fx.Messages, a)
	}
}

// Denial returns the answer of an object that depends on the sender no more, or has been
// removed, to the question what it holds. False where m asks nothing.
func Denial(m *Message) (Message, bool) {
	a := Message{From: m.To, To: m.From, FromInc: m.ToInc, ToInc: m.FromInc, Kind: Revoke}
	if m.Kind == Recall {
		a.Epoch = m.Epoch + 1
	}
	return a, m.Kind == Recall || m.Kind == Resync
}

// parted takes what somebody says who is no dependent any more, or not yet
// again: anything new ends the lock, and a request is for the next generation.
func (o *Object) parted(s *In, m *Message) error {
	if m.FromInc > s.inc || m.FromInc == s.inc && (m.Epoch > s.epoch || s.flags&silent != 0 && m.ToInc == o.inc) {
		if !m.Held {
			o.update(s, In{peer: s.peer, inc: s.inc, epoch: s.epoch, flags: formerly})
		}
	}
	if m.Kind == Request && !m.Held {
		return fmt.Errorf("change object %s: a request of object %d: %w", o.def.Name, m.From, ErrNoLink)
	}
	return nil
}

// heard takes what a dependent asks.
func (o *Object) heard(i int, m *Message, fx *Effects) {
	s := &o.in[i]
	switch {
	case m.FromInc < s.inc:
		return // of an earlier life of the dependent
	case s.flags&silent != 0 && m.ToInc != o.inc:
		return // no answer: it was sent before our Resync came
	case m.FromInc > s.inc:
	case m.Epoch < s.epoch:
		return
	case m.Epoch == s.epoch && s.flags&silent == 0:
		// Said twice: our grant may be lost.
		if m.Kind == Request && s.flags&granted != 0 && !m.Held {
			o.sendGrant(s, fx)
		}
		return
	}
	n := In{peer: s.peer, inc: m.FromInc, epoch: m.Epoch}
	if m.Kind == Request {
		n.want = m.State
		if m.Urgent {
			n.flags |= removal
		}
		if m.Held {
			n.flags |= granted
		}
	}
	o.update(s, n)
	if o.open && n.want == o.state {
		o.grantLater(i, fx)
	}
	if o.calling {
		o.callFrom(i, fx)
	}
}

// grantLater grants a request that came while the object grants its state,
// unless the request itself has changed what the object wants.
func (o *Object) grantLater(i int, fx *Effects) {
	if t, _ := o.aim(); t == o.state && !o.recalled {
		o.grantTo(i, fx)
	}
}

// update replaces what is known of a dependent and keeps the counts right.
func (o *Object) update(s *In, n In) {
	t := o.tally()
	if s.want != Unknown {
		o.asking--
		if t != nil {
			t[class(s)][s.want]--
		}
	}
	if s.flags&granted != 0 {
		o.granted--
	}
	if s.flags&silent != 0 {
		o.silent--
	}
	*s = n
	if n.want != Unknown {
		o.asking++
		if t != nil {
			t[class(&n)][n.want]++
		}
	}
	if n.flags&granted != 0 {
		o.granted++
		if n.want != Unknown {
			o.lent = n.want
		}
	}
	if n.flags&silent != 0 {
		o.silent++
	}
}

// told takes what somebody that the object depends on says.
func (o *Object) told(i int, m *Message, fx *Effects) {
	s := &o.out[i]
	if m.FromInc < s.peerInc {
		return // of an earlier life
	}
	if m.Kind == Resync {
		s.peerInc = m.FromInc
		if s.flags&unknown != 0 {
			return // what is held is not known yet: it is said as soon as it is
		}
		o.repeat(i, fx)
		return
	}
	if m.ToInc != o.inc || m.Epoch != s.epoch || s.want == Unknown || s.flags&unknown != 0 {
		if m.Kind == Recall && s.flags&unknown == 0 {
			o.repeat(i, fx) // it waits for what was given back long ago
		}
		return
	}
	s.peerInc = m.FromInc
	switch m.Kind {
	case Grant:
		if s.flags&held == 0 {
			s.flags |= held
			if m.Eager {
				s.flags |= eager
			}
			if s.need == s.want {
				o.missing--
			}
			if s.flags&wanted != 0 {
				o.recalled = true
			}
		}
	case Recall:
		s.flags |= wanted
		if s.flags&held != 0 {
			o.recalled = true
		}
	}
}

// repeat says again what is asked over a link.
func (o *Object) repeat(i int, fx *Effects) {
	s := &o.out[i]
	if s.want != Unknown {
		o.request(i, fx)
		return
	}
	o.send(fx, Message{To: o.def.Out[i], ToInc: s.peerInc, Epoch: s.epoch, Kind: Revoke})
}
