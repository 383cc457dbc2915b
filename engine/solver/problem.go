package solver

import "sort"

// problem is the counting problem to which every operation is reduced: choose a kind and a set of
// items for each node of each class, so that the number of nodes with each item lies in the item's
// domain. An item is a group of services that must share their nodes.
type problem struct {
	domains []domain
	weight  []int64 // worth of each item to the comparator: usually its number of services
	classes []*class
	// goals is the number of totals that are minimized, one after the other. The preference order
	// decides among layouts with the same totals. Each kind has a cost for every goal.
	goals int
}

// domain is the set of counts that an item may have: lo <= count <= hi and count = rem modulo mod.
type domain struct{ lo, hi, mod, rem int64 }

func (d domain) has(c int64) bool {
	return c >= d.lo && c <= d.hi && (c-d.rem)%d.mod == 0
}

// tight returns d with its bounds moved to the nearest counts that are in the domain.
func (d domain) tight() domain {
	d.lo = d.up(d.lo)
	d.hi = d.down(d.hi)
	return d
}

// up returns the least count >= c with the right remainder.
func (d domain) up(c int64) int64 { return c + mod(d.rem-c, d.mod) }

// down returns the greatest count <= c with the right remainder.
func (d domain) down(c int64) int64 { return c - mod(c-d.rem, d.mod) }

func mod(a, m int64) int64 {
	if a %= m; a < 0 {
		a += m
	}
	return a
}

// class is a number of nodes that are interchangeable before the choice.
type class struct {
	nodes int64
	// conflict[i] holds the items that cannot share a node with item i.
	conflict []set
	// together holds sets of three or more items that never share a node all at once.
	together []set
	// need is the amount of each capacity that each item takes from a node.
	need [][dimensions]int64
	// kinds are the options for a node of the class, most preferred first.
	kinds []kind
	// listed, unless nil, holds all permitted sets in the order of preference. It replaces the sets
	// that follow from the other fields. A class with listed has one kind only.
	listed []set
	// degree is the number of conflicts of each item. byDegree lists the items with the fewest
	// conflicts first. free is true if there are no conflicts.
	degree   []int
	byDegree []int32
	free     bool
	joint    set // items of together
}

// dimensions is the number of capacities: vcpu, ram, disk.
const dimensions = 3

// kind is a combination of hardware and image type for a node, with the items that the node may
// carry.
type kind struct {
	allowed set
	forced  set
	// room is the capacity left for items. noLimit means unlimited. Negative room means that the
	// services outside the items do not fit.
	room [dimensions]int64
	// bare is true if a node may carry no item at all.
	bare bool
	// rank is the position in the comparator's order, among kinds of all classes whose services
	// have the same worth.
	rank int
	// base is the worth of the services that the node carries in any case.
	base int64
	cost [maxGoals]int64
	// hw and img are indexes of world.hardware and world.images.
	hw, img int
}

const noLimit = int64(1) << 60

const maxGoals = 2

// column is one node layout: a class, a kind of that class and a set of items.
type column struct {
	class, kind int
	items       set
}

// prepare computes the tables that the searches use. It is called once.
func (p *problem) prepare() {
	for i := range p.domains {
		p.domains[i] = p.domains[i].tight()
	}
	for _, c := range p.classes {
		c.prepare(len(p.domains))
	}
	p.partition()
}

// partition tightens the domains if every node has exactly one item. Then the counts add up to the
// number of nodes, so that the remainder of each count follows from those of the others. Without
// this step the search tries all counts to find, for example, that even numbers do not add up to an
// odd one.
func (p *problem) partition() {
	if len(p.classes) != 1 || p.classes[0].listed != nil {
		return
	}
	c := p.classes[0]
	for i := range c.kinds {
		if c.kinds[i].bare {
			return
		}
	}
	for _, d := range c.degree {
		if d != len(p.domains)-1 {
			return
		}
	}
	for i := range p.domains {
		g, rest := int64(0), c.nodes
		for j, d := range p.domains {
			if j != i {
				g = gcd(g, d.mod)
				rest -= d.rem
			}
		}
		d := &p.domains[i]
		if g == 0 {
			g = max(1, c.nodes) // there is only one item
		}
		rem, m, ok := meet(d.rem, d.mod, mod(rest, g), g)
		if !ok {
			d.lo, d.hi = 1, 0
			return
		}
		d.rem, d.mod = rem, m
		*d = d.tight()
	}
}

func (c *class) prepare(items int) {
	if c.conflict == nil {
		c.conflict = make([]set, items)
	}
	if c.need == nil {
		c.need = make([][dimensions]int64, items)
	}
	for i := range c.kinds {
		k := &c.kinds[i]
		if c.listed != nil {
			for j := range items {
				k.allowed.add(j)
			}
			continue
		}
		for d := range k.room {
			if k.room[d] < 0 { // the services outside the items do not fit
				k.allowed, k.forced, k.bare = set{}, setOf(0), false
			}
		}
		for j := range items {
			for d := range k.room {
				if c.need[j][d] > k.room[d] {
					k.allowed.drop(j)
				}
			}
		}
	}
	c.degree = make([]int, items)
	c.byDegree = make([]int32, items)
	c.free = true
	for i := range c.together {
		for w := range c.joint {
			c.joint[w] |= c.together[i][w]
		}
	}
	for i := range items {
		c.degree[i], c.byDegree[i] = c.conflict[i].size(), int32(i)
		c.free = c.free && c.degree[i] == 0
	}
	sort.SliceStable(c.byDegree, func(x, y int) bool { return c.degree[c.byDegree[x]] < c.degree[c.byDegree[y]] })
}
