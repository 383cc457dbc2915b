package tree

import (
	"fmt"
	"regexp"
)

// Health is the overall status of a cluster's plans in one word (docs/spec/plans.md §5). Its
// code is the HTTP status of the answer.
type Health struct {
	Code    int      `json:"value"`
	Name    string   `json:"-"`
	Reasons []string `json:"reasons"`
}

var (
	backup  = regexp.MustCompile(`.*back.*`)
	restore = regexp.MustCompile(`.*restor.*`)
)

// HealthOf returns the health of plans. ready is true once the cluster is managed. Of several
// reasons, errors come first, then the status of deploy, recovery, restores and backups.
func HealthOf(plans []*View, ready bool) Health {
	h := Health{}
	is := func(code int, name string) Health {
		h.Code, h.Name = code, name
		return h
	}
	if !ready {
		return is(318, "INITIALIZING")
	}
	if len(plans) == 0 {
		return is(503, "UNAVAILABLE")
	}
	status := make([]Status, len(plans))
	failed := false
	for i, v := range plans {
		status[i] = v.Status()
		h.Reasons = append(h.Reasons, fmt.Sprintf("%s: %s", v.Name, status[i]))
		failed = failed || status[i] == Error
	}
	if failed {
		return is(500, "ERROR")
	}
	if i := Find(plans, "deploy"); i >= 0 && status[i] != Complete {
		switch has := plans[i].has(); {
		case status[i] == Waiting || has[Waiting]:
			return is(207, "DEPLOYING_WAITING_USER")
		case has[Delayed]:
			return is(208, "DELAYED")
		case has[Pending] || has[Prepared]:
			return is(204, "DEPLOYING_PENDING")
		}
		return is(202, "DEPLOYING_STARTING")
	}
	if i := Find(plans, "recovery"); i >= 0 && status[i] != Complete {
		switch has := plans[i].has(); {
		case has[Delayed]:
			return is(208, "DELAYED")
		case has[Pending] || has[Prepared]:
			return is(203, "RECOVERING_PENDING")
		}
		return is(205, "RECOVERING_STARTING")
	}
	for _, k := range []struct {
		name *regexp.Regexp
		code int
		word string
	}{{restore, 321, "RESTORING"}, {backup, 320, "BACKING_UP"}} {
		for i, v := range plans {
			if status[i].Running() && k.name.MatchString(v.Name) {
				return is(k.code, k.word)
			}
		}
	}
	return is(200, "RUNNING")
}

// has returns which statuses the steps have.
func (v *View) has() (out [len(statusNames)]bool) {
	for i := range v.Steps {
		out[v.Steps[i].Status] = true
	}
	return out
}
