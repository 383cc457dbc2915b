// Package tempo chooses the time-out after which a member of a Raft group takes its leader for dead.
//
// On a busy machine heartbeats are late although nobody is dead. A member that has seen late heartbeats waits longer; once they
// are on time again it goes back. The package has no clock: the caller states the time of each observation.
package tempo

import "time"

const (
	// window is the number of seconds for which an observation counts.
	window = 30
	// calm is how long a shorter time-out must have been enough before it is used again.
	calm = time.Minute
	// longest is the longest time-out, as a multiple of the base.
	longest = 4
)

// Tempo is the time-out of one member. It is the base on a machine that is in time, and twice or four times the base on one that
// is not. It is not safe for concurrent use.
type Tempo struct {
	base   time.Duration
	factor int
	enough time.Time // since when half the factor would have been enough; zero: it is not
	late   [window]second
}

// second holds the greatest lateness in one second of Unix time.
type second struct {
	at int64
	by time.Duration
}

// New returns a Tempo with the shortest time-out.
func New(base time.Duration) *Tempo { return &Tempo{base: base, factor: 1} }

// Timeout returns the present time-out.
func (t *Tempo) Timeout() time.Duration { return time.Duration(t.factor) * t.base }

// Note records that a heartbeat, or the answer to one, came at a time and was late by a duration. It reports whether the time-out
// is another one now. A lateness of more than the longest time-out is not counted: such a member was stopped or cut off, and no
// time-out bridges that.
func (t *Tempo) Note(at time.Time, by time.Duration) (changed bool) {
	if by > longest*t.base {
		by = 0
	}
	s := &t.late[at.Unix()%window]
	if s.at != at.Unix() {
		*s = second{at: at.Unix()}
	}
	s.by = max(s.by, by)
	return t.choose(at)
}

// choose follows the lateness up at once, and down a step at a time.
func (t *Tempo) choose(at time.Time) (changed bool) {
	need := t.need(at)
	switch {
	case need > t.factor:
		t.factor, t.enough = need, time.Time{}
		return true
	case need == t.factor:
		t.enough = time.Time{}
	case t.enough.IsZero():
		t.enough = at
	case at.Sub(t.enough) >= calm:
		t.factor, t.enough = t.factor/2, at
		return true
	}
	return false
}

// need returns the least factor with a time-out of at least three times the lateness, and half the base for the pause between two
// heartbeats.
func (t *Tempo) need(at time.Time) int {
	lateness := t.lateness(at)
	for factor := 1; factor < longest; factor *= 2 {
		if 3*lateness+t.base/2 <= time.Duration(factor)*t.base {
			return factor
		}
	}
	return longest
}

// lateness returns the second greatest lateness of the seconds in the window. The greatest may be a single pause, as of a machine
// that was moved to another host.
func (t *Tempo) lateness(at time.Time) time.Duration {
	var first, next time.Duration
	for _, s := range t.late {
		if s.at <= at.Unix()-window {
			continue
		}
		switch {
		case s.by > first:
			first, next = s.by, first
		case s.by > next:
			next = s.by
		}
	}
	return next
}
