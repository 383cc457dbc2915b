package lease

// Hello orders the hellos of one agent: by the start of its process, and then by their number in that
// process. Two hellos of one agent may be under way at the same time, and the log may have them in any
// order.
type Hello struct {
	Incarnation uint64 // grows with every start of the agent's process
	Number      uint64 // counts the hellos of the process
}

// Before reports whether h was sent before o.
func (h Hello) Before(o Hello) bool {
	return h.Incarnation < o.Incarnation || h.Incarnation == o.Incarnation && h.Number < o.Number
}

// Opens reports whether a hello may open a session, where last is the agent's newest hello so far. An
// older one must not replace the session of a newer one.
func Opens(last, hello Hello) bool { return !hello.Before(last) }

// Removed returns the newest hello of an agent after its removal: no process that was started before
// may open a session again without a new hello. An incarnation is the time of the start in
// milliseconds, if clocks are right, so now comes after each process whose hello may be on its way.
func Removed(last Hello, nowMs int64) Hello {
	return Hello{Incarnation: max(last.Incarnation, uint64(max(nowMs, 0))) + 1}
}

// Next returns the lowest incarnation with which an agent opens a session after a refusal, where last
// is the hello on account of which it was refused.
func Next(last Hello) uint64 { return last.Incarnation + 1 }
