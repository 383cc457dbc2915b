package tree

// Aggregate returns a parent's status by the first rule that fits (docs/spec/plans.md §2).
// errors says that the parent or anything below it has some, interrupted that its own strategy
// is; candidates are indexes of children, none while it is interrupted.
//
// It differs from the SDK in two things (§"What to do differently" 1 and 2): a parent is
// delayed when all that it could work on is, and a delayed child beside others counts as
// pending; a child that was interrupted under way counts as what it is, and one that is
// delayed as waiting.
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
