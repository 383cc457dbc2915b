package solver

import (
	"math"
	"sort"
)

// bound tells how much of some worth a node can still take on: an upper bound,
// from the conflicts between items and from the room that they share.
type bound struct {
	coef []int64
	// byRatio are the items worth something, by worth for each unit of a
	// capacity, the best first; nil where that capacity has no limit.
	byRatio [dimensions][]int32
}

func newBound(c *class, k *kind, coef []int64) bound {
	b := bound{coef: coef}
	for d := range k.room {
		if k.room[d] >= noLimit/2 {
			continue
		}
		var items []int32
		for i, v := range coef {
			if v > 0 {
				items = append(items, int32(i))
			}
		}
		sort.SliceStable(items, func(x, y int) bool {
			i, j := items[x], items[y]
			// Worth can be great: floating point, as any order gives a bound.
			return float64(coef[i])*float64(c.need[j][d]) > float64(coef[j])*float64(c.need[i][d])
		})
		b.byRatio[d] = items
	}
	return b
}

// reaches reports whether the free items may bring at least need.
func (b *bound) reaches(f *finder, free *set, room *[dimensions]int64, need int64) bool {
	if need <= 0 {
		return true
	}
	// All that is worth something.
	sum := int64(0)
	n := 0
	free.each(func(i int) bool {
		if v := b.coef[i]; v > 0 {
			sum += v
			f.rest[i] = v
			n++
		} else {
			f.rest[i] = 0
		}
		return true
	})
	if sum < need {
		return false
	}
	for d, items := range b.byRatio {
		if items != nil && b.knapsack(f.c, items, d, free, room[d]) < need {
			return false
		}
	}
	if n < 2 || f.c.free {
		return true
	}
	return b.cover(f, free, need)
}

// knapsack fills the room of one capacity, the last item in part. The items
// are in the order of floating point, so the bound is that of the best ratio
// for what is left only up to its rounding: one unit a step is added for it.
func (b *bound) knapsack(c *class, items []int32, d int, free *set, room int64) int64 {
	total := int64(0)
	for _, i := range items {
		if !free.has(int(i)) {
			continue
		}
		need, v := c.need[i][d], b.coef[i]
		if need <= room {
			room -= need
			total += v
			continue
		}
		part := float64(v) * float64(room) / float64(need)
		return total + int64(math.Ceil(part*(1+1e-9))) + 1
	}
	return total
}

// cover reports whether a cover of the free items by cliques of conflicting ones leaves need
// within reach: of each clique a node has one item at most. The items with the fewest
// conflicts choose their cliques first, and an item's worth may be shared between cliques.
func (b *bound) cover(f *finder, free *set, need int64) bool {
	sum := int64(0)
	for _, v := range f.c.byDegree {
		i := int(v)
		if !free.has(i) {
			continue
		}
		for f.rest[i] > 0 {
			clique := f.scratch[:0]
			clique = append(clique, v)
			least := f.rest[i]
			around := f.c.conflict[i].and(free)
			around.each(func(j int) bool {
				if f.rest[j] <= 0 {
					return true
				}
				for _, o := range clique[1:] {
					if !f.c.conflict[j].has(int(o)) {
						return true
					}
				}
				clique = append(clique, int32(j))
				least = min(least, f.rest[j])
				return true
			})
			for _, j := range clique {
				f.rest[j] -= least
			}
			f.scratch = clique
			if sum += least; sum >= need {
				return true
			}
		}
	}
	return sum >= need
}
