package lease

import "time"

// Checks is how often in a TTL a leader looks for silent sessions.
const Checks = 4

// Timing is how long sessions last.
type Timing struct {
	// TTL is how long a session lives after its leader last heard of its worker.
	TTL time.Duration
	// Grace is how long a leader may go on answering after its term.
	Grace time.Duration
}

// Inherited returns the time at which a new leader counts a session of an earlier term as heard last.
// Only the leader of that term answered its heartbeats. Another term had begun at ended, and the
// deposed leader may have gone on for the grace. A leader that has not seen the end counts from now.
func (t Timing) Inherited(now, ended time.Time, seen bool) time.Time {
	if !seen {
		ended = now
	}
	return ended.Add(t.Grace)
}

// MayEnd reports whether a silent session may be ended. missed counts the checks since it was heard:
// the clock alone proves nothing, as a leader that was asleep has not read the messages of its
// workers.
func (t Timing) MayEnd(now, heard time.Time, missed int) bool {
	return now.Sub(heard) > t.TTL && missed >= Checks
}

// Leaves reports whether the session of a leaving agent may be ended at once: the agent holds no lease
// and gets none. One that holds leases may still work on them, even if its connection broke.
func Leaves(leaving bool, held int) bool { return leaving && held == 0 }

// Answers reports whether a leader answers the heartbeat of a session. It does not after it has proposed
// the session's end: if the answer to that was lost, the end may still be committed.
func Answers(ending bool) bool { return !ending }
