package solver

import (
	"context"
	"fmt"
)

// meter counts the steps of a search against the budget and polls the context regularly.
type meter struct {
	ctx   context.Context
	left  int
	since int
	err   error
}

func newMeter(ctx context.Context, budget int) *meter {
	if budget <= 0 {
		budget = DefaultBudget
	}
	m := &meter{ctx: ctx, left: budget}
	m.poll()
	return m
}

// spend takes n steps from the budget. It returns false once the budget or the context has ended.
func (m *meter) spend(n int) bool {
	if m.err != nil {
		return false
	}
	m.left -= n
	m.since += n
	if m.left < 0 {
		m.err = ErrBudget
		return false
	}
	if m.since >= 2000 {
		m.since = 0
		m.poll()
	}
	return m.err == nil
}

func (m *meter) poll() {
	if err := m.ctx.Err(); err != nil {
		m.err = fmt.Errorf("%w: %w", ErrBudget, err)
	}
}

// fail ends the search for another reason.
func (m *meter) fail(why string) {
	if m.err == nil {
		m.err = fmt.Errorf("%w: %s", ErrBudget, why)
	}
}
