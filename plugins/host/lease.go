package host

import "context"

type leaseKey struct{}

// WithLease returns a context for Execute that carries a check of the task's lease. Execute calls
// it immediately before it sends the task to the plugin: an agent that was suspended for a while
// (SIGSTOP, a frozen virtual machine) resumes in the middle of its work, before any timer can
// report that the lease has ended.
func WithLease(ctx context.Context, holds func() bool) context.Context {
	return context.WithValue(ctx, leaseKey{}, holds)
}

// leaseOf returns the check that WithLease added, or nil.
func leaseOf(ctx context.Context) func() bool {
	holds, _ := ctx.Value(leaseKey{}).(func() bool)
	return holds
}

// leaseOver is the message of a task that was not begun because its lease may have ended.
const leaseOver = "not begun: this agent had no contact with the leader for so long that the task may belong to another agent by now"
