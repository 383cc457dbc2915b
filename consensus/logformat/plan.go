package logformat

import (
	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/rpc/proto/record"
)

// EncodePlanTree returns the message of a plan's tree.
func EncodePlanTree(x *tree.Tree) (*record.PlanTree, error) { return encode(x, (*encoder).planTree) }

// DecodePlanTree is the inverse of EncodePlanTree. It fails if the message is missing or JSON in it
// is damaged.
func DecodePlanTree(m *record.PlanTree) (*tree.Tree, error) { return decode(m, (*decoder).planTree) }

func (e *encoder) planTree(x tree.Tree) *record.PlanTree {
	return &record.PlanTree{
		Name:     x.Name,
		Strategy: e.planStrategy(x.Strategy),
		Phases:   list(x.Phases, e.planPhase),
		Errors:   x.Errors,
	}
}

func (d *decoder) planTree(m *record.PlanTree) tree.Tree {
	if m == nil {
		return tree.Tree{}
	}
	return tree.Tree{
		Name:     m.Name,
		Strategy: d.planStrategy(m.Strategy),
		Phases:   listed(m.Phases, d.planPhase),
		Errors:   m.Errors,
	}
}

func (e *encoder) planPhase(x tree.Phase) *record.PlanPhase {
	return &record.PlanPhase{
		Name:     x.Name,
		Strategy: e.planStrategy(x.Strategy),
		Service:  x.Service,
		Teardown: string(x.Teardown),
		Timeout:  x.Timeout,
		First:    x.First,
		End:      x.End,
	}
}

func (d *decoder) planPhase(m *record.PlanPhase) tree.Phase {
	if m == nil {
		return tree.Phase{}
	}
	return tree.Phase{
		Name:     m.Name,
		Strategy: d.planStrategy(m.Strategy),
		Service:  m.Service,
		Teardown: tree.Teardown(m.Teardown),
		Timeout:  m.Timeout,
		First:    m.First,
		End:      m.End,
	}
}

func (e *encoder) planStrategy(x tree.Strategy) *record.PlanStrategy {
	return &record.PlanStrategy{
		Kind:        record.StrategyKind(x.Kind),
		Canary:      int64(x.Canary),
		Size:        int64(x.Size),
		Percent:     x.Percent,
		MaxFailures: int64(x.MaxFailures),
	}
}

func (d *decoder) planStrategy(m *record.PlanStrategy) tree.Strategy {
	if m == nil {
		return tree.Strategy{}
	}
	return tree.Strategy{
		Kind:        tree.Kind(m.Kind),
		Canary:      int(m.Canary),
		Size:        int(m.Size),
		Percent:     m.Percent,
		MaxFailures: int(m.MaxFailures),
	}
}
