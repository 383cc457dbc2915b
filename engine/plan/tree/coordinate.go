package tree

import (
	"errors"
	"slices"

	"github.com/coopr/coopr/engine/plan"
)

// Asset is what a step works on (docs/spec/plans.md, top): services on a node, or with
// Whole the node itself.
type Asset struct {
	Node     string
	Services []string
	Whole    bool
}

// Conflicts says whether two assets share anything: a service on a node, or a
// node that one of them makes or takes away. Two steps of two plans that
// conflict are not worked on at once.
func (a Asset) Conflicts(b Asset) bool {
	if a.Node == "" || a.Node != b.Node {
		return false
	}
	return a.Whole || b.Whole || slices.ContainsFunc(a.Services, func(s string) bool { return slices.Contains(b.Services, s) })
}

func assetOf(g *plan.Graph, step uint32) Asset {
	var a Asset
	for v := range g.In(plan.Step(step)) {
		a.Node = g.NodeID(int(v))
		switch s := g.ServiceName(int(v)); {
		case s == "":
			a.Whole = true
		case !slices.Contains(a.Services, s):
			a.Services = append(a.Services, s)
		}
	}
	return a
}

// ErrNoPlans says that there is nothing to coordinate.
var ErrNoPlans = errors.New("a coordinator needs at least one plan")

// dirty are the assets at work, by node, each with the plan that works on it.
type dirty map[string][]claim

type claim struct {
	asset Asset
	plan  int
}

func (d dirty) add(a Asset, plan int) {
	if a.Node != "" {
		d[a.Node] = append(d[a.Node], claim{a, plan})
	}
}

// blocks says whether another plan than this works on something of the asset.
func (d dirty) blocks(a Asset, plan int) bool {
	return slices.ContainsFunc(d[a.Node], func(c claim) bool { return c.plan != plan && c.asset.Conflicts(a) })
}

// Coordinate gives the steps that each of several plans of one cluster may work
// on, in order of their priority: what one plan works on, or is given now, no
// other gets (docs/spec/plans.md §4). A step that runs and is not ready yet is
// protected too, unlike in the SDK (§"What to do differently" 7). Views without
// assets conflict with nothing.
func Coordinate(plans []*View) ([][]uint32, error) {
	if len(plans) == 0 {
		return nil, ErrNoPlans
	}
	busy := dirty{}
	for i, v := range plans {
		if v.Interrupted || v.Asset == nil {
			continue
		}
		for s := range v.Steps {
			if st := v.Steps[s].Status; st == Prepared || st == Starting || st == Started {
				busy.add(v.Asset(uint32(s)), i)
			}
		}
	}
	out := make([][]uint32, len(plans))
	for i, v := range plans {
		if v.Asset == nil {
			out[i] = v.Candidates(nil)
			continue
		}
		out[i] = v.Candidates(func(s uint32) bool { return len(busy) > 0 && busy.blocks(v.Asset(s), i) })
		for _, s := range out[i] {
			busy.add(v.Asset(s), i)
		}
	}
	return out, nil
}
