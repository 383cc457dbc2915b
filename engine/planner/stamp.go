package planner

import (
	"math"
	"math/bits"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
)

const noVertex = math.MaxUint32

// stamper adds phases to a graph, one after the other.
type stamper struct {
	*grid
	b *plan.Builder
	// gate is the vertex for which those tasks of a phase wait that wait for nothing else.
	gate uint32
	// lastNode and lastSlot are the last vertices of each node's own tasks and of each slot.
	lastNode, lastSlot []uint32
	// met is the vertex after which all nodes of GatherFrom are confirmed.
	met uint32
	// floor is the first vertex after the creation of machines in this phase. A last vertex of a
	// slot or node below it does not imply met, and such a vertex of a slot does not imply the last
	// vertex of its node.
	floor uint32
	made  uint32 // number of vertices
	dense bool   // for tests: no barriers
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

// stamp adds the tasks of a phase: the leading tasks of whole nodes, the tasks of services, and the
// trailing tasks of whole nodes.
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
		st.confirmed(p)
	}
	st.floor = st.made
	st.lead(p, p.order[early:first])
	if p.gone != nil {
		st.left(p)
	}
	if p.local {
		st.locally(p)
	} else {
		st.everywhere(p, o)
	}
	st.lead(p, p.order[end:])
}

// task adds a task's vertex.
func (st *stamper) task(a model.Action, node, service int) uint32 {
	st.made++
	return st.b.Task(a, node, service)
}

// join returns one vertex that comes after all of ends.
func (st *stamper) join(ends []uint32) uint32 {
	if len(ends) == 1 {
		return ends[0]
	}
	st.made++
	all := st.b.Barrier()
	for _, u := range ends {
		st.b.Edge(u, all)
	}
	return all
}

// lead adds actions on whole nodes, node by node.
func (st *stamper) lead(p *phase, actions []model.Action) {
	for n, m := range p.node {
		for _, a := range actions {
			if m&bit(a) != 0 {
				st.whole(n, a)
			}
		}
	}
}

// whole adds an action on a whole node, after all tasks that the node has so far.
func (st *stamper) whole(n int, a model.Action) {
	v := st.task(a, n, plan.None)
	says := false // whether the services' last vertices imply that of the node
	for _, k := range st.slots(n) {
		if u := st.lastSlot[k]; u != noVertex {
			st.b.Edge(u, v)
			says = says || u >= st.floor || st.lastNode[n] == noVertex
			st.lastSlot[k] = noVertex // v is the last now
		}
	}
	if !says {
		st.chain(st.lastNode[n], v)
	}
	st.lastNode[n] = v
}

// confirmed lets all later tasks wait for those nodes of GatherFrom that the phase confirms.
func (st *stamper) confirmed(p *phase) {
	comes := func(n int) bool {
		return st.gatherFrom.has(n) && p.node[n]&bit(model.Confirm) != 0
	}
	var ends []uint32
	for n, v := range st.lastNode {
		if comes(n) {
			ends = append(ends, v)
		}
	}
	if len(ends) == 0 {
		return
	}
	st.met = st.join(ends)
	for n, v := range st.lastNode {
		if v == noVertex || comes(n) {
			st.lastNode[n] = st.met // met implies the earlier vertex
		}
	}
}

// left lets all services that come to a node in this phase wait for the services that leave it.
func (st *stamper) left(p *phase) {
	var ends []uint32
	for n := range st.lastNode {
		ends = ends[:0]
		comes := false
		for _, k := range st.slots(n) {
			if u := st.lastSlot[k]; u != noVertex && p.gone.has(int(k)) {
				ends = append(ends, u)
			}
			comes = comes || p.slot[k] != 0
		}
		if len(ends) == 0 || !comes {
			continue
		}
		if v := st.lastNode[n]; v != noVertex {
			ends = append(ends, v)
		}
		st.lastNode[n] = st.join(ends)
	}
}

// chain lets v wait for the vertex before it, or for the gate of the phase if there is none. v also
// waits for met if the vertex before it does not imply met.
func (st *stamper) chain(before, v uint32) {
	switch {
	case before != noVertex:
		st.b.Edge(before, v)
		if st.met != noVertex && before != st.met && before < st.floor {
			st.b.Edge(st.met, v)
		}
	case st.gate != noVertex:
		st.b.Edge(st.gate, v)
	}
}

// link makes v the next vertex of a slot.
func (st *stamper) link(k int, v uint32) {
	before, node := st.lastSlot[k], st.lastNode[st.slotNode[k]]
	if before != noVertex {
		st.b.Edge(before, v)
	}
	if before == noVertex || before < st.floor && node != noVertex {
		st.chain(node, v)
	}
	st.lastSlot[k] = v
}

// everywhere adds the services' tasks pair by pair. If other pairs wait for a pair, a barrier after
// its tasks represents them all. If a pair waits for several vertices, a barrier before it joins
// them.
func (st *stamper) everywhere(p *phase, o *pairs) {
	done := make([][]uint32, len(o.list)) // the vertices that represent each pair
	sizes := make([]int, len(o.list))
	for i, pr := range o.list {
		sizes[i] = st.count(p, pr)
	}
	single := make([]bool, len(o.list)) // only one pair waits for it, and that pair has one task
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
			waits = append(waits[:0], st.join(waits))
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
				v = st.task(pr.action, int(st.slotNode[k]), pr.service)
				st.link(k, v)
				for _, u := range waits {
					st.b.Edge(u, v)
				}
			case p.again != nil && p.again[k]&bit(pr.action) != 0:
				v = st.task(pr.action, int(st.slotNode[k]), pr.service)
			default:
				continue
			}
			if keep {
				mine = append(mine, v)
			}
		}
		if len(mine) > 1 && !st.dense && !single[i] {
			mine = append(mine[:0], st.join(mine))
		}
		done[i] = mine
	}
}

// count returns the number of tasks of a pair.
func (st *stamper) count(p *phase, pr pair) int {
	n := 0
	for k := st.slotOff[pr.service]; k < st.slotOff[pr.service+1]; k++ {
		if p.slot[k]&bit(pr.action) != 0 || p.again != nil && p.again[k]&bit(pr.action) != 0 {
			n++
		}
	}
	return n
}

// close ends a phase: all later tasks wait for all of its tasks.
func (st *stamper) close() {
	var ends []uint32
	met := false // whether st.met is among the ends
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
	st.met = noVertex
	if len(ends) > 0 {
		st.gate = st.join(ends)
	}
}
