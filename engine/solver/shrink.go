package solver

import "sort"

// shrunk chooses the nodes to remove. It goes from the newest node to the oldest and removes each
// one that can be removed given the earlier removals (docs/spec/solver.md rule 9).
func (w *world) shrunk(b *built, on []bool) (*solution, verdict) {
	c := &culling{world: w, built: b, on: on, program: newProgram(b.problem, w.meter), leave: map[int]int64{}, closed: map[int]bool{}}
	if v := c.program.feasible(); v != yes {
		return nil, v
	}
	for ci, g := range b.groups {
		id := c.program.column(column{ci, len(b.classes[ci].kinds) - 1, setOf(b.gone)})
		for _, n := range g.nodes {
			c.order = append(c.order, candidateVictim{n, id})
		}
	}
	sort.SliceStable(c.order, func(i, j int) bool { return c.order[i].node.Number > c.order[j].node.Number })
	v := c.choose(0)
	return c.found, v
}

type candidateVictim struct {
	node *ExistingNode
	id   int // its column
}

// culling is the search for victims.
type culling struct {
	world   *world
	built   *built
	on      []bool
	program *program
	order   []candidateVictim
	leave   map[int]int64 // by column, so far
	closed  map[int]bool  // columns of which no more nodes may be removed
	removed []*ExistingNode
	found   *solution
}

// choose decides whether the node at position i of the order is removed, and then decides on the
// nodes after it.
func (c *culling) choose(i int) verdict {
	r := c.program
	if int64(len(c.removed)) == c.world.shrink {
		return c.finish()
	}
	for i < len(c.order) && c.closed[c.order[i].id] {
		i++
	}
	if i == len(c.order) {
		return no
	}
	id := c.order[i].id
	n := c.leave[id]
	lo, hi := r.lo[id], r.hi[id]
	// Either this node is removed, or neither it nor an equal older one.
	r.bound(id, n+1, hi)
	v := c.can(id, n+1)
	if v == yes {
		c.leave[id] = n + 1
		c.removed = append(c.removed, c.order[i].node)
		if v = c.choose(i + 1); v != no {
			return v
		}
		c.leave[id] = n
		c.removed = c.removed[:len(c.removed)-1]
	}
	if v == no {
		r.bound(id, n, n)
		c.closed[id] = true
		if v = r.feasible(); v == yes {
			v = c.choose(i + 1)
		}
		if v == no {
			c.closed[id] = false
		}
	}
	if v == no {
		r.bound(id, lo, hi)
	}
	return v
}

// can reports whether at least n nodes of the column can be removed.
func (c *culling) can(id int, n int64) verdict {
	r := c.program
	if id < len(r.witness) && r.witness[id] >= n && c.fits() {
		return yes
	}
	return r.feasible()
}

// fits reports whether the last solution found, the witness, satisfies the current bounds.
func (c *culling) fits() bool {
	for id := range c.program.cols {
		x := int64(0)
		if id < len(c.program.witness) {
			x = c.program.witness[id]
		}
		if x < c.program.lo[id] || x > c.program.hi[id] {
			return false
		}
	}
	return true
}

// finish builds the solution. It returns no if the remaining nodes cannot be spread as required or
// if the layout is excluded.
func (c *culling) finish() verdict {
	r := c.program
	if !c.fits() {
		if v := r.feasible(); v != yes {
			return v
		}
	}
	s := &solution{built: c.built, removed: append([]*ExistingNode(nil), c.removed...)}
	for id, n := range r.witness {
		if n > 0 && !r.cols[id].items.has(c.built.gone) {
			s.counts = append(s.counts, counted{r.cols[id], n})
		}
	}
	if c.world.excluded(s, c.on) || !c.world.place(s, c.on) {
		if c.world.meter.err != nil {
			return unknown
		}
		return no
	}
	c.found = s
	return yes
}
