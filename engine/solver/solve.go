package solver

import (
	"context"
	"errors"
	"strconv"
)

// Solve gives the preferred layout. Its errors: model.Faults for an input that
// is wrong in itself (all faults at once), *Unsolvable where no layout exists,
// and one that wraps ErrBudget where the budget or the context ended first.
func Solve(ctx context.Context, in Input) (*Answer, error) {
	return nil, errors.New("not yet")
}

func nodesWord(n int) string {
	if n == 1 {
		return "1 node"
	}
	return strconv.Itoa(n) + " nodes"
}
