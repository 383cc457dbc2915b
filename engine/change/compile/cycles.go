package compile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/change/object"
	"github.com/coopr/coopr/engine/model"
)

// goal is an object in a state.
type goal struct {
	id object.ID
	in object.State
}

// wants is a graph of the goals of a site, with three nodes for each goal that any need names:
//
//	reach:  the object gets to the state
//	lock:   the object grants the state
//	back:   the object, in the state, goes back to its preferred one
type wants struct {
	site  *object.Site
	nodes []node
	index map[node]int
	edges [][]int32
}

type node struct {
	goal
	what uint8
}

const (
	reach uint8 = iota
	lock
	back
)

func (w *wants) node(n node) int {
	if i, ok := w.index[n]; ok {
		return i
	}
	w.index[n] = len(w.nodes)
	w.nodes = append(w.nodes, n)
	w.edges = append(w.edges, nil)
	return len(w.nodes) - 1
}

func (w *wants) edge(from int, to node) {
	i := int32(w.node(to))
	if !slices.Contains(w.edges[from], i) {
		w.edges[from] = append(w.edges[from], i)
	}
}

// steps visits the dependencies of every step on the way between two states.
func steps(d *object.Def, from, to object.State, yield func(object.ID, object.State)) {
	for _, next := range d.Type.Way(from, to) {
		d.Moving(from, next, yield)
		from = next
	}
}

// Deadlocks returns a fault for every cycle of objects that are certain to wait for each other
// (rule 26): each needs the next one in some state, in order to reach or to grant the state
// that the previous one needs.
func Deadlocks(s *object.Site) model.Faults {
	w := &wants{site: s, index: map[node]int{}}
	for i := range s.Defs {
		if d := &s.Defs[i]; d.Name != "" && len(d.Needs) > 0 {
			w.node(node{goal{d.ID, d.Preferred}, reach})
		}
	}
	for i := 0; i < len(w.nodes); i++ {
		n := w.nodes[i]
		d := &s.Defs[n.id]
		need := func(p object.ID, in object.State) { w.edge(i, node{goal{p, in}, lock}) }
		switch {
		case n.what == lock:
			w.edge(i, node{n.goal, reach})
			d.Granting(n.in, need)
		default:
			for from := 1; from < len(d.Type.States); from++ {
				steps(d, object.State(from), n.in, need)
			}
		}
	}
	return w.report(func(names string) string {
		return fmt.Sprintf("these objects would wait for each other for ever: %s; take one of these dependencies away", names)
	}, w.single)
}

// Livelocks returns a fault for every group of objects that keep driving each other out of
// their preferred states (rule 27): to go back to its preferred state, each needs the next one
// in a state that is not preferred. It is enough that the objects that one needs on its way
// back need it where it is, because it would then ask and withdraw for ever.
func Livelocks(s *object.Site) model.Faults {
	w := &wants{site: s, index: map[node]int{}}
	for i := range s.Defs {
		if d := &s.Defs[i]; d.Name != "" && len(d.Needs) > 0 {
			for from := 1; from < len(d.Type.States); from++ {
				if object.State(from) != d.Preferred {
					w.node(node{goal{d.ID, object.State(from)}, back})
				}
			}
		}
	}
	for i := 0; i < len(w.nodes); i++ {
		n := w.nodes[i]
		d := &s.Defs[n.id]
		// A state that the provider prefers anyway drives no object, but the needs for
		// granting it may.
		need := func(p object.ID, in object.State) {
			w.edge(i, node{goal{p, in}, lock})
			if in != s.Defs[p].Preferred {
				w.edge(i, node{goal{p, in}, reach})
			}
		}
		switch n.what {
		case back:
			steps(d, n.in, d.Preferred, need)
		case lock:
			d.Granting(n.in, need)
		case reach:
			steps(d, d.Preferred, n.in, need)
			w.edge(i, node{n.goal, back})
		}
	}
	return w.report(func(names string) string {
		return fmt.Sprintf(
			"these objects would drive each other out of their preferred states for ever: %s; "+
				"let one of them prefer another state, or take a dependency away",
			names,
		)
	}, func(cycle []int) bool {
		return slices.ContainsFunc(cycle, func(i int) bool { return w.nodes[i].what == back })
	})
}

// Contradictions returns a fault for every set of locks that can never be held together: a
// transition or a granted state, with everything that must be held to grant it, needs one
// object in two states, or needs the object itself in a state that it is leaving.
func Contradictions(s *object.Site) model.Faults {
	var faults model.Faults
	for i := range s.Defs {
		d := &s.Defs[i]
		if d.Name == "" || len(d.Needs) == 0 {
			continue
		}
		for _, m := range d.Type.Moves() {
			c := closure{site: s, in: map[object.ID]object.State{}}
			d.Moving(m.From, m.To, c.need)
			_, itself := c.in[d.ID]
			if c.clash == "" && itself {
				c.clash = d.Name
			}
			if c.clash != "" {
				faults.Add(
					"objects",
					fmt.Sprintf(
						"%s can never %s: what it must hold for that, and what that must hold, needs %s in another state at the same time",
						d.Name,
						d.Type.Actions[m.Action],
						c.clash,
					),
				)
			}
		}
		for st := 1; st < len(d.Type.States); st++ {
			c := closure{site: s, in: map[object.ID]object.State{d.ID: object.State(st)}}
			d.Granting(object.State(st), c.need)
			if c.clash != "" {
				faults.Add(
					"objects",
					fmt.Sprintf(
						"%s can never be locked in %s: what it must hold for that, and what that must hold, needs %s in another state at the same time",
						d.Name,
						d.Type.States[st],
						c.clash,
					),
				)
			}
		}
	}
	return faults
}

// closure is the set of all locks that something needs, directly or not.
type closure struct {
	site  *object.Site
	in    map[object.ID]object.State
	clash string
}

func (c *closure) need(p object.ID, in object.State) {
	if was, ok := c.in[p]; ok {
		if was != in && c.clash == "" {
			c.clash = c.site.Defs[p].Name
		}
		return
	}
	c.in[p] = in
	c.site.Defs[p].Granting(in, c.need)
}

// single reports whether every object occurs in a cycle with one state only. Otherwise the
// whole cycle cannot exist at one time.
func (w *wants) single(cycle []int) bool {
	in := map[object.ID]object.State{}
	for _, i := range cycle {
		n := w.nodes[i]
		if s, ok := in[n.id]; ok && s != n.in {
			return false
		}
		in[n.id] = n.in
	}
	return true
}

// report returns a fault for every strongly connected group of nodes that has a cycle that
// counts.
func (w *wants) report(say func(names string) string, counts func(cycle []int) bool) model.Faults {
	var faults model.Faults
	for _, group := range components(w.edges) {
		if len(group) < 2 {
			continue
		}
		inside := make(map[int]bool, len(group))
		for _, v := range group {
			inside[v] = true
		}
		var best []int
		for _, v := range group[:min(len(group), 200)] {
			c := w.cycle(v, inside)
			if counts(c) && (best == nil || len(c) < len(best)) {
				best = c
			}
		}
		if best != nil {
			faults = append(faults, &model.Fault{Path: "objects", Message: say(w.names(best))})
		}
	}
	return faults
}

// names formats a cycle as "A → B → A", starting with the object that comes first by name.
func (w *wants) names(cycle []int) string {
	var names []string
	for _, i := range cycle {
		if name := w.site.Defs[w.nodes[i].id].Name; len(names) == 0 || names[len(names)-1] != name {
			names = append(names, name)
		}
	}
	if len(names) > 1 && names[0] == names[len(names)-1] {
		names = names[:len(names)-1]
	}
	first := 0
	for i := range names {
		if names[i] < names[first] {
			first = i
		}
	}
	names = append(names[first:], names[:first]...)
	return strings.Join(append(names, names[0]), " → ")
}

// cycle returns a shortest cycle through a node within a group.
func (w *wants) cycle(start int, inside map[int]bool) []int {
	before := map[int]int{}
	queue := []int{start}
	for len(queue) > 0 {
		v := queue[0]
		queue = queue[1:]
		for _, e := range w.edges[v] {
			to := int(e)
			if to == start {
				cycle := []int{v}
				for v != start {
					v = before[v]
					cycle = append(cycle, v)
				}
				slices.Reverse(cycle)
				return cycle
			}
			if _, seen := before[to]; inside[to] && !seen {
				before[to] = v
				queue = append(queue, to)
			}
		}
	}
	return nil
}

// components returns the strongly connected components of a graph, each before the components
// that lead to it (Tarjan's algorithm without recursion).
func components(edges [][]int32) [][]int {
	type frame struct{ v, next int }
	number := make([]int, len(edges))
	low := make([]int, len(edges))
	on := make([]bool, len(edges))
	var stack []int
	var frames []frame
	var groups [][]int
	count := 0
	for root := range edges {
		if number[root] != 0 {
			continue
		}
		frames = append(frames, frame{v: root})
		for len(frames) > 0 {
			f := &frames[len(frames)-1]
			v := f.v
			if f.next == 0 && number[v] == 0 {
				count++
				number[v], low[v] = count, count
				stack = append(stack, v)
				on[v] = true
			}
			if f.next < len(edges[v]) {
				to := int(edges[v][f.next])
				f.next++
				if number[to] == 0 {
					frames = append(frames, frame{v: to})
				} else if on[to] {
					low[v] = min(low[v], number[to])
				}
				continue
			}
			frames = frames[:len(frames)-1]
			if len(frames) > 0 {
				u := frames[len(frames)-1].v
				low[u] = min(low[u], low[v])
			}
			if low[v] == number[v] {
				var group []int
				for {
					u := stack[len(stack)-1]
					stack = stack[:len(stack)-1]
					on[u] = false
					group = append(group, u)
					if u == v {
						break
					}
				}
				groups = append(groups, group)
			}
		}
	}
	return groups
}
