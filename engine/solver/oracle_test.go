package solver_test

import (
	"math/big"
	"slices"
	"sort"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/solver"
)

// oracle solves a new cluster by exhaustive search, as docs/spec/solver.md defines the solution:
// all node layouts in the comparator's order, all vectors of counts from the lexicographically
// greatest on. It shares no code with the solver. tooBig means that there are too many
// possibilities to try.
func oracle(in solver.Input, comparator string) (layout model.Layout, found, tooBig bool) {
	t := in.Template
	services := slices.Clone(in.Wanted)
	sort.Strings(services)
	services = slices.Compact(services)
	k := len(services)
	bit := map[string]int{}
	for i, s := range services {
		bit[s] = i
	}
	mask := func(names []string) (m int, all bool) {
		all = true
		for _, n := range names {
			if b, ok := bit[n]; ok {
				m |= 1 << b
			} else {
				all = false
			}
		}
		return m, all
	}
	free := 0
	for i, s := range services {
		_, has := t.Constraints.Services[s]
		for _, set := range slices.Concat(t.Constraints.Layout.MustCoexist, t.Constraints.Layout.CantCoexist) {
			has = has || slices.Contains(set, s)
		}
		if !has {
			free |= 1 << i
		}
	}
	if s := t.Constraints.Size; s != nil && (s.Min != nil && in.Nodes < int(*s.Min) || s.Max != nil && in.Nodes > int(*s.Max)) {
		return nil, false, false
	}
	rat := func(v any) *big.Rat {
		switch v := v.(type) {
		case float64:
			r, _ := new(big.Rat).SetString(big.NewFloat(v).Text('f', 6))
			return r
		case string:
			r, _ := new(big.Rat).SetString(v)
			return r
		}
		return nil
	}
	type nodeLayout struct {
		hw, img string
		set     int
		cost    int64 // thousandths
	}
	var all []nodeLayout
	pick := func(asked, standard string) string {
		if asked != "" {
			return asked
		}
		return standard
	}
	wantHW, wantImg := pick(in.HardwareType, t.Defaults.HardwareType), pick(in.ImageType, t.Defaults.ImageType)
	for _, h := range in.HardwareTypes {
		e, ok := h.ProviderMap[in.Provider]
		if !ok || wantHW != "" && wantHW != h.Name || len(t.Compatibility.HardwareTypes) > 0 &&
			!slices.Contains(t.Compatibility.HardwareTypes, h.Name) {
			continue
		}
		cost := int64(0)
		if c := rat(e["cost"]); c != nil {
			c.Mul(c, big.NewRat(1000, 1))
			cost = c.Num().Int64()
		}
		for _, im := range in.ImageTypes {
			if _, ok := im.ProviderMap[in.Provider]; !ok || wantImg != "" && wantImg != im.Name ||
				len(t.Compatibility.ImageTypes) > 0 && !slices.Contains(t.Compatibility.ImageTypes, im.Name) {
				continue
			}
			for set := 1; set < 1<<k; set++ {
				if set&free != free {
					continue
				}
				ok := true
				for _, c := range t.Constraints.Layout.CantCoexist {
					if m, whole := mask(c); whole && len(c) > 0 && set&m == m {
						ok = false
					}
				}
				for _, c := range t.Constraints.Layout.MustCoexist {
					if m, _ := mask(c); set&m != 0 && set&m != m {
						ok = false
					}
				}
				var takes [3]*big.Rat
				for d := range takes {
					takes[d] = new(big.Rat)
				}
				for i, s := range services {
					if set>>i&1 == 0 {
						continue
					}
					c := t.Constraints.Services[s]
					if len(c.HardwareTypes) > 0 && !slices.Contains(c.HardwareTypes, h.Name) ||
						len(c.ImageTypes) > 0 && !slices.Contains(c.ImageTypes, im.Name) {
						ok = false
					}
					if r := in.Services[s].Resources; r != nil {
						for d, v := range []float64{r.VCPU, r.RAM, r.Disk} {
							takes[d].Add(takes[d], rat(v))
						}
					}
				}
				for d, key := range []string{"vcpu", "ram", "disk"} {
					if room := rat(e[key]); room != nil && takes[d].Cmp(room) > 0 {
						ok = false
					}
				}
				if ok {
					all = append(all, nodeLayout{h.Name, im.Name, set, cost})
				}
			}
		}
	}
	names := func(set int) []string {
		var out []string
		for i, s := range services {
			if set>>i&1 != 0 {
				out = append(out, s)
			}
		}
		return out
	}
	rank := func(list []string, n string) int {
		if i := slices.Index(list, n); i >= 0 {
			return i
		}
		return 1 << 20
	}
	worth := func(names []string) (n int64) {
		for _, s := range names {
			n++
			if in.Ranking != nil && in.Ranking.Worth[s] > 0 {
				n += in.Ranking.Worth[s] - 1
			}
		}
		return n
	}
	kindRank := func(hw, img string) int {
		if in.Ranking != nil {
			for i, k := range in.Ranking.Kinds {
				if k.HardwareType == hw && k.ImageType == img {
					return i
				}
			}
		}
		return 1 << 20
	}
	sort.SliceStable(all, func(i, j int) bool {
		a, b := all[i], all[j]
		na, nb := names(a.set), names(b.set)
		if x, y := worth(na), worth(nb); x != y {
			return x > y
		}
		if x, y := kindRank(a.hw, a.img), kindRank(b.hw, b.img); x != y {
			return x < y
		}
		p := t.Preferences
		if x, y := rank(p.HardwareTypes, a.hw), rank(p.HardwareTypes, b.hw); x != y {
			return x < y
		}
		if x, y := rank(p.ImageTypes, a.img), rank(p.ImageTypes, b.img); x != y {
			return x < y
		}
		if a.hw != b.hw {
			return a.hw < b.hw
		}
		if a.img != b.img {
			return a.img < b.img
		}
		return slices.Compare(na, nb) < 0
	})
	// The number of vectors.
	vectors := 1.0
	for i := range in.Nodes {
		vectors *= float64(len(all)+i) / float64(i+1)
	}
	if vectors > 150_000 {
		return nil, false, true
	}

	n := in.Nodes
	countOK := func(i, c int) bool {
		if c == 0 {
			return false
		}
		q := t.Constraints.Services[services[i]]
		z := q.Quantities
		if z.Min != nil && c < int(*z.Min) || z.Max != nil && c > int(*z.Max) || z.Odd && c%2 == 0 ||
			z.Step != nil && *z.Step > 0 && c%int(*z.Step) != 0 {
			return false
		}
		if z.Ratio != nil {
			if r := rat(string(z.Ratio.Min)); r != nil && big.NewRat(int64(c), int64(n)).Cmp(r) < 0 {
				return false
			}
			if r := rat(string(z.Ratio.Max)); r != nil && big.NewRat(int64(c), int64(n)).Cmp(r) > 0 {
				return false
			}
		}
		return true
	}
	allowed := make([][]bool, k)
	for i := range allowed {
		allowed[i] = make([]bool, n+1)
		for c := range allowed[i] {
			allowed[i][c] = countOK(i, c)
		}
	}
	type need struct{ of, min int }
	var needs []need
	impossible := false
	for _, s := range services {
		for _, r := range t.Constraints.Services[s].Requires {
			if b, ok := bit[r.Service]; ok {
				needs = append(needs, need{b, r.Min})
			} else if r.Min > 0 {
				impossible = true
			}
		}
	}
	if impossible {
		return nil, false, false
	}
	spread := func(word string, places int, counts []int) bool {
		if places == 0 {
			return true
		}
		var spreads []int
		for i, s := range services {
			if in.Services[s].Spread == word {
				spreads = append(spreads, i)
			}
		}
		if len(spreads) == 0 {
			return true
		}
		var nodes []int
		for l, c := range counts {
			for range c {
				nodes = append(nodes, all[l].set)
			}
		}
		per := make([][]int, places)
		for p := range per {
			per[p] = make([]int, k)
		}
		var try func(i int) bool
		try = func(i int) bool {
			if i == len(nodes) {
				for _, s := range spreads {
					lo, hi := n, 0
					for p := range per {
						lo, hi = min(lo, per[p][s]), max(hi, per[p][s])
					}
					if hi-lo > 1 {
						return false
					}
				}
				return true
			}
			for p := range per {
				for _, s := range spreads {
					per[p][s] += nodes[i] >> s & 1
				}
				ok := try(i + 1)
				for _, s := range spreads {
					per[p][s] -= nodes[i] >> s & 1
				}
				if ok {
					return true
				}
			}
			return false
		}
		return try(0)
	}
	form := func(counts []int) model.Layout {
		var l model.Layout
		for i, c := range counts {
			if c > 0 {
				l = append(l, model.NodeGroup{Count: c, HardwareType: all[i].hw, ImageType: all[i].img, Services: names(all[i].set)})
			}
		}
		return l
	}
	counts := make([]int, len(all))
	per := make([]int, k)
	valid := func() bool {
		for i := range per {
			if !allowed[i][per[i]] {
				return false
			}
		}
		for _, d := range needs {
			if per[d.of] < d.min {
				return false
			}
		}
		if !spread("zone", len(in.Zones), counts) || !spread("host", len(in.Hosts), counts) {
			return false
		}
		for _, x := range in.Exclude {
			if same(x, form(counts)) {
				return false
			}
		}
		return true
	}
	var best []int
	bestCost := int64(0)
	var walk func(at, left int, cost int64) bool // true: stop
	walk = func(at, left int, cost int64) bool {
		if left == 0 {
			if comparator == solver.ComparatorCost && best != nil && cost >= bestCost || !valid() {
				return false
			}
			best, bestCost = slices.Clone(counts), cost
			return comparator != solver.ComparatorCost
		}
		if at == len(all) {
			return false
		}
		for c := left; c >= 0; c-- {
			counts[at] = c
			for i := range per {
				if all[at].set>>i&1 != 0 {
					per[i] += c
				}
			}
			stop := walk(at+1, left-c, cost+int64(c)*all[at].cost)
			for i := range per {
				if all[at].set>>i&1 != 0 {
					per[i] -= c
				}
			}
			counts[at] = 0
			if stop {
				return true
			}
		}
		return false
	}
	walk(0, n, 0)
	if best == nil {
		return nil, false, false
	}
	return form(best), true, false
}

// same reports whether two layouts are equal regardless of the order of their groups.
func same(a, b model.Layout) bool { return canonical(a) == canonical(b) }

func canonical(l model.Layout) string {
	sum := map[string]int{}
	for _, g := range l {
		s := slices.Clone(g.Services)
		sort.Strings(s)
		sum[g.HardwareType+"/"+g.ImageType+"/"+strings.Join(s, ",")] += g.Count
	}
	var out []string
	for k, n := range sum {
		out = append(out, k+"="+big.NewInt(int64(n)).String())
	}
	sort.Strings(out)
	return strings.Join(out, " ")
}
