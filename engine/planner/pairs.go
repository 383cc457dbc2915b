package planner

import (
	"slices"

	"github.com/coopr/coopr/engine/model"
)

// pair is one action of one service, on any number of nodes.
type pair struct {
	service int
	action  model.Action
}

// cross is a dependency between two services: action to of one waits for action from of the other.
type cross struct {
	of, on   int
	to, from model.Action
}

// pairs holds the pairs of a phase in topological order, with the pairs for which each waits.
type pairs struct {
	list  []pair
	waits [][]int // parallel to list: the pairs for which it waits, except its own chain
	uses  []int   // parallel to list: the number of pairs that wait for it
	cross []cross
}

// newPairs determines the order between the pairs of a phase: each service's own chain, and the
// rules between services.
func (g *grid) newPairs(p *phase) *pairs {
	wanted := make([]mask, len(g.names)) // the actions of each service that are planned on any node
	for k, m := range p.slot {
		if m != 0 {
			wanted[g.slotSvc[k]] |= m
		}
	}
	out := &pairs{}
	out.cross = g.crossings(wanted, g.has(wanted))
	if g.in.Compat {
		g.startAgain(p, out)
		for k, m := range p.again {
			if m != 0 {
				wanted[g.slotSvc[k]] |= m
			}
		}
	}
	out.sort(p.order, wanted)
	return out
}

// has returns the function that reports whether a service counts for a rule. A service counts if
// its action is planned on some node; otherwise the rule passes over it as if it lacked the action.
// In the original every service that defines the action counts.
func (g *grid) has(wanted []mask) func(int, model.Action) bool {
	if g.in.Compat {
		return func(s int, a model.Action) bool { return g.defined[s]&bit(a) != 0 }
	}
	return func(s int, a model.Action) bool { return wanted[s]&bit(a) != 0 }
}

// crossings returns the dependencies that the rules create between services.
func (g *grid) crossings(wanted []mask, has func(int, model.Action) bool) []cross {
	var out []cross
	for _, r := range rules {
		rel := g.relation(r)
		for s := range wanted {
			if wanted[s]&bit(r.to) == 0 {
				continue
			}
			for _, on := range rel.nearest(s, r.reversed, func(t int) bool { return has(t, r.from) }) {
				if g.in.Compat && r.install && !g.wide.has(on) {
					continue
				}
				out = append(out, cross{of: s, on: on, to: r.to, from: r.from})
			}
		}
	}
	return out
}

// sort lists the pairs in topological order, by a depth-first walk from each pair back over its
// chain and its crossings. There is no cycle, because the relations have none and every rule leads
// forward.
func (o *pairs) sort(order []model.Action, wanted []mask) {
	index := map[pair]int{}
	var all []pair
	for _, a := range order {
		if bit(a)&perNode != 0 {
			continue
		}
		for s, m := range wanted {
			if m&bit(a) != 0 {
				index[pair{s, a}] = len(all)
				all = append(all, pair{s, a})
			}
		}
	}
	waits := make([][]int, len(all))
	before := make([][]int, len(all)) // waits and the own chain
	last := map[int]int{}
	for i, p := range all {
		if prev, ok := last[p.service]; ok {
			before[i] = append(before[i], prev)
		}
		last[p.service] = i
	}
	for _, c := range o.cross {
		to, okTo := index[pair{c.of, c.to}]
		from, okFrom := index[pair{c.on, c.from}]
		if okTo && okFrom && !slices.Contains(waits[to], from) {
			waits[to] = append(waits[to], from)
			before[to] = append(before[to], from)
		}
	}
	place := make([]int, len(all)) // new index + 1; -1: being visited
	o.list, o.waits, o.uses = make([]pair, 0, len(all)), make([][]int, 0, len(all)), make([]int, len(all))
	var visit func(int)
	visit = func(i int) {
		if place[i] != 0 {
			return
		}
		place[i] = -1
		for _, b := range before[i] {
			visit(b)
		}
		w := make([]int, 0, len(waits[i]))
		for _, b := range waits[i] {
			w = append(w, place[b]-1)
			o.uses[place[b]-1]++
		}
		o.list, o.waits = append(o.list, all[i]), append(o.waits, w)
		place[i] = len(o.list)
	}
	for i := range all {
		visit(i)
	}
}
