package tree

import (
	"fmt"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
)

// OrderError means that phases and strategies require an order that contradicts the tasks'
// dependencies.
type OrderError struct {
	// Plan is the plan's name. Cycle lists tasks with their phases, each of which would have to
	// be done before the next, and the last before the first.
	Plan  string
	Cycle []string
}

// Error returns the cycle and what to do about it.
func (e *OrderError) Error() string {
	return fmt.Sprintf(
		"plan %s: its order contradicts the dependencies of its services: %s -> %s: "+
			"change the order of the phases, name every service that they depend on, or make them parallel",
		e.Plan,
		strings.Join(e.Cycle, " -> "),
		e.Cycle[0],
	)
}

// Compile returns the graph with the draft's steps, and with barriers that enforce its order:
// the order of a serial plan, of serial phases, of batches, and of the steps on one node in a
// dependency phase. Vertices keep their numbers; barriers follow them. Every barrier also
// waits for the one before it, and all tasks of a step for the barrier before the step. So
// everything that comes later and has not begun waits for a step that is restarted. The error
// is an *OrderError if the order contradicts that of the graph.
//
// Canaries and interrupts are gates and not edges: Arm returns them.
func (d *Draft) Compile(g *plan.Graph) (*plan.Graph, error) {
	c := &compiler{g: g, d: d, sizes: make([]uint32, len(d.Phases)), vertices: g.Len()}
	c.index()
	if d.Strategy.Kind == Serial {
		c.follow(len(d.Phases), func(i int) (first, end uint32) { return d.Phases[i].First, d.Phases[i].End })
	}
	for i, p := range d.Phases {
		n := int(p.End - p.First)
		c.sizes[i] = uint32(n)
		switch p.Strategy.Kind {
		case Serial, Batch:
			size := 1
			if p.Strategy.Kind == Batch {
				size = p.Strategy.batch(n)
			}
			c.follow((n+size-1)/size, func(i int) (first, end uint32) {
				return p.First + uint32(i*size), min(p.First+uint32(i*size+size), p.End)
			})
		case Dependency:
			for from := p.First; from < p.End; {
				to := from + 1
				for to < p.End && c.node(to) == c.node(from) { // those on an agent follow each other, too
					to++
				}
				first := from
				c.follow(int(to-from), func(i int) (uint32, uint32) { return first + uint32(i), first + uint32(i) + 1 })
				from = to
			}
		case Random:
			return nil, fmt.Errorf("phase %s: a random order cannot be kept by a graph", p.Name)
		}
	}
	return c.build()
}

type edge struct{ from, to uint32 }

type compiler struct {
	g        *plan.Graph
	d        *Draft
	sizes    []uint32
	off      []uint32 // members[off[s]:off[s+1]] are the tasks of step s
	members  []uint32
	outer    []bool // by task: a later task is in the same step
	more     []edge
	vertices int
}

// index finds the tasks of each step, and the last ones among them.
func (c *compiler) index() {
	n := c.d.steps()
	c.off = make([]uint32, n+2)
	for _, s := range c.d.Step {
		if s != plan.NoStep {
			c.off[s+2]++
		}
	}
	for i := 2; i < len(c.off); i++ {
		c.off[i] += c.off[i-1]
	}
	c.members = make([]uint32, c.off[n+1])
	c.outer = make([]bool, c.g.Len())
	for v, s := range c.d.Step {
		if s == plan.NoStep {
			continue
		}
		c.members[c.off[s+1]] = uint32(v)
		c.off[s+1]++
		for _, w := range c.g.Next(v) {
			if c.d.Step[w] == s {
				c.outer[v] = true
			}
		}
	}
}

func (c *compiler) tasks(first, end uint32) []uint32 { return c.members[c.off[first]:c.off[end]] }

func (c *compiler) node(step uint32) int32 {
	if t := c.tasks(step, step+1); len(t) > 0 {
		return c.g.Machine(c.g.Node[t[0]])
	}
	return plan.None
}

// follow makes groups of steps follow each other.
func (c *compiler) follow(groups int, steps func(i int) (first, end uint32)) {
	gate := -1
	for i := range groups {
		first, end := steps(i)
		tasks := c.tasks(first, end)
		if len(tasks) == 0 {
			continue
		}
		for _, v := range tasks {
			if gate >= 0 { // including tasks behind others of their step, so that a begun step waits again
				c.more = append(c.more, edge{uint32(gate), v})
			}
		}
		if i == groups-1 {
			return
		}
		barrier := uint32(c.vertices)
		c.vertices++
		if gate >= 0 {
			c.more = append(c.more, edge{uint32(gate), barrier})
		}
		for _, v := range tasks {
			if !c.outer[v] {
				c.more = append(c.more, edge{v, barrier})
			}
		}
		gate = int(barrier)
	}
}

func (c *compiler) build() (*plan.Graph, error) {
	out := c.g
	if len(c.more) > 0 {
		if err := c.cycle(); err != nil {
			return nil, err
		}
		b := plan.NewBuilder(c.g.Nodes, c.g.Services)
		b.Grow(c.vertices, len(c.g.Succ)+len(c.more))
		for v := range c.g.Len() {
			b.Task(c.g.Action[v], int(c.g.Node[v]), int(c.g.Service[v]))
			for _, w := range c.g.Next(v) {
				b.Edge(uint32(v), w)
			}
		}
		for range c.vertices - c.g.Len() {
			b.Barrier()
		}
		for _, e := range c.more {
			b.Edge(e.from, e.to)
		}
		var err error
		if out, err = b.Build(); err != nil {
			return nil, fmt.Errorf("plan %s: %w", c.d.Name, err)
		}
	}
	steps := slices.Clone(c.d.Step)
	for len(steps) < c.vertices {
		steps = append(steps, plan.NoStep)
	}
	return out.WithSteps(steps, c.sizes)
}

// cycle returns an *OrderError for a cycle of the graph's edges and the new ones. Such a cycle
// consists of vertices that never become free.
func (c *compiler) cycle() error {
	left := append(slices.Clone(c.g.Preds), make([]uint32, c.vertices-c.g.Len())...)
	off := make([]uint32, c.vertices+1) // of the new edges
	for _, e := range c.more {
		left[e.to]++
		off[e.from+1]++
	}
	for v := range c.vertices {
		off[v+1] += off[v]
	}
	more := make([]uint32, len(c.more))
	fill := slices.Clone(off)
	for _, e := range c.more {
		more[fill[e.from]] = e.to
		fill[e.from]++
	}
	next := func(v uint32, visit func(w uint32)) {
		if int(v) < c.g.Len() {
			for _, w := range c.g.Next(int(v)) {
				visit(w)
			}
		}
		for _, w := range more[off[v]:off[v+1]] {
			visit(w)
		}
	}
	queue := make([]uint32, 0, c.vertices)
	for v, n := range left {
		if n == 0 {
			queue = append(queue, uint32(v))
		}
	}
	for i := 0; i < len(queue); i++ {
		next(queue[i], func(w uint32) {
			if left[w]--; left[w] == 0 {
				queue = append(queue, w)
			}
		})
	}
	if len(queue) == c.vertices {
		return nil
	}
	before := map[uint32]uint32{}
	at := uint32(0)
	for v, n := range left {
		if n > 0 {
			at = uint32(v)
			next(at, func(w uint32) {
				if left[w] > 0 {
					before[w] = at
				}
			})
		}
	}
	seen := map[uint32]int{}
	var path []uint32
	for {
		if i, again := seen[at]; again {
			path = path[i:]
			break
		}
		seen[at] = len(path)
		path = append(path, at)
		at = before[at]
	}
	slices.Reverse(path)
	e := &OrderError{Plan: c.d.Name}
	for _, v := range path {
		if int(v) < c.g.Len() && c.g.Action[v] != model.Barrier {
			e.Cycle = append(e.Cycle, c.named(v))
		}
	}
	return e
}

func (c *compiler) named(v uint32) string {
	if s := c.d.Step[v]; s != plan.NoStep {
		return fmt.Sprintf("%s (phase %s)", c.g.Name(int(v)), c.d.Phases[c.d.phaseOf(s)].Name)
	}
	return c.g.Name(int(v))
}
