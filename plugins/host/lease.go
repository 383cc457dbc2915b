package host

import "context"

type leaseKey struct{}

// WithLease gives a context for Execute that says whether the lease of its task
// still holds. It is asked at the last moment before a plugin is told to begin:
// a process that was stopped for a while (SIGSTOP, a frozen virtual machine)
// goes on in the middle of what it was doing, and no timer has told it yet that
// its time is over.
func WithLease(ctx context.Context, holds func() bool) context.Context {
	return context.WithValue(ctx, leaseKey{}, holds)
}

// leaseOf gives what WithLease was given, or nil.
func leaseOf(ctx context.Context) func() bool {
	holds, _ := ctx.Value(leaseKey{}).(func() bool)
	return holds
}

// leaseOver is why a task was not begun.
const leaseOver = "not begun: this agent was out of touch with the leader for too long, so that the task may be another's by now"
