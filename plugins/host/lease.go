package host

import (
	"context"
	"time"
)

type leaseKey struct{}

// WithLease returns a context for Execute that carries the end of the task's lease. Execute asks for
// it immediately before it sends the task to the plugin: an agent that was suspended for a while
// (SIGSTOP, a frozen virtual machine) resumes in the middle of its work, before any timer can
// report that the lease has ended. The plugin receives it too, as the agent may be suspended between
// its check and the sending.
func WithLease(ctx context.Context, until func() time.Time) context.Context {
	return context.WithValue(ctx, leaseKey{}, lease(until))
}

// lease returns when the lease of a task ends; a nil one never ends.
type lease func() time.Time

// left returns for how long the lease still holds; limited is false if it never ends.
func (l lease) left() (left time.Duration, limited bool) {
	if l == nil {
		return 0, false
	}
	return time.Until(l()), true
}

// over reports whether the lease has ended.
func (l lease) over() bool {
	left, limited := l.left()
	return limited && left <= 0
}

// leaseOf returns what WithLease added, or nil.
func leaseOf(ctx context.Context) lease {
	l, _ := ctx.Value(leaseKey{}).(lease)
	return l
}

// leaseOver is the message of a task that was not begun because its lease may have ended.
const leaseOver = "not begun: this agent had no contact with the leader for so long that the task may belong to another agent by now"
