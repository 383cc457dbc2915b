package object

import (
	"errors"
	"fmt"
)

// ErrNoLink means that the object's definition does not have the link of a request, because
// the neighbour follows another generation. The runtime keeps the message for later.
var ErrNoLink = errors.New("the object has no such link")

// receive handles a message of a neighbour (rule 19).
func (o *Object) receive(m *Message, fx *Effects) error {
	switch m.Kind {
	case Request, Revoke, Release:
		i := findDependent(o.in, m.From)
		if i < 0 {
			return fmt.Errorf("change object %s: a %s of object %d: %w", o.def.Name, m.Kind, m.From, ErrNoLink)
		}
		if m.Kind == Request && (int(m.State) >= len(o.def.Type.States) || !o.def.Type.Targetable(m.State)) {
			return fmt.Errorf(
				"change object %s: object %d asks for state %d, which type %s does not have",
				o.def.Name,
				m.From,
				m.State,
				o.def.Type.Name,
			)
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

// deny answers a provider of another generation that asks which of the provider's locks this object
// holds. The answer is none, because in this generation the object does not depend on it.
func (o *Object) deny(m *Message, fx *Effects) {
	if a, ok := Denial(m); ok {
		a.FromInc = o.inc
		fx.Messages = append(fx.Messages, a)
	}
}

// Denial returns the answer to the question which locks an object holds, for an object that no
// longer depends on the sender or has been removed. It returns false if m asks nothing.
func Denial(m *Message) (Message, bool) {
	a := Message{From: m.To, To: m.From, FromInc: m.ToInc, ToInc: m.FromInc, Kind: Revoke}
	if m.Kind == Recall {
		a.Epoch = m.Epoch + 1
	}
	return a, m.Kind == Recall || m.Kind == Resync
}

// parted handles a message of an object that is no longer a dependent, or not yet one again.
// Anything new ends its lock, and a request is meant for the next generation.
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

// heard handles a message from a dependent.
func (o *Object) heard(i int, m *Message, fx *Effects) {
	s := &o.in[i]
	switch {
	case m.FromInc < s.inc:
		return // from an earlier life of the dependent
	case s.flags&silent != 0 && m.ToInc != o.inc:
		return // no answer: it was sent before our Resync arrived
	case m.FromInc > s.inc:
	case m.Epoch < s.epoch:
		return
	case m.Epoch == s.epoch && s.flags&silent == 0:
		// A repeated request: the grant may have been lost.
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

// grantLater grants a request that arrived while the object is open, that is, while it grants
// requests for its state at once. It grants nothing if the request has changed the object's
// target, or if a lock that the object holds is recalled.
func (o *Object) grantLater(i int, fx *Effects) {
	if t, _ := o.aim(); t == o.state && !o.recalled {
		o.grantTo(i, fx)
	}
}

// update replaces the state of a dependent and adjusts the counters.
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

// told handles a message from a provider.
func (o *Object) told(i int, m *Message, fx *Effects) {
	s := &o.out[i]
	if m.FromInc < s.peerInc {
		return // from an earlier life
	}
	if m.Kind == Resync {
		s.peerInc = m.FromInc
		if s.flags&unknown != 0 {
			return // the object does not know yet whether it holds this lock, and answers when it does
		}
		o.repeat(i, fx)
		return
	}
	if m.ToInc != o.inc || m.Epoch != s.epoch || s.want == Unknown || s.flags&unknown != 0 {
		if m.Kind == Recall && s.flags&unknown == 0 {
			o.repeat(i, fx) // it waits for a lock that was given back long ago
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

// repeat sends the current state of a link again.
func (o *Object) repeat(i int, fx *Effects) {
	s := &o.out[i]
	if s.want != Unknown {
		o.request(i, fx)
		return
	}
	o.send(fx, Message{To: o.def.Out[i], ToInc: s.peerInc, Epoch: s.epoch, Kind: Revoke})
}
