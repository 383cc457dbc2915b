package model

import "fmt"

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

// ExpiryOf returns when a cluster expires in Unix milliseconds, or 0 for never.
func ExpiryOf(created int64, lease Millis) int64 {
	if lease == 0 {
		return 0
	}
	return created + int64(lease)
}
