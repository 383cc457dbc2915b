package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// leading stands for the agent that leads when the fault begins.
const leading = -1

// step is one fault of a schedule.
type step struct {
	kind     string
	agent    int // index, or leading
	hold     time.Duration
	overlaps bool // the fault before it continues during this one
}

// String returns the step in the form that parseSchedule reads.
func (s step) String() string {
	agent := strconv.Itoa(s.agent)
	if s.agent == leading {
		agent = "leader"
	}
	text := fmt.Sprintf("%s@%s/%s", s.kind, agent, s.hold)
	if s.overlaps {
		text = "+" + text
	}
	return text
}

// schedule is a list of faults, which are applied one after the other, or two at a time.
type schedule []step

// first returns the faults that begin a schedule and happen at the same time, and the rest.
func (s schedule) first() (together, rest schedule) {
	n := 1
	if len(s) > 1 && s[1].overlaps && faults[s[0].kind].place != faults[s[1].kind].place {
		n = 2
	}
	return s[:n], s[n:]
}

// String returns the schedule as the value of CHAOS_FAULTS.
func (s schedule) String() string {
	var out []string
	for _, x := range s {
		out = append(out, x.String())
	}
	return strings.Join(out, ",")
}

// parseSchedule reads a schedule for a number of agents.
func parseSchedule(text string, agents int) (schedule, error) {
	var out schedule
	for one := range strings.SplitSeq(text, ",") {
		text, overlaps := strings.CutPrefix(strings.TrimSpace(one), "+")
		kind, rest, ok := strings.Cut(text, "@")
		agent, hold, ok2 := strings.Cut(rest, "/")
		if !ok || !ok2 || faults[kind].begin == nil {
			return nil, fmt.Errorf("fault %q: it must be kind@agent/time or +kind@agent/time, and the kinds are %s", one, strings.Join(kinds(), ", "))
		}
		s := step{kind: kind, agent: leading, overlaps: overlaps}
		var err error
		if agent != "leader" {
			if s.agent, err = strconv.Atoi(agent); err != nil || s.agent < 0 || s.agent >= agents {
				return nil, fmt.Errorf("fault %q: the agent must be \"leader\" or a number from 0 to %d", one, agents-1)
			}
		}
		if s.hold, err = time.ParseDuration(hold); err != nil {
			return nil, fmt.Errorf("fault %q: %w", one, err)
		}
		out = append(out, s)
	}
	return out, nil
}

// kinds returns the names of all faults in order.
func kinds() []string {
	var out []string
	for k := range faults {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// generator returns the faults of a seed, one or two that happen at the same time. Every kind comes before any
// kind comes again.
func generator(seed uint64, agents int) func() schedule {
	random := rand.New(rand.NewPCG(seed, 14))
	var left []string
	take := func(i int) step {
		s := step{kind: left[i], agent: leading, hold: time.Second + time.Duration(random.IntN(5000))*time.Millisecond}
		left = slices.Delete(left, i, i+1)
		if random.IntN(2) == 0 { // half of the faults hit the leader
			s.agent = random.IntN(agents)
		}
		return s
	}
	return func() schedule {
		if len(left) == 0 {
			left = kinds()
			random.Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
		}
		out := schedule{take(0)}
		if other := slices.IndexFunc(left, func(kind string) bool { return faults[kind].place != faults[out[0].kind].place }); other >= 0 &&
			random.IntN(4) == 0 {
			out = append(out, take(other))
			out[1].overlaps = true
		}
		return out
	}
}

// shrink returns a smaller schedule for which fails is still true: it leaves out ever smaller parts, as long as
// fails has not been called most times.
func shrink(s schedule, most int, fails func(schedule) bool) schedule {
	for part := (len(s) + 1) / 2; part > 0 && len(s) > 1; {
		smaller := false
		for at := 0; at < len(s) && most > 0; {
			without := slices.Delete(slices.Clone(s), at, min(at+part, len(s)))
			if len(without) == 0 {
				break
			}
			most--
			if fails(without) {
				s, smaller = without, true
			} else {
				at += part
			}
		}
		if most <= 0 {
			break
		}
		if part == 1 && !smaller {
			break
		}
		part = min(max(part/2, 1), max(len(s)/2, 1))
	}
	return s
}
