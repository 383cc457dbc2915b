package operation

import (
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/planner"
)

var (
	provision = []model.Action{model.Create, model.Confirm, model.Bootstrap}
	build     = []model.Action{model.Install, model.Configure, model.Initialize, model.Start}
)

// goal is what becomes of one service on one node.
type goal struct {
	leaves    bool // it is taken off
	fresh     bool // it is put on
	reinstall bool // it is built anew in its place
	// runs says whether it is to run; nil: as it does now.
	runs *bool
}

// wanted gives the tasks that bring a service from its state to its goal
// (spec/planner.md, "Operations" and "Transactions" 9). touched says that any
// task ever ran for it on the node.
func wanted(state string, touched bool, g goal) []model.Action {
	running := mayRun(state)
	switch {
	case g.leaves && (!touched || state == model.Remove.String()):
		return nil
	case g.leaves && running:
		return []model.Action{model.Stop, model.Remove}
	case g.leaves:
		return []model.Action{model.Remove}
	case g.fresh:
		return build
	}
	run := running
	if g.runs != nil {
		run = *g.runs
	}
	var out []model.Action
	if missing := !touched || strings.HasPrefix(state, model.Remove.String()); missing || strings.HasPrefix(state, model.Install.String()+"?") {
		if out = build; !run {
			out = build[:3]
		}
		return out
	}
	switch {
	case g.reinstall:
		if running {
			out = append(out, model.Stop)
		}
		out = append(out, model.Install, model.Configure)
		if run {
			out = append(out, model.Start)
		}
	case run && state != model.Start.String():
		if running {
			out = append(out, model.Stop) // whether it runs is not known
		}
		out = append(out, model.Start)
	case !run && running:
		out = append(out, model.Stop)
	}
	return out
}

// mayRun says whether a service may run whose last task left this state.
func mayRun(state string) bool {
	return strings.HasPrefix(state, model.Start.String()) || state == model.Stop.String()+"?"
}

// plannedNode is a node as planning sees it.
func plannedNode(n *model.Node) planner.Node {
	return planner.Node{ID: n.ID, Number: n.Number, Services: n.Services, States: n.States, Created: n.Created}
}
