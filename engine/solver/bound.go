package solver

import (
	"math"
	"sort"
)

// bound computes an upper bound of the worth that a node can still gain, from the conflicts between
// items and from the capacity that they share.
type bound struct {
	coef []int64
	// byRatio holds, for each capacity, the items of positive worth, ordered by worth per unit of
	// that capacity, best first. It is nil for a capacity without a limit.
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
			// The products can exceed int64, so they are computed in floating point. Any order
			// gives a valid bound.
			return float64(coef[i])*float64(c.need[j][d]) > float64(coef[j])*float64(c.need[i][d])
		})
		b.byRatio[d] = items
	}
	return b
}

// reaches reports whether the free items can possibly add at least need.
func (b *bound) reaches(f *finder, free *set, room *[dimensions]int64, need int64) bool {
	if need <= 0 {
		return true
	}
	// The sum of all positive worth.
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

// knapsack returns an upper bound of the worth that fits into the room of one capacity; the last
// item counts in part. The items are ordered in floating point, so the order by ratio is exact only
// up to rounding. One unit is added to make up for it.
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

// cover reports whether need is still possible according to a cover of the free items by cliques of
// conflicting items: a node carries at most one item of each clique. The items with the fewest
// conflicts choose their cliques first. The worth of an item can be split between cliques.
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
