package model

import "fmt"

// InitialLease gives the lease of a new cluster in milliseconds, 0 meaning for
// ever (docs/spec/coopr.md 2.3, "Lease rules" 1 to 3). A nil request takes the
// template's. The fault's path is the request's field.
func InitialLease(template LeaseDuration, requested *Millis) (Millis, error) {
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

// ExpiryOf gives when a cluster expires (Unix ms), 0 for never.
func ExpiryOf(created int64, lease Millis) int64 {
	if lease == 0 {
		return 0
	}
	return created + int64(lease)
}

// ChangeExpiry judges a new expiry time of a cluster (Unix ms; docs/spec/coopr.md
// 2.3, "Lease rules" 5 and 6): shortening is always right, even into the past;
// where the lease has a max, each prolongation is at most step (0: any) and
// the whole life at most max.
func ChangeExpiry(c Cluster, expiry int64) error {
	const path = "expireTime"
	lease := c.Template.Administration.LeaseDuration
	fault := func(format string, args ...any) error {
		return Faults{{Path: path, Message: fmt.Sprintf(format, args...)}}
	}
	switch {
	case c.Status == ClusterTerminated || c.Status == ClusterPending:
		return fault("the lease of a cluster that is %s cannot be changed", c.Status)
	case expiry < 0 || expiry != 0 && expiry < c.CreatedAt:
		return fault("is before the cluster was made: give Unix milliseconds of %d or later", c.CreatedAt)
	case lease.Max == 0:
		return nil
	case expiry == 0:
		return fault("a cluster of this template must end within %s of its making", lease.Max)
	case lease.Step != 0 && c.ExpiresAt != 0 && expiry-c.ExpiresAt > int64(lease.Step):
		return fault("is %s later than now: the template allows steps of at most %s", Millis(expiry-c.ExpiresAt), lease.Step)
	case expiry > c.CreatedAt+int64(lease.Max):
		return fault("is later than the %s after its making that the template allows: %d is the latest", lease.Max, c.CreatedAt+int64(lease.Max))
	}
	return nil
}
