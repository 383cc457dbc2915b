package tree

// Aggregate returns a parent's status by the first rule that fits (docs/spec/plans.md §2).
// errors is true if the parent or anything below it has errors. interrupted is true if its own
// strategy is interrupted. candidates are indexes of children; there are none while it is
// interrupted.
//
// It differs from the SDK in two ways (§"What to do differently" 1 and 2). A parent is delayed
// only if all of its candidates are; a delayed child among others counts as pending. A child
// that was interrupted while running counts with its own status, and a delayed one as waiting.
func Aggregate(errors, interrupted bool, children []Child, candidates []int) Status {
	var ch, ca, halted [len(statusNames)]int
	for i := range children {
		c := &children[i]
		ch[c.Status]++
		if c.Interrupted {
			halted[c.Status]++
		}
	}
	for _, i := range candidates {
		ca[children[i].Status]++
	}
	switch n := len(children); {
	case errors || ch[Error] > 0:
		return Error
	case ch[Complete] == n:
		return Complete
	case interrupted:
		return Waiting
	case len(candidates) > 0 && ca[Delayed]+ca[Complete] == len(candidates) && ca[Delayed] > 0:
		return Delayed
	case ca[Delayed] == len(candidates) && ch[Delayed] == n:
		return Delayed
	}
	ca[Pending] += ca[Delayed]
	some := ch[Complete] > 0
	switch {
	case ch[Prepared] > 0:
		return InProgress
	case ca[Waiting] > 0:
		return Waiting
	case ca[InProgress] > 0:
		return InProgress
	case some && ca[Pending]+ca[Starting]+ca[Started] > 0:
		return InProgress
	case ca[Pending] > 0:
		return Pending
	case ch[Waiting]+halted[Delayed] > 0:
		return Waiting
	case ca[Starting]+halted[Starting] > 0:
		return Starting
	case ca[Started]+halted[Started] > 0:
		return Started
	}
	return Error
}
