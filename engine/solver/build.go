package solver

import (
	"math/big"
	"slices"
	"strings"
)

// built is a problem made from some of the rules, with the meaning of its numbers.
type built struct {
	*problem
	// impossible is true if no layout of this size satisfies one of the rules.
	impossible bool
	items      [][]string // services of each item, sorted
	pairs      []pair     // types by rank
	// anyway holds the services that the nodes of each class carry besides items.
	anyway [][]string
	// groups holds the existing nodes of each class; nil for new nodes.
	groups []*group
	// gone is the item that marks a node for removal, or -1.
	gone int
}

// build returns the problem for the rules that are on.
func (w *world) build(on []bool) *built {
	b := &built{problem: &problem{}, gone: -1}
	each := func(kind ruleKind, f func(r *rule)) {
		for i := range w.rules {
			if on[i] && w.rules[i].kind == kind {
				f(&w.rules[i])
			}
		}
	}
	each(ruleSizeMin, func(r *rule) { b.impossible = b.impossible || w.nodes < r.n })
	each(ruleSizeMax, func(r *rule) { b.impossible = b.impossible || w.nodes > r.n })
	itemOf := w.group(b, each)
	w.domains(b, itemOf, each)
	if w.shrink > 0 {
		b.gone = len(b.items)
		b.items = append(b.items, nil)
		b.weight = append(b.weight, 0)
		b.problem.domains = append(b.problem.domains, domain{w.shrink, w.shrink, 1, 0})
	}

	// The items that never share a node.
	n := len(b.items)
	conflict := make([]set, n)
	var together []set
	var banned set
	each(ruleCant, func(r *rule) {
		var s set
		for _, name := range r.set {
			s.add(itemOf[name])
		}
		switch m := s.appendItems(nil); len(m) {
		case 1:
			banned.add(int(m[0]))
		case 2:
			conflict[m[0]].add(int(m[1]))
			conflict[m[1]].add(int(m[0]))
		default:
			together = append(together, s)
		}
	})
	caps := w.capacity(b, itemOf, each)

	// The items that each pair of types can carry.
	for h := range w.hardware {
		for i := range w.images {
			b.pairs = append(b.pairs, pair{h, i})
		}
	}
	w.rankPairs(b.pairs)
	carries := make([]set, len(b.pairs))
	offered := make([]bool, len(b.pairs))
	for at, p := range b.pairs {
		hw, img := w.hardware[p.hw].name, w.images[p.img]
		offered[at] = w.offeredHW[p.hw] && w.offeredImg[p.img]
		for i := range b.items {
			carries[at].add(i)
		}
		carries[at] = carries[at].minus(&banned)
		each(ruleHardware, func(r *rule) {
			if !slices.Contains(r.set, hw) {
				carries[at].drop(itemOf[r.service])
			}
		})
		each(ruleImage, func(r *rule) {
			if !slices.Contains(r.set, img) {
				carries[at].drop(itemOf[r.service])
			}
		})
		for _, k := range []ruleKind{ruleCompatHardware, ruleTypeHardware} {
			each(k, func(r *rule) { offered[at] = offered[at] && slices.Contains(r.set, hw) })
		}
		for _, k := range []ruleKind{ruleCompatImage, ruleTypeImage} {
			each(k, func(r *rule) { offered[at] = offered[at] && slices.Contains(r.set, img) })
		}
	}
	addClass := func(c *class, anyway []string, g *group) {
		c.conflict, c.together, c.need = conflict, together, caps.need
		b.classes = append(b.classes, c)
		b.anyway = append(b.anyway, anyway)
		b.groups = append(b.groups, g)
	}
	touches := w.touch == TouchFewest
	if touches {
		b.goals++
	}
	for _, g := range w.groups {
		w.addExisting(b, g, carries, itemOf, caps, touches, on, addClass)
	}
	if w.fresh > 0 {
		c := &class{nodes: w.fresh}
		var anyway []string
		var forced set
		for _, s := range w.free {
			if i, ok := itemOf[s]; ok {
				forced.add(i)
			} else {
				anyway = append(anyway, s)
			}
		}
		costed := w.costs != nil
		if costed {
			b.goals++
		}
		for at, p := range b.pairs {
			if !offered[at] {
				continue
			}
			k := kind{
				allowed: carries[at],
				forced:  forced,
				bare:    len(anyway) > 0,
				rank:    at,
				base:    w.worthOf(anyway),
				hw:      p.hw,
				img:     p.img,
				room:    caps.left(p.hw, anyway),
			}
			if b.gone >= 0 {
				k.allowed.drop(b.gone)
			}
			if costed {
				k.cost[b.goals-1] = w.costs[p]
			}
			if len(w.in.Exclude) == 0 && dominated(c.kinds, &k) {
				continue
			}
			c.kinds = append(c.kinds, k)
		}
		addClass(c, anyway, nil)
	}
	b.prepare()
	return b
}

// dominated reports whether a more preferred kind can replace k everywhere.
func dominated(better []kind, k *kind) bool {
next:
	for i := range better {
		o := &better[i]
		if !o.allowed.holds(&k.allowed) {
			continue
		}
		for d := range k.room {
			if o.room[d] < k.room[d] {
				continue next
			}
		}
		for n := range k.cost {
			if o.cost[n] > k.cost[n] {
				continue next
			}
		}
		return true
	}
	return false
}

// group creates the items, which are groups of services that must share their nodes. It returns the
// item of each service. Each rule joins those members of its set that are on the cluster.
func (w *world) group(b *built, each func(ruleKind, func(*rule))) map[string]int {
	parent := map[string]string{}
	var find func(s string) string
	find = func(s string) string {
		if p := parent[s]; p != s {
			parent[s] = find(p)
		}
		return parent[s]
	}
	for _, s := range w.services {
		if w.limited[s] || w.tracked[s] {
			parent[s] = s
		}
	}
	each(ruleMust, func(r *rule) {
		for _, s := range r.set[1:] {
			parent[find(s)] = find(r.set[0])
		}
	})
	itemOf := map[string]int{}
	root := map[string]int{}
	for _, s := range w.services { // sorted: items are in the order of their first service
		if !w.limited[s] && !w.tracked[s] {
			continue
		}
		at, ok := root[find(s)]
		if !ok {
			at = len(b.items)
			root[find(s)] = at
			b.items = append(b.items, nil)
		}
		b.items[at] = append(b.items[at], s)
		itemOf[s] = at
	}
	for _, m := range b.items {
		b.weight = append(b.weight, w.worthOf(m))
	}
	return itemOf
}

// domains bounds the number of nodes that carry each item.
func (w *world) domains(b *built, itemOf map[string]int, each func(ruleKind, func(*rule))) {
	one := int64(1) // every service is on some node
	if w.in.Change.Kind == Shrink {
		one = 0 // ruleStay requires it explicitly
	}
	for range b.items {
		b.problem.domains = append(b.problem.domains, domain{one, w.nodes, 1, 0})
	}
	least := func(s string, n int64) {
		if i, ok := itemOf[s]; ok {
			d := &b.problem.domains[i]
			d.lo = max(d.lo, n)
			return
		}
		// A service without constraints is on every node; a service outside the cluster is on none.
		_, here := slices.BinarySearch(w.services, s)
		b.impossible = b.impossible || !here || n > w.nodes
	}
	each(ruleMin, func(r *rule) { least(r.service, r.n) })
	each(ruleStay, func(r *rule) { least(r.service, 1) })
	each(ruleRequires, func(r *rule) { least(r.other, r.n) })
	each(ruleMax, func(r *rule) {
		d := &b.problem.domains[itemOf[r.service]]
		d.hi = min(d.hi, r.n)
	})
	rest := func(s string, rem, m int64) {
		d := &b.problem.domains[itemOf[s]]
		ok := false
		if d.rem, d.mod, ok = meet(d.rem, d.mod, rem, m); !ok {
			b.impossible = true
		}
	}
	each(ruleStep, func(r *rule) { rest(r.service, 0, r.n) })
	each(ruleOdd, func(r *rule) { rest(r.service, 1, 2) })
}

// rooms holds the capacities of nodes and the amounts that items take, in whole numbers.
type rooms struct {
	need  [][dimensions]int64
	alone map[string][dimensions]int64 // by service
	room  [][dimensions]int64          // by hardware type
}

// capacity scales resources so that all sums are exact. A service's resources count only if their
// rule is on.
func (w *world) capacity(b *built, itemOf map[string]int, each func(ruleKind, func(*rule))) *rooms {
	c := &rooms{
		need:  make([][dimensions]int64, len(b.items)),
		alone: map[string][dimensions]int64{},
		room:  make([][dimensions]int64, len(w.hardware)),
	}
	var names []string
	each(ruleResources, func(r *rule) { names = append(names, r.service) })
	for d := range dimensions {
		for h := range w.hardware {
			c.room[h][d] = noLimit
		}
		var all []*big.Rat
		for _, s := range names {
			all = append(all, w.takes(s, d))
		}
		for h := range w.hardware {
			all = append(all, w.hardware[h].room[d])
		}
		n, ok := whole(all)
		if !ok {
			continue // checkNumbers has refused the numbers, or no service takes this capacity
		}
		for i, s := range names {
			a := c.alone[s]
			a[d] = n[i]
			c.alone[s] = a
			if at, ok := itemOf[s]; ok {
				c.need[at][d] += n[i]
			}
		}
		for h := range w.hardware {
			if w.hardware[h].room[d] != nil {
				c.room[h][d] = n[len(names)+h]
			}
		}
	}
	return c
}

// left returns the capacity of a hardware type minus the amounts of the given services.
func (c *rooms) left(hw int, services []string) [dimensions]int64 {
	room := c.room[hw]
	for _, s := range services {
		for d, n := range c.alone[s] {
			room[d] -= n
		}
	}
	return room
}

// addExisting adds the class of a group of equal existing nodes.
func (w *world) addExisting(
	b *built,
	g *group,
	carries []set,
	itemOf map[string]int,
	caps *rooms,
	touches bool,
	on []bool,
	addClass func(*class, []string, *group),
) {
	at := slices.IndexFunc(b.pairs, func(p pair) bool { return w.hardware[p.hw].name == g.hw && w.images[p.img] == g.img })
	p := b.pairs[at]
	k := kind{rank: at, hw: p.hw, img: p.img}
	possible := true
	var held set
	var anyway []string
	for _, s := range g.services {
		if i, ok := itemOf[s]; ok {
			held.add(i)
		} else {
			anyway = append(anyway, s)
		}
	}
	untouched := true
	for _, s := range w.free {
		if !w.adding[s] {
			continue
		}
		untouched = false // an added service without constraints goes to every node
		if i, ok := itemOf[s]; ok {
			held.add(i)
		} else {
			anyway = append(anyway, s)
		}
	}
	slices.Sort(anyway)
	for i, members := range b.items {
		if i == b.gone {
			continue
		}
		existing, added := 0, 0
		for _, s := range members {
			here := slices.Contains(g.services, s)
			if !w.adding[s] {
				existing++
				if !here && held.has(i) {
					possible = false // existing services that must share the node do not, and they cannot move
				}
			} else if !here {
				added++
			}
		}
		switch {
		case held.has(i):
			k.forced.add(i)
			k.allowed.add(i)
			untouched = untouched && added == 0
		case existing == 0:
			k.allowed.add(i)
		}
	}
	k.allowed = k.allowed.and(&carries[at])
	k.base = w.worthOf(anyway)
	k.bare = len(anyway) > 0 || len(g.services) > 0
	k.room = caps.left(p.hw, anyway)
	if w.in.Change.Kind == Retemplate {
		for i := range w.rules {
			r := &w.rules[i]
			if !on[i] {
				continue
			}
			possible = possible && (r.kind != ruleCompatHardware || slices.Contains(r.set, g.hw)) &&
				(r.kind != ruleCompatImage || slices.Contains(r.set, g.img))
		}
	}
	c := &class{nodes: g.count}
	if possible {
		if stay := k; touches && untouched {
			stay.allowed = stay.allowed.and(&stay.forced)
			c.kinds = append(c.kinds, stay)
			k.cost[0] = 1
		} else if touches {
			k.cost[0] = 1
		}
		if !touches || !k.forced.holds(&k.allowed) || len(c.kinds) == 0 {
			c.kinds = append(c.kinds, k)
		}
	}
	if b.gone >= 0 {
		out := kind{rank: at, hw: p.hw, img: p.img, bare: true, room: [dimensions]int64{noLimit, noLimit, noLimit}}
		out.allowed.add(b.gone)
		out.forced.add(b.gone)
		c.kinds = append(c.kinds, out)
	}
	addClass(c, anyway, g)
}

func key(hw, img string, services []string) string {
	return hw + "\x00" + img + "\x00" + strings.Join(services, "\x00")
}
