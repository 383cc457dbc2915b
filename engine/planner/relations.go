package planner

import (
	"slices"

	"github.com/coopr/coopr/engine/model"
)

// relations are the dependencies between services at one stage (install or run time), with provided
// names resolved. Services are indexes into a sorted list of names.
type relations struct {
	direct  [][]int // as written
	deps    [][]int // smallest set that implies the same order
	users   [][]int // deps reversed
	reaches []bitset
}

// providers finds the services that a name refers to (docs/spec/coopr.md 5.3 rule 2): all other
// services that provide the name or, if there are none, the service of that name.
type providers struct {
	index    map[string]int
	provided map[string][]int
}

func newProviders(names []string, services map[string]model.Service) providers {
	p := providers{index: make(map[string]int, len(names)), provided: map[string][]int{}}
	for i, name := range names {
		p.index[name] = i
		for _, as := range services[name].Dependencies.Provides {
			if as != name && !slices.Contains(p.provided[as], i) {
				p.provided[as] = append(p.provided[as], i)
			}
		}
	}
	return p
}

func (p providers) of(name string) []int {
	if by := p.provided[name]; len(by) > 0 {
		return by
	}
	if i, ok := p.index[name]; ok {
		return []int{i}
	}
	return nil
}

// newRelations resolves the dependencies of names at one stage and reduces them: it drops
// dependencies that another one implies, and those on a cycle (docs/spec/coopr.md 5.3 rule 3).
func newRelations(names []string, services map[string]model.Service, p providers, install bool) *relations {
	n := len(names)
	r := &relations{direct: make([][]int, n), deps: make([][]int, n), users: make([][]int, n)}
	for i, name := range names {
		needs := services[name].Dependencies.Runtime
		if install {
			needs = services[name].Dependencies.Install
		}
		for _, list := range [][]string{needs.Requires, needs.Uses} {
			for _, on := range list {
				for _, d := range p.of(on) {
					if d != i {
						r.direct[i] = append(r.direct[i], d)
					}
				}
			}
		}
		slices.Sort(r.direct[i])
		r.direct[i] = slices.Compact(r.direct[i])
	}
	r.reaches = closure(r.direct)
	for i, direct := range r.direct {
		for _, d := range direct {
			implied := slices.ContainsFunc(direct, func(e int) bool { return r.reaches[e].has(d) })
			if !implied {
				r.deps[i] = append(r.deps[i], d)
				r.users[d] = append(r.users[d], i)
			}
		}
	}
	return r
}

// nearest returns the services that must carry out an action before a service does. It follows the
// dependencies (or, if reversed, the users) through services without the action. It leaves out a
// service if another service of the result already waits for it (docs/spec/coopr.md 5.3 rules 4
// and 5).
func (r *relations) nearest(service int, reversed bool, has func(int) bool) []int {
	next := r.deps
	if reversed {
		next = r.users
	}
	var found []int
	seen := newBitset(len(next))
	queue := append([]int(nil), next[service]...)
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		if seen.has(s) {
			continue
		}
		seen.set(s)
		if has(s) {
			found = append(found, s)
		} else {
			queue = append(queue, next[s]...)
		}
	}
	if len(found) < 2 {
		return found
	}
	kept := make([]int, 0, len(found))
	for _, f := range found {
		implied := slices.ContainsFunc(found, func(g int) bool {
			if reversed {
				return g != f && r.reaches[f].has(g)
			}
			return g != f && r.reaches[g].has(f)
		})
		if !implied {
			kept = append(kept, f)
		}
	}
	slices.Sort(kept)
	return kept
}

// spread adds to set everything that its members reach over edges.
func spread(set bitset, edges [][]int) {
	var stack []int
	for i := range edges {
		if set.has(i) {
			stack = append(stack, i)
		}
	}
	for len(stack) > 0 {
		s := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, d := range edges[s] {
			if !set.has(d) {
				set.set(d)
				stack = append(stack, d)
			}
		}
	}
}

// inverse returns the edges in reverse direction.
func inverse(edges [][]int) [][]int {
	out := make([][]int, len(edges))
	for i, list := range edges {
		for _, d := range list {
			out[d] = append(out[d], i)
		}
	}
	return out
}

// closure returns the vertices that each vertex reaches. A vertex reaches itself only if it is on a
// cycle.
func closure(edges [][]int) []bitset {
	out := make([]bitset, len(edges))
	for i := range edges {
		out[i] = newBitset(len(edges))
		for _, d := range edges[i] {
			out[i].set(d)
		}
		spread(out[i], edges)
	}
	return out
}

// bitset is a set of small numbers.
type bitset []uint64

func newBitset(n int) bitset    { return make(bitset, (n+63)/64) }
func (b bitset) has(i int) bool { return b[i/64]&(1<<(i%64)) != 0 }
func (b bitset) set(i int)      { b[i/64] |= 1 << (i % 64) }
