package lease

import "slices"

// Valid reports whether a lease still holds: fence is the fence of the task's lease at the time, and
// held is true while a worker has the task.
func Valid(held bool, current, fence uint64) bool { return held && current == fence }

// Grants reports whether the state leases a task to a session: the session is open, and no worker has
// the task.
func Grants(open, held bool) bool { return open && !held }

// Keeps reports whether a lease moves to its agent's new session: the hello listed it. Any other lease
// of the agent is lost, as its worker does not have it, or never got it.
func Keeps(fence uint64, listed []uint64) bool { return slices.Contains(listed, fence) }
