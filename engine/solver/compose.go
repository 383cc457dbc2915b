package solver

import (
	"fmt"
	"math/big"
	"slices"
	"sort"
	"strings"

	"github.com/coopr/coopr/engine/model"
)

// answer converts a solution to an Answer.
func (w *world) answer(s *solution) *Answer {
	a := &Answer{Services: w.services, Comparator: w.comparator}
	type line struct {
		model.NodeGroup
		existing int
		rank     int
	}
	var lines []*line
	at := map[string]*line{}
	removed := map[*ExistingNode]bool{}
	for _, n := range s.removed {
		removed[n] = true
		a.Removed = append(a.Removed, n.ID)
	}
	if w.in.Change.Kind == Shrink && len(w.in.Change.Victims) > 0 {
		a.Removed = slices.Clone(w.in.Change.Victims)
	}
	// The existing nodes of a class take its columns in turn, newest first.
	next := make([]int, len(s.classes))
	lineOf := make([]*line, len(s.counts))
	for i, c := range s.counts {
		k := &s.classes[c.class].kinds[c.kind]
		services := s.services(&c.column)
		g := model.NodeGroup{Count: int(c.n), HardwareType: w.hardware[k.hw].name, ImageType: w.images[k.img], Services: services}
		id := key(g.HardwareType, g.ImageType, services)
		l := at[id]
		if l == nil {
			l = &line{NodeGroup: model.NodeGroup{HardwareType: g.HardwareType, ImageType: g.ImageType, Services: services}, rank: k.rank}
			at[id] = l
			lines = append(lines, l)
		}
		l.Count += g.Count
		lineOf[i] = l
		old := s.groups[c.class]
		if old == nil {
			a.New = append(a.New, g)
			continue
		}
		l.existing += g.Count
		var add []string
		for _, n := range services {
			if !slices.Contains(old.services, n) {
				add = append(add, n)
			}
		}
		for left := c.n; left > 0; next[c.class]++ {
			n := old.nodes[next[c.class]]
			if removed[n] {
				continue
			}
			left--
			remove := w.taken(n)
			if len(add)+len(remove) > 0 {
				a.Changed = append(a.Changed, NodeChange{ID: n.ID, Number: n.Number, Add: add, Remove: remove})
			}
		}
	}
	if w.in.Change.Kind == Replace {
		w.replaced(a)
	}
	sort.SliceStable(lines, func(i, j int) bool {
		x, y := lines[i], lines[j]
		if a, b := w.worthOf(x.Services), w.worthOf(y.Services); a != b {
			return a > b
		}
		if x.rank != y.rank {
			return x.rank < y.rank
		}
		return slices.Compare(x.Services, y.Services) < 0
	})
	sort.Slice(a.Changed, func(i, j int) bool { return a.Changed[i].Number < a.Changed[j].Number })
	total := new(big.Rat)
	for _, l := range lines {
		a.Layout = append(a.Layout, l.NodeGroup)
		g := Group{Nodes: l.Count, Existing: l.existing}
		if c := w.costOf(l.HardwareType); c != nil {
			c.Mul(c, new(big.Rat).SetInt64(int64(l.Count)))
			g.Cost = &Cost{PerHour: text(c)}
			if total != nil {
				total.Add(total, c)
			}
		} else {
			total = nil
		}
		a.Groups = append(a.Groups, g)
	}
	if total != nil {
		a.Cost = &Cost{PerHour: text(total)}
	}
	a.Tight = w.tight(a.Layout)
	for _, p := range s.places {
		p.Group = slices.Index(lines, lineOf[p.Group])
		a.Placement = append(a.Placement, p)
	}
	return a
}

// replaced fills the answer of a replacement: the victims are removed, and each gets a new node
// with the same types and services.
func (w *world) replaced(a *Answer) {
	a.Removed = slices.Clone(w.in.Change.Victims)
	for _, g := range w.groups {
		n := 0
		for _, node := range g.nodes {
			if slices.Contains(a.Removed, node.ID) {
				n++
			}
		}
		if n > 0 {
			a.New = append(a.New, model.NodeGroup{Count: n, HardwareType: g.hw, ImageType: g.img, Services: g.services})
		}
	}
}

// taken returns the services that the operation removes from a node.
func (w *world) taken(n *ExistingNode) []string {
	if w.in.Change.Kind != RemoveServices {
		return nil
	}
	i := slices.IndexFunc(w.in.Existing, func(e ExistingNode) bool { return e.ID == n.ID && e.Number == n.Number })
	var out []string
	for _, s := range sortedUnique(w.in.Existing[i].Services) {
		if slices.Contains(w.in.Change.Services, s) {
			out = append(out, s)
		}
	}
	return out
}

func (w *world) costOf(hw string) *big.Rat {
	for i := range w.hardware {
		if w.hardware[i].name == hw && w.hardware[i].cost != nil {
			return new(big.Rat).Set(w.hardware[i].cost)
		}
	}
	return nil
}

// text returns a decimal without trailing zeros. The text is exact, because costs are decimals.
func text(r *big.Rat) string {
	n, _ := r.FloatPrec()
	s := r.FloatString(n)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

// tight returns the constraints that the layout satisfies at their limit. Equal minimum and maximum
// of a service form one constraint, which is listed for new clusters only.
func (w *world) tight(l model.Layout) []Constraint {
	most := map[string]int64{}
	for i := range w.rules {
		if r := &w.rules[i]; r.kind == ruleMax && strings.HasSuffix(r.Path, ".quantities.max") {
			most[r.service] = r.n
		}
	}
	fixed := map[string]bool{}
	count := map[string]int64{}
	for _, g := range l {
		for _, s := range g.Services {
			count[s] += int64(g.Count)
		}
	}
	var out []Constraint
	for i := range w.rules {
		r := &w.rules[i]
		at := false
		if n, ok := most[r.service]; ok && n == r.n && r.kind == ruleMin && strings.HasSuffix(r.Path, ".quantities.min") {
			fixed[r.service] = true
			if w.in.Change.Kind == Create {
				out = append(out, Constraint{Path: strings.TrimSuffix(r.Path, ".min"),
					Words: fmt.Sprintf("%s must be on exactly %s", r.service, nodesWord(int(n)))})
			}
			continue
		}
		if r.kind == ruleMax && fixed[r.service] {
			continue
		}
		switch r.kind {
		case ruleSizeMin, ruleSizeMax:
			at = w.nodes == r.n
		case ruleMin, ruleMax:
			at = count[r.service] == r.n
		case ruleRequires:
			at = count[r.other] == r.n
		default:
		}
		if at {
			out = append(out, r.Constraint)
		}
	}
	return out
}
