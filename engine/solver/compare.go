package solver

import (
	"fmt"
	"math/big"
	"slices"
	"sort"

	"github.com/coopr/coopr/engine/model"
)

// compare determines the comparator and the costs, ranking and preferences that it needs.
func (w *world) compare() {
	asked := w.in.comparator()
	w.comparator = asked
	switch {
	case asked == ComparatorOriginal, asked != "" && !w.in.Change.chooses():
	case asked == ComparatorCost:
		w.costByHardware(w.fresh > 0)
	case asked == "":
		w.comparator = ComparatorOriginal
		if w.costByHardware(false) {
			w.comparator = ComparatorCost
		}
	case w.in.Ranking != nil && w.in.Ranking.Comparator == asked:
		w.ranking = w.in.Ranking
		w.checkRanking()
	default:
		path := "comparator"
		if w.in.Comparator == "" {
			path = "template.comparator"
		}
		w.fault(path, "there is no comparator %q: use %q or %q, or install a plugin that offers it", asked, ComparatorOriginal, ComparatorCost)
	}
	if w.in.Change.Kind == AddServices {
		w.touch = w.in.Change.Touch
		if w.touch == "" {
			w.touch = TouchFewest
			if asked == ComparatorOriginal {
				w.touch = TouchMost
			}
		}
	}
}

// usable returns the pairs of types that new nodes may have, as far as this is known before
// services are placed.
func (w *world) usable() []pair {
	may := func(name, wanted string, offered bool, compatible []string) bool {
		return offered && (wanted == "" || wanted == name) && (len(compatible) == 0 || slices.Contains(compatible, name))
	}
	c := &w.in.Template.Compatibility
	var out []pair
	for h := range w.hardware {
		for i, img := range w.images {
			if may(w.hardware[h].name, w.wantedHW, w.offeredHW[h], c.HardwareTypes) && may(img, w.wantedImg, w.offeredImg[i], c.ImageTypes) {
				out = append(out, pair{h, i})
			}
		}
	}
	return out
}

// costByHardware lets the costs of the hardware types count. It returns false if a usable hardware
// type has no cost; if must is true, that is a fault.
func (w *world) costByHardware(must bool) bool {
	costs := map[pair]*big.Rat{}
	for _, p := range w.usable() {
		m := &w.hardware[p.hw]
		if m.cost == nil && must {
			w.fault(
				"comparator",
				"comparator %q needs a cost for every usable hardware type, and %s has none for provider %s: add \"cost\" to its providermap",
				ComparatorCost,
				m.name,
				w.provider,
			)
		}
		costs[p] = m.cost
	}
	return w.count(costs, "hardwaretypes")
}

// count lets costs count. It returns false if no pair of types is usable or if a cost is missing.
func (w *world) count(costs map[pair]*big.Rat, path string) bool {
	pairs := w.usable()
	var list []*big.Rat
	for _, p := range pairs {
		if costs[p] == nil {
			return false
		}
		list = append(list, costs[p])
	}
	if w.fresh == 0 || len(list) == 0 {
		return len(list) > 0 // the cost of existing nodes does not change
	}
	n, ok := whole(list)
	if !ok {
		w.fault(path, "the costs are too great, or too finely divided, to be added up exactly")
		return false
	}
	// The least cost is common to all nodes and makes no difference.
	least, g := slices.Min(n), int64(0)
	for i := range n {
		n[i] -= least
		g = gcd(g, n[i])
	}
	w.costs = map[pair]int64{}
	for i, p := range pairs {
		w.costs[p] = n[i] / max(1, g)
	}
	return true
}

// checkRanking records a fault for invalid values in a plugin's ranking, and lets its costs count.
func (w *world) checkRanking() {
	r := w.ranking
	at := fmt.Sprintf("comparator %s", r.Comparator)
	for _, s := range sortedKeys(r.Worth) {
		if n := r.Worth[s]; n < 1 || n > model.MaxWorth {
			w.fault(at, "its plugin says that service %s is worth %d: a worth is from 1 to %d", s, n, int64(model.MaxWorth))
		}
	}
	costs := map[pair]*big.Rat{}
	for _, k := range r.Kinds {
		if k.Cost == "" {
			continue
		}
		c, ok := decimal(k.Cost)
		if !ok || c.Sign() < 0 {
			w.fault(
				at,
				"its plugin says that a node of %s with %s costs %q: a cost is a decimal number from 0 on",
				k.HardwareType,
				k.ImageType,
				k.Cost,
			)
			continue
		}
		h := slices.IndexFunc(w.hardware, func(m machine) bool { return m.name == k.HardwareType })
		if i := slices.Index(w.images, k.ImageType); h >= 0 && i >= 0 {
			costs[pair{h, i}] = c
		}
	}
	w.count(costs, at)
}

// worthOf returns the total worth of services.
func (w *world) worthOf(services []string) int64 {
	n := int64(len(services))
	if w.ranking == nil {
		return n
	}
	for _, s := range services {
		if v := w.ranking.Worth[s]; v > 0 {
			n += v - 1
		}
	}
	return n
}

// rankPairs sorts pairs of types by the plugin's order, then by the template's preferences, then by
// names.
func (w *world) rankPairs(pairs []pair) {
	rank := func(list []string, name string) int {
		if i := slices.Index(list, name); i >= 0 {
			return i
		}
		return len(list)
	}
	given := map[[2]string]int{}
	if w.ranking != nil {
		for i, k := range slices.Backward(w.ranking.Kinds) { // if a pair is listed twice, its first position counts
			given[[2]string{k.HardwareType, k.ImageType}] = i - len(w.ranking.Kinds)
		}
	}
	pref := &w.in.Template.Preferences
	sort.Slice(pairs, func(i, j int) bool {
		a, b := pairs[i], pairs[j]
		ha, hb := w.hardware[a.hw].name, w.hardware[b.hw].name
		ia, ib := w.images[a.img], w.images[b.img]
		if x, y := given[[2]string{ha, ia}], given[[2]string{hb, ib}]; x != y {
			return x < y
		}
		if x, y := rank(pref.HardwareTypes, ha), rank(pref.HardwareTypes, hb); x != y {
			return x < y
		}
		if x, y := rank(pref.ImageTypes, ia), rank(pref.ImageTypes, ib); x != y {
			return x < y
		}
		if ha != hb {
			return ha < hb
		}
		return ia < ib
	})
}
