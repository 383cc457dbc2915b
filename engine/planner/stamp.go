package planner

import (
	"math"
	"math/bits"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
)

const noVertex = math.MaxUint32

// stamper writes phases into a graph, one after the other.
type stamper struct {
	*grid
	b *plan.Builder
	// gate is what the tasks of a phase wait for that wait for nothing else.
	gate uint32
	// last vertices: of each node's own tasks, and of each slot.
	lastNode, lastSlot []uint32
	// met is the vertex behind which all of GatherFrom is confirmed; meets are
	// the nodes whose next tasks must wait for it besides their own CONFIRM.
	met   uint32
	meets bitset
	dense bool // for tests: no barriers
}

func newStamper(g *grid) *stamper {
	ids := make([]string, len(g.in.Nodes))
	for i := range g.in.Nodes {
		ids[i] = g.in.Nodes[i].ID
	}
	return &stamper{
		grid: g, b: plan.NewBuilder(ids, g.names), gate: noVertex,
		lastNode: filled(len(ids)), lastSlot: filled(len(g.slotNode)), met: noVertex,
	}
}

func filled(n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = noVertex
	}
	return out
}

// stamp adds the tasks of a phase: those of whole nodes that come first, the
// services' own, and those of whole nodes that come last.
func (st *stamper) stamp(p *phase) {
	tasks := 0
	for _, m := range p.node {
		tasks += bits.OnesCount16(uint16(m))
	}
	for k, m := range p.slot {
		tasks += bits.OnesCount16(uint16(m))
		if p.again != nil {
			tasks += bits.OnesCount16(uint16(p.again[k]))
		}
	}
	first := 0
	for first < len(p.order) && bit(p.order[first])&perNode != 0 {
		first++
	}
	end := first
	for end < len(p.order) && bit(p.order[end])&perNode == 0 {
		end++
	}
	var o *pairs
	if !p.local {
		o = st.newPairs(p)
		for _, m := range p.again {
			tasks += bits.OnesCount16(uint16(m))
		}
		st.b.Grow(tasks+2*len(o.list), 3*tasks)
	} else {
		st.b.Grow(tasks, 3*tasks)
	}
	early := 0
	for early < first && bit(p.order[early])&hardware != 0 {
		early++
	}
	st.lead(p, p.order[:early])
	if st.in.Gather {
		st.confirmed()
	}
	st.lead(p, p.order[early:first])
	if p.local {
		st.locally(p)
	} else {
		st.everywhere(p, o)
	}
	for _, a := range p.order[end:] {
		st.whole(p, a)
	}
}

// lead adds actions on whole nodes that come before the services' own, node by node.
func (st *stamper) lead(p *phase, actions []model.Action) {
	for n, m := range p.node {
		for _, a := range actions {
			if m&bit(a) != 0 {
				v := st.b.Task(a, n, plan.None)
				st.chain(st.lastNode[n], v)
				st.meet(n, v)
				st.lastNode[n] = v
			}
		}
	}
}

// confirmed makes all that follows wait for the nodes of GatherFrom.
func (st *stamper) confirmed() {
	from := st.gatherFrom
	var ends []uint32
	for n, v := range st.lastNode {
		if v != noVertex && from.has(n) {
			ends = append(ends, v)
		}
	}
	if len(ends) == 0 {
		return
	}
	met := ends[0]
	if len(ends) > 1 {
		met = st.b.Barrier()
		for _, v := range ends {
			st.b.Edge(v, met)
		}
	}
	st.met, st.meets = met, newBitset(len(st.lastNode))
	for n, v := range st.lastNode {
		if v == noVertex || from.has(n) {
			st.lastNode[n] = met // which says it all
		} else {
			st.meets.set(n)
		}
	}
}

// meet makes v, the first task of a node since confirmed, wait for the others.
func (st *stamper) meet(n int, v uint32) {
	if st.meets != nil && st.meets.has(n) {
		st.b.Edge(st.met, v)
	}
}

// whole adds an action on whole nodes that follows all of the node's services.
func (st *stamper) whole(p *phase, a model.Action) {
	for n, m := range p.node {
		if m&bit(a) == 0 {
			continue
		}
		v := st.b.Task(a, n, plan.None)
		waits := false
		for _, k := range st.slots(n) {
			if u := st.lastSlot[k]; u != noVertex {
				st.b.Edge(u, v)
				waits = true
				st.lastSlot[k] = noVertex // v is the last now
			}
		}
		if !waits {
			st.chain(st.lastNode[n], v)
		}
		st.lastNode[n] = v
	}
}

// chain makes v wait for the vertex before it, or for the gate of the phase.
func (st *stamper) chain(before, v uint32) {
	switch {
	case before != noVertex:
		st.b.Edge(before, v)
	case st.gate != noVertex:
		st.b.Edge(st.gate, v)
	}
}

// link makes v the next vertex of a slot.
func (st *stamper) link(k int, v uint32) {
	before := st.lastSlot[k]
	if before == noVertex {
		before = st.lastNode[st.slotNode[k]]
	}
	st.chain(before, v)
	st.lastSlot[k] = v
}

// everywhere adds the services' tasks pair by pair. Where the tasks of a pair
// are waited for, a barrier behind them stands for them all; where a pair waits
// for several, a barrier before it gathers them.
func (st *stamper) everywhere(p *phase, o *pairs) {
	done := make([][]uint32, len(o.list)) // what stands for each pair
	sizes := make([]int, len(o.list))
	for i, pr := range o.list {
		sizes[i] = st.count(p, pr)
	}
	single := make([]bool, len(o.list)) // waited for by one pair of one task only
	for i, waits := range o.waits {
		for _, w := range waits {
			single[w] = o.uses[w] == 1 && sizes[i] == 1
		}
	}
	var waits []uint32
	for i, pr := range o.list {
		waits = waits[:0]
		for _, w := range o.waits[i] {
			waits = append(waits, done[w]...)
		}
		n, d := sizes[i], len(waits)
		if !st.dense && n > 1 && d > 1 && n*d > n+d {
			gather := st.b.Barrier()
			for _, u := range waits {
				st.b.Edge(u, gather)
			}
			waits = append(waits[:0], gather)
		}
		keep := o.uses[i] > 0
		var mine []uint32
		if keep {
			mine = make([]uint32, 0, sizes[i])
		}
		for k := st.slotOff[pr.service]; k < st.slotOff[pr.service+1]; k++ {
			var v uint32
			switch {
			case p.slot[k]&bit(pr.action) != 0:
				v = st.b.Task(pr.action, int(st.slotNode[k]), pr.service)
				st.link(k, v)
				for _, u := range waits {
					st.b.Edge(u, v)
				}
			case p.again != nil && p.again[k]&bit(pr.action) != 0:
				v = st.b.Task(pr.action, int(st.slotNode[k]), pr.service)
			default:
				continue
			}
			if keep {
				mine = append(mine, v)
			}
		}
		if len(mine) > 1 && !st.dense && !single[i] {
			all := st.b.Barrier()
			for _, u := range mine {
				st.b.Edge(u, all)
			}
			mine = append(mine[:0], all)
		}
		done[i] = mine
	}
}

// count gives the number of tasks of a pair.
func (st *stamper) count(p *phase, pr pair) int {
	n := 0
	for k := st.slotOff[pr.service]; k < st.slotOff[pr.service+1]; k++ {
		if p.slot[k]&bit(pr.action) != 0 || p.again != nil && p.again[k]&bit(pr.action) != 0 {
			n++
		}
	}
	return n
}

// close ends a phase: what comes next waits for all of it.
func (st *stamper) close() {
	var ends []uint32
	met := st.meets == nil // whether the gathering is among the ends already
	for n := range st.lastNode {
		some := false
		for _, k := range st.slots(n) {
			if v := st.lastSlot[k]; v != noVertex {
				ends = append(ends, v)
				some = true
			}
			st.lastSlot[k] = noVertex
		}
		if v := st.lastNode[n]; v != noVertex && !some && (v != st.met || !met) {
			ends = append(ends, v)
			met = met || v == st.met
		}
		st.lastNode[n] = noVertex
	}
	st.meets = nil
	switch len(ends) {
	case 0:
	case 1:
		st.gate = ends[0]
	default:
		st.gate = st.b.Barrier()
		for _, u := range ends {
			st.b.Edge(u, st.gate)
		}
	}
}
