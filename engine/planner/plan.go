package planner

import (
	"fmt"

	"github.com/coopr/coopr/engine/plan"
)

// Plan gives the graph of an operation's tasks. A graph without vertices says
// that there is nothing to do. The error is model.Faults for an input that does
// not fit together, or a *CycleError.
//
// The graph's node indexes are indexes into in.Nodes, its service indexes into
// the sorted names of the services on the nodes. The same input always gives
// the same graph, and vertices are numbered so that each comes after all it
// waits for.
func Plan(in Input) (*plan.Graph, error) { return build(&in, false) }

func build(in *Input, dense bool) (*plan.Graph, error) {
	order, ok := in.order()
	if !ok {
		return nil, fmt.Errorf("operation %q cannot be planned", in.Operation)
	}
	switch in.Operation {
	case OpGrow, OpShrink, OpAddServices, OpRemoveServices, OpUpgrade, OpReplaceNode:
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
	p := g.wants(order)
	if !in.Compat {
		g.startIdle(p)
	}
	st.stamp(p)
	if last := g.reconfiguration(p); last != nil {
		st.close()
		st.stamp(last)
	}
	return st.b.Build()
}
