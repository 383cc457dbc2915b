package solver

import "sort"

// shrunk chooses the nodes to remove: going from the newest node to the oldest,
// each that can go, given those before it, goes (spec/solver.md rule 9).
func (w *world) shrunk(b *built) (*solution, verdict) {
	r := newProgram(b.problem, w.meter)
	if v := r.feasible(); v != yes {
		return nil, v
	}
	type victim struct {
		node *ExistingNode
		id   int // its column
	}
	var order []victim
	leave := map[int]int64{} // by column
	for ci, g := range b.groups {
		c := b.classes[ci]
		ki := len(c.kinds) - 1
		id := r.column(column{ci, ki, setOf(b.gone)})
		for _, n := range g.nodes {
			order = append(order, victim{n, id})
		}
	}
	sort.SliceStable(order, func(i, j int) bool { return order[i].node.Number > order[j].node.Number })
	s := &solution{built: b}
	closed := map[int]bool{}
	for _, v := range order {
		if int64(len(s.removed)) == w.shrink {
			break
		}
		if closed[v.id] {
			continue
		}
		n := leave[v.id] + 1
		if v.id >= len(r.witness) || r.witness[v.id] < n {
			keep := r.witness
			r.bound(v.id, n, r.hi[v.id])
			switch r.feasible() {
			case unknown:
				return nil, unknown
			case no:
				r.witness = keep
				r.bound(v.id, n-1, r.hi[v.id])
				closed[v.id] = true
				continue
			}
		} else {
			r.bound(v.id, n, r.hi[v.id])
		}
		leave[v.id] = n
		s.removed = append(s.removed, v.node)
	}
	for id, n := range r.witness {
		if n > 0 && !r.cols[id].items.has(b.gone) {
			s.counts = append(s.counts, counted{r.cols[id], n})
		}
	}
	return s, yes
}
