package solver

import "sort"

// problem is the counting problem that every operation comes down to: choose
// for each node of each class a kind and a set of items, so that every item's
// number of nodes lies in its domain. An item is a group of services that must
// share their nodes.
type problem struct {
	domains []domain
	weight  []int64 // what each item is worth to the comparator: how many services it has, mostly
	classes []*class
	// goals are totals to be made as small as possible, one after the other,
	// before the preference order has its say; a kind has a cost for each.
	goals int
}

// domain is the set of counts an item may have: lo <= count <= hi and
// count = rem modulo mod.
type domain struct{ lo, hi, mod, rem int64 }

func (d domain) has(c int64) bool {
	return c >= d.lo && c <= d.hi && (c-d.rem)%d.mod == 0
}

// tight moves the bounds to the nearest counts that are in the domain.
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

// class is a number of nodes between which nothing makes a difference before
// the choice.
type class struct {
	nodes int64
	// conflict[i] are the items that cannot share a node with item i.
	conflict []set
	// together are sets of three and more items of which one must be missing.
	together []set
	// need is what each item takes of a node's capacities.
	need [][dimensions]int64
	// kinds are what a node may become, most preferred first.
	kinds []kind
	// listed, where it is not nil, are all the sets there are, in the order of
	// preference, instead of those that follow from the rest (one kind only).
	listed []set
	// degree counts the conflicts of each item, byDegree has the items with the
	// fewest first, and free says that there are none at all.
	degree   []int
	byDegree []int32
	free     bool
	joint    set // items of together
}

// dimensions of capacity: vcpu, ram, disk.
const dimensions = 3

// kind is a hardware and image type a node may have, and what it may carry.
type kind struct {
	allowed set
	forced  set
	// room left for items; negative numbers are not used: unlimited is noLimit.
	room [dimensions]int64
	// bare is true if a node may carry no item at all.
	bare bool
	// rank is the place in the comparator's order among kinds of all classes
	// whose services are worth the same.
	rank int
	// base is what the services that are on the node anyway are worth.
	base int64
	cost [maxGoals]int64
	// hw and img are indexes of the caller's lists.
	hw, img int
}

const noLimit = int64(1) << 60

const maxGoals = 2

// column is one node layout: a class's nodes of one kind with one set.
type column struct {
	class, kind int
	items       set
}

// prepare computes what the searches look up. It is called once.
func (p *problem) prepare() {
	for i := range p.domains {
		p.domains[i] = p.domains[i].tight()
	}
	for _, c := range p.classes {
		c.prepare(len(p.domains))
	}
	p.partition()
}

// partition tightens the domains where every node has exactly one item: then
// the counts add up to the nodes, and each count's remainder follows from those of
// the others. Without it the search would try all counts to find, say, that
// even numbers do not add up to an odd one.
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
			g = max(1, c.nodes) // it is the only one
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
			if k.room[d] < 0 { // what is on the node anyway does not fit
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
