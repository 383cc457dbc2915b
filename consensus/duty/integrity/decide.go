package integrity

import (
	"maps"
	"slices"

	"github.com/coopr/coopr/consensus/state"
)

// Member is a member of the Raft group.
type Member struct {
	ID    string
	Voter bool
}

// Answer is what a member answered about its state at a checkpoint.
type Answer struct {
	// Encoder names the build that computed the digests. Those of two builds cannot be compared.
	Encoder string
	state.Sums
}

// Verdict is the result of comparing the members' states at a checkpoint.
type Verdict struct {
	Index uint64
	// Same are the members whose state is that of a majority of the voters, in the order of their ids.
	Same []string
	// Odd are the members whose state is not, with the tables that differ.
	Odd map[string][]string
	// Split are the tables in which voters differ while no majority of the voters is the same.
	Split []string
}

// Of returns "same" or "differs" for a member whose state was compared with that of a majority, and
// "unknown" for any other.
func (v Verdict) Of(member string) string {
	if slices.Contains(v.Same, member) {
		return "same"
	}
	if len(v.Odd[member]) > 0 {
		return "differs"
	}
	return "unknown"
}

// auditHead names the end of the audit log's chain among the tables that differ.
const auditHead = "audit head"

// different returns the names of the tables in which two states differ, sorted. If the ends of their audit
// chains differ, auditHead is the last element.
func different(a, b state.Sums) []string {
	names := maps.Clone(a.Tables)
	maps.Copy(names, b.Tables)
	var out []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		was, ok := a.Tables[name]
		is, too := b.Tables[name]
		if ok != too || was != is {
			out = append(out, name)
		}
	}
	if a.Audit != b.Audit {
		out = append(out, auditHead)
	}
	return out
}

// Decide compares the members' states at a checkpoint. The state of a majority of all voters is the
// right one. Members without an answer, and those with another encoder than that majority, are neither
// the same nor odd.
func Decide(index uint64, members []Member, answers map[string]Answer) Verdict {
	v := Verdict{Index: index, Odd: map[string][]string{}}
	voters := 0
	var asked []string // the voters that answered, in the order of their ids
	for _, m := range members {
		if m.Voter {
			voters++
			if _, ok := answers[m.ID]; ok {
				asked = append(asked, m.ID)
			}
		}
	}
	slices.Sort(asked)
	split := map[string]bool{}
	for _, id := range asked {
		agree := 0
		for _, other := range asked {
			if answers[id].Encoder != answers[other].Encoder {
				continue
			}
			tables := different(answers[id].Sums, answers[other].Sums)
			if len(tables) == 0 {
				agree++
			}
			for _, name := range tables {
				split[name] = true
			}
		}
		if agree > voters/2 {
			v.judge(answers[id], members, answers)
			return v
		}
	}
	v.Split = slices.Sorted(maps.Keys(split))
	return v
}

// judge compares every answer with the right one.
func (v *Verdict) judge(right Answer, members []Member, answers map[string]Answer) {
	for _, m := range members {
		a, ok := answers[m.ID]
		if !ok || a.Encoder != right.Encoder {
			continue
		}
		if tables := different(right.Sums, a.Sums); len(tables) > 0 {
			v.Odd[m.ID] = tables
		} else {
			v.Same = append(v.Same, m.ID)
		}
	}
	slices.Sort(v.Same)
}
