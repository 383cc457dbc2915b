package solver

import (
	"strings"

	codes "github.com/coopr/coopr/engine/problem"
)

// ErrBudget means that the search ended without a result: it found neither a layout nor a proof
// that there is none (docs/spec/solver.md rule 12). If the context ended, its error is wrapped as
// well.
var ErrBudget = codes.New(codes.Unsolvable, "the search for a layout ran out of its budget")

// Constraint is one constraint, with its place in the input and a description.
type Constraint struct {
	// Path is the place in the input, such as "constraints.services.namenode.quantities.max",
	// "services.namenode.resources" or "exclude[0]".
	Path string `json:"path"`
	// Words is the constraint in plain English.
	Words string `json:"words"`
}

// Unsolvable is the proof that there is no layout: a set of constraints that contradict each other.
// Without any one of them there would be a layout (rule 10).
type Unsolvable struct {
	Conflict []Constraint `json:"conflict"`
	// Hints are changes of the request that lead to a layout, as far as they were cheap to find.
	Hints []string `json:"hints,omitempty"`
	// Minimal is false if the budget ended before the set was minimal. Then some of its members may
	// not matter.
	Minimal bool `json:"minimal"`
	// Nodes is the requested number of nodes.
	Nodes int `json:"nodes"`
}

// ProblemCode returns problem.Unsolvable.
func (u *Unsolvable) ProblemCode() codes.Code { return codes.Unsolvable }

// Error returns the whole explanation in one line.
func (u *Unsolvable) Error() string {
	words := make([]string, len(u.Conflict))
	for i, c := range u.Conflict {
		words[i] = c.Words
	}
	var b strings.Builder
	b.WriteString("no layout of ")
	b.WriteString(nodesWord(u.Nodes))
	b.WriteString(" exists")
	if len(words) > 0 {
		b.WriteString(": ")
		b.WriteString(strings.Join(words, "; "))
		if len(words) > 1 {
			b.WriteString(" (these cannot hold together)")
		}
	}
	for _, h := range u.Hints {
		b.WriteString("; ")
		b.WriteString(h)
	}
	return b.String()
}
