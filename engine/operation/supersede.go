package operation

import (
	"cmp"
	"slices"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/problem"
)

// targets reports whether operations of this type bring the nodes of a cluster to a new target, and neither make nor remove nodes.
func targets(t model.OperationType) bool {
	return t == model.OpConfigure || t == model.OpUpgrade || t == model.OpSyncTemplate
}

// MaySupersede returns nil if an operation of type next may take the place of open, whose plan is g. Otherwise it returns a
// problem.Conflict that names open and the reason.
//
// Both must bring nodes to a target. The nodes stay as open left them, and the next plan begins there: what stands at the new target is not
// repeated. A machine that is half made or half removed, or a half rollback, is no such state.
func MaySupersede(next model.OperationType, open *model.Operation, g *plan.Graph) error {
	refuse := func(why string) error {
		return problem.New(problem.Conflict, "operation %s (%s) is %s and cannot be superseded: %s; wait for it, or abort it", open.ID, open.Type,
			open.Status, why)
	}
	machines := func(a model.Action) bool { return a == model.Create || a == model.Delete }
	switch {
	case !targets(next):
		return refuse("only configure, upgrade and sync-template take the place of another operation")
	case open.SupersededBy != "":
		return refuse("operation " + open.SupersededBy + " takes its place as soon as its running tasks have ended")
	case !targets(open.Type):
		return refuse("only a configure, upgrade or sync-template can be")
	case open.Status != model.OpRunning && open.Status != model.OpPaused:
		return refuse("its end is under way")
	case g == nil || slices.ContainsFunc(g.Action, machines):
		return refuse("it makes or removes machines")
	}
	return nil
}

// Fitting returns the tasks of a superseded plan that stay done in the plan g that takes its place, in their order. These are the tasks of
// each service on a node that are all done, where g has nothing left to do with the service there or with the node itself. With whole, g
// must have nothing left to do on the node at all, because a step of g is everything on its node.
func Fitting(old *plan.State, g *plan.Graph, whole bool) []uint32 {
	type slot struct{ node, service string }
	left := map[slot]bool{} // what g does, and what old left undone
	mark := func(h *plan.Graph, v int) {
		at := slot{h.NodeID(v), h.ServiceName(v)}
		left[at] = true
		if whole {
			left[slot{at.node, ""}] = true
		}
	}
	for v, a := range g.Action {
		if a != model.Barrier {
			mark(g, v)
		}
	}
	for v, a := range old.Graph.Action {
		if a != model.Barrier && old.Status(uint32(v)) != model.TaskSucceeded {
			mark(old.Graph, v)
		}
	}
	var out []uint32
	for v, a := range old.Graph.Action {
		at := slot{old.Graph.NodeID(v), old.Graph.ServiceName(v)}
		if a != model.Barrier && at.service != "" && !left[at] && !left[slot{at.node, ""}] {
			out = append(out, uint32(v))
		}
	}
	return out
}

// takeOver adds to the graph the tasks of the superseded plan that fit, as Done, so that their steps are shown, and can be repeated.
func (p *Prepared) takeOver(old *plan.State) error {
	if old == nil {
		return nil
	}
	fits := Fitting(old, p.Graph, p.rolled() || p.templatePlan() == nil && p.upgrades())
	if len(fits) == 0 {
		return nil
	}
	nodes, services := slices.Clone(p.Graph.Nodes), slices.Clone(p.Graph.Services)
	index := func(names *[]string) func(string) int {
		places := map[string]int{}
		for i, name := range *names {
			places[name] = i
		}
		return func(name string) int {
			i, ok := places[name]
			if !ok {
				i = len(*names)
				places[name], *names = i, append(*names, name)
			}
			return i
		}
	}
	nodeOf, serviceOf := index(&nodes), index(&services)
	for _, v := range fits {
		nodeOf(old.Graph.NodeID(int(v)))
		serviceOf(old.Graph.Entry(int(v)))
	}
	b := plan.NewBuilder(nodes, services)
	for v, a := range p.Graph.Action {
		b.Task(a, int(p.Graph.Node[v]), int(p.Graph.Service[v]))
		for _, w := range p.Graph.Next(v) {
			b.Edge(uint32(v), w)
		}
	}
	at := map[uint32]uint32{}
	for _, v := range fits {
		at[v] = b.Task(old.Graph.Action[v], nodeOf(old.Graph.NodeID(int(v))), serviceOf(old.Graph.Entry(int(v))))
		p.Done = append(p.Done, at[v])
	}
	for _, v := range fits {
		for _, w := range old.Graph.Next(int(v)) {
			if to, ok := at[w]; ok && old.Graph.NodeID(int(w)) == old.Graph.NodeID(int(v)) {
				b.Edge(at[v], to)
			}
		}
	}
	chained(old.Graph, fits, func(v, w uint32) { b.Edge(at[v], at[w]) })
	g, err := b.Build()
	p.Graph = g
	return err
}

// chained calls edge for each two tasks of a service on a node that follow each other. In the superseded plan their order may come from
// barriers and from tasks of other nodes, which are not taken over.
func chained(g *plan.Graph, tasks []uint32, edge func(v, w uint32)) {
	last := map[[2]string]uint32{}
	for _, v := range slices.SortedStableFunc(slices.Values(tasks), func(v, w uint32) int { return cmp.Compare(g.Rank[w], g.Rank[v]) }) {
		at := [2]string{g.NodeID(int(v)), g.ServiceName(int(v))}
		if before, ok := last[at]; ok {
			edge(before, v)
		}
		last[at] = v
	}
}
