package lease

import "time"

// Until returns the time until which a worker may rely on its leases, where sent is when it sent the
// last message that the leader answered. It ends a fifth of the TTL early, as clocks differ.
func Until(sent time.Time, ttl time.Duration) time.Time { return sent.Add(ttl - ttl/5) }

// InTouch reports whether a worker may rely on its leases, and whether the answer to a heartbeat may move
// until on. Otherwise the worker needs a new session: the answer may come from a leader that slept, and
// does not know yet that it was replaced. Zero stands for a worker without leases.
func InTouch(now, until time.Time) bool { return now.Before(until) }

// Begins reports whether a worker begins a task that has arrived: in the session in which it was
// leased, and while the worker may rely on its leases. The hello of a newer session did not list the
// task, so its lease has ended.
func Begins(leasedIn, session string, now, until time.Time) bool {
	return leasedIn == session && InTouch(now, until)
}
