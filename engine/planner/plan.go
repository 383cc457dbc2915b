package planner

import (
	"fmt"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
)

// Plan returns the graph of an operation's tasks. A graph without vertices means that there is
// nothing to do. The error is model.Faults for an inconsistent input, or a *CycleError.
//
// The graph's node indexes are indexes into in.Nodes, and its service indexes are indexes into the
// sorted names of the services on the nodes. The same input always leads to the same graph.
// Vertices are numbered so that each comes after all those for which it waits.
func Plan(in Input) (*plan.Graph, error) { return build(&in, false) }

func build(in *Input, dense bool) (*plan.Graph, error) {
	order, ok := in.order()
	if !ok {
		return nil, fmt.Errorf("operation %q cannot be planned", in.Operation)
	}
	switch in.Operation {
	case model.OpGrow, model.OpShrink, model.OpAddServices, model.OpRemoveServices, model.OpUpgrade, model.OpReplaceNode, OpConverge:
	default:
		if len(in.Reconfigure) > 0 {
			return nil, fmt.Errorf("plan %s: it takes no services to reconfigure besides", in.Operation)
		}
	}
	g, err := newGrid(in)
	if err != nil {
		return nil, fmt.Errorf("plan %s: %w", in.Operation, err)
	}
	st := newStamper(g)
	st.dense = dense
	phases, last := g.phases(order)
	for _, p := range phases {
		st.stamp(p)
	}
	if last != nil {
		if !last.local {
			st.close()
		}
		st.stamp(last)
	}
	return st.b.Build()
}

// phases returns an operation's tasks: consecutive phases, and the last phase, which follows all of
// them, or nil. If nodes take turns, its tasks belong to the turns. Those on nodes without other tasks are a phase that waits only for the
// nodes of GatherFrom.
func (g *grid) phases(order []model.Action) (phases []*phase, last *phase) {
	if g.in.Operation == OpConverge {
		phases = g.converge()
	} else {
		p := g.wants(order)
		if !g.in.Compat {
			g.startIdle(p)
		}
		phases = []*phase{p}
	}
	last = g.reconfiguration(phases)
	restart := bit(model.Stop) | bit(model.Configure) | bit(model.Start)
	if last == nil || !phases[0].local || maskOf(order...)&restart != restart {
		return phases, last
	}
	busy := newBitset(len(g.in.Nodes))
	for _, p := range phases {
		for n, m := range p.node {
			if m != 0 {
				busy.set(n)
			}
		}
		for k, m := range p.slot {
			if m != 0 {
				busy.set(int(g.slotNode[k]))
			}
		}
	}
	some := false
	for k, m := range last.slot {
		if m == 0 {
			continue
		}
		if g.in.Gather && !busy.has(int(g.slotNode[k])) {
			some = true
			continue
		}
		for _, p := range phases {
			p.slot[k] |= m & maskOf(p.order...)
		}
		last.slot[k] = 0
	}
	if last.local = true; !some {
		return phases, nil
	}
	return phases, last
}
