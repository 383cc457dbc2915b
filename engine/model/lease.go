package model

import (
	"fmt"
	"time"

	"github.com/coopr/coopr/engine/problem"
)

// InitialLease returns the lease of a new cluster in milliseconds, 0 meaning for ever
// (docs/spec/coopr.md 2.3, "Lease rules" 1 to 3). If requested is nil, it is the template's.
// The path of a fault is the field of the request.
func InitialLease(template LeaseDuration, requested *Millis) (Millis, Faults) {
	const path = "initialLeaseDuration"
	switch {
	case requested == nil:
		return template.Initial, nil
	case *requested < 0:
		return 0, Faults{{Path: path, Message: "must not be negative: leave it away for the template's lease, or write 0 for no end"}}
	case template.Initial == 0:
		return *requested, nil
	case *requested == 0:
		return 0, Faults{{Path: path, Message: fmt.Sprintf("a cluster of this template must have an end: ask for at most %s", template.Initial)}}
	case *requested > template.Initial:
		return 0, Faults{{Path: path, Message: fmt.Sprintf("%s is longer than the %s that the template allows", *requested, template.Initial)}}
	}
	return *requested, nil
}

// longestLease is the longest lease that has an end. Longer ones could end after the last time that clients can show.
const longestLease = Millis(1_000_000 * 24 * 60 * 60 * 1000)

// ExpiryOf returns when a cluster expires in Unix milliseconds, or 0 for never.
func ExpiryOf(created int64, lease Millis) int64 {
	if lease == 0 {
		return 0
	}
	return created + int64(lease)
}

// longestWarning is how long before the end of a lease its warning comes at the earliest.
const longestWarning = Millis(24 * 60 * 60 * 1000)

// WarnAt returns when the warning comes that the cluster's lease ends soon, in Unix milliseconds, or 0 if the lease has no end: a day
// before the end, or if the whole lease is shorter than four days, after three quarters of it.
func (c *Cluster) WarnAt() int64 {
	if c.ExpiresAt == 0 {
		return 0
	}
	return c.ExpiresAt - min(max(c.ExpiresAt-c.CreatedAt, 0)/4, int64(longestWarning))
}

// CheckLease returns nil if the cluster's lease may be changed at the time now to end at the time end, both in Unix milliseconds
// (docs/spec/coopr.md 2.3, "Lease rules" 5 and 6). The error is problem.Conflict if the cluster's state does not allow it, and
// problem.Invalid if the rules of its template do not.
func (c *Cluster) CheckLease(end, now int64) error {
	rules, was := c.Template.Administration.LeaseDuration, c.ExpiresAt
	switch {
	case c.Status == ClusterTerminated:
		return problem.New(problem.Conflict, "cluster %s is terminated: its lease cannot be changed", c.Name)
	case c.Status == ClusterPending:
		return problem.New(problem.Conflict, "cluster %s is pending: wait until operation %s has ended, then change the lease", c.Name,
			c.Operation)
	case end < c.CreatedAt || end == 0:
		return problem.New(problem.Invalid, "the lease of cluster %s cannot end before %s, when the cluster was created", c.Name,
			LeaseTime(c.CreatedAt))
	case end-c.CreatedAt > int64(longestLease):
		return problem.New(problem.Invalid, "the lease of cluster %s would last longer than %s from the creation, until %s: ask for an earlier "+
			"end", c.Name, longestLease, LeaseTime(c.CreatedAt+int64(longestLease)))
	case rules.Max > 0 && end-c.CreatedAt > int64(rules.Max):
		return problem.New(problem.Invalid, "the lease of cluster %s would end at %s, and its template allows %s from the creation, until %s: %s",
			c.Name, LeaseTime(end), rules.Max, LeaseTime(c.CreatedAt+int64(rules.Max)), c.atMost())
	case rules.Max > 0 && rules.Step > 0 && was != 0 && end > was && Millis(end-was) > rules.Step:
		return problem.New(problem.Invalid, "the lease of cluster %s cannot be prolonged by %s at once: its template allows steps of %s; %s",
			c.Name, Millis(end-was), rules.Step, c.atMost())
	case was != 0 && end > was && end <= now:
		return problem.New(problem.Conflict, "the lease of cluster %s ended at %s: with %s more it would be over still; add more than %s",
			c.Name, LeaseTime(was), Millis(end-was), Millis(now-was))
	}
	return nil
}

// atMost returns the words for how much the lease can be prolonged now.
func (c *Cluster) atMost() string {
	switch most := c.Prolongable(); {
	case c.ExpiresAt == 0:
		return "ask for an end until then"
	case most == 0:
		return "it cannot be prolonged any more"
	default:
		return "at most " + most.String() + " can be added now"
	}
}

// Prolongable returns the longest time by which the rules of the template allow to prolong the lease at once, or -1 if they do not
// limit it. A lease without an end cannot be prolonged: 0.
func (c *Cluster) Prolongable() Millis {
	rules := c.Template.Administration.LeaseDuration
	switch {
	case c.ExpiresAt == 0:
		return 0
	case rules.Max == 0:
		return -1
	}
	most := max(rules.Max-Millis(c.ExpiresAt-c.CreatedAt), 0)
	if rules.Step > 0 {
		most = min(most, rules.Step)
	}
	return most
}

// LeaseTime returns a time in Unix milliseconds as messages about leases have it, in UTC.
func LeaseTime(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02 15:04:05Z") }
