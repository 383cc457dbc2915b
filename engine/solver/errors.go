package solver

import (
	"strings"

	codes "github.com/coopr/coopr/engine/problem"
)

// ErrBudget means that the search ended before it knew: neither a layout nor the proof that
// there is none (docs/spec/solver.md rule 12). A context that ends is wrapped together with
// it.
var ErrBudget = codes.New(codes.Unsolvable, "the search for a layout ran out of its budget")

// Constraint names one constraint by its place in the input and in words.
type Constraint struct {
	// Path such as "constraints.services.namenode.quantities.max",
	// "services.namenode.resources" or "exclude[0]".
	Path string `json:"path"`
	// Words say what it asks for.
	Words string `json:"words"`
}

// Unsolvable is the proof that there is no layout: constraints that cannot
// hold together. Without any one of them there would be a layout (rule 10).
type Unsolvable struct {
	Conflict []Constraint `json:"conflict"`
	// Hints say what would help, where that was cheap to find.
	Hints []string `json:"hints,omitempty"`
	// Minimal is false where the budget ended while the set was being made
	// smaller: then some of its members may not matter.
	Minimal bool `json:"minimal"`
	// Nodes is the number of nodes that was asked for.
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
