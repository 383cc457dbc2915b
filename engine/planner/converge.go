package planner

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/coopr/coopr/engine/model"
)

// OpConverge is the operation that plans the tasks in Input.Wanted, which lead from the current
// state to a target state: a rollback, a newer version of a template, or nodes that come while
// others go. The planner only orders these tasks.
const OpConverge model.OperationType = "converge"

// Wanted holds the actions that OpConverge plans on one node. Their order does not matter: the node
// goes through STOP, REMOVE, DELETE, CREATE, CONFIRM, BOOTSTRAP, INSTALL, CONFIGURE, INITIALIZE,
// START. DELETE with CREATE replaces the node.
type Wanted struct {
	// Node holds CREATE, CONFIRM, BOOTSTRAP, DELETE.
	Node []model.Action
	// Services holds the other actions, by service. Node.Services must name both the services that
	// go and those that come. Actions that a service does not define are skipped. New actions on a
	// node wait until all services that leave it are removed.
	Services map[string][]model.Action
}

var (
	// leaveChain and createChain together are the order of actions on a node in OpConverge.
	leaveChain   = []model.Action{model.Stop, model.Remove, model.Delete}
	leaveActions = maskOf(leaveChain...)
	comeActions  = maskOf(createChain...)
)

// goes reports whether the wanted actions remove a service from its node for good.
func goes(wanted mask) bool { return wanted&bit(model.Remove) != 0 && wanted&comeActions == 0 }

// checkWanted records the faults of Input.Wanted.
func (g *grid) checkWanted(ids map[string]bool, faults *model.Faults) {
	in := g.in
	if in.Operation != OpConverge {
		if in.Wanted != nil {
			faults.Add("wanted", fmt.Sprintf("operation %s finds its tasks itself: only %s takes those that are wanted", in.Operation, OpConverge))
		}
		return
	}
	if in.PlannedNodes != nil || in.PlannedServices != nil || in.Restart || in.Graceful || in.Compat {
		faults.Add(
			"operation",
			fmt.Sprintf("%s plans the differences between two states: "+
				"it excludes planned nodes and services, restart, graceful and compat", OpConverge),
		)
	}
	var found model.Faults
	for id := range in.Wanted {
		if !ids[id] {
			found.Add("wanted."+id, "node "+id+" is not in the cluster")
		}
	}
	on := make([]int, len(g.names)) // for each service, the last visited node that carries it, plus one
	for i := range in.Nodes {
		w, ok := in.Wanted[in.Nodes[i].ID]
		if !ok {
			continue
		}
		for _, s := range in.Nodes[i].Services {
			on[g.byName.index[s]] = i + 1
		}
		g.checkNode(&in.Nodes[i], w, func(service string) bool {
			s, ok := g.byName.index[service]
			return ok && on[s] == i+1
		}, &found)
	}
	slices.SortStableFunc(found, func(a, b *model.Fault) int { return cmp.Compare(a.Path, b.Path) })
	*faults = append(*faults, found...)
}

func (g *grid) checkNode(n *Node, w Wanted, carries func(service string) bool, faults *model.Faults) {
	fault := func(path, message string) { faults.Add("wanted."+n.ID+path, message) }
	whole := mask(0)
	for i, a := range w.Node {
		if !a.PerNode() {
			fault(fmt.Sprintf(".node[%d]", i), fmt.Sprintf("%s is not an action of a whole node: name the service", a))
			continue
		}
		whole |= bit(a)
	}
	leaves := whole&maskOf(model.Create, model.Delete) == bit(model.Delete)
	isNew := whole&maskOf(model.Create, model.Delete) == bit(model.Create)
	if leaves && whole&comeActions != 0 {
		fault(".node", "node "+n.ID+" is deleted and not created again, so that nothing more can be done on it")
	}
	for service, actions := range w.Services {
		if !carries(service) {
			fault(".services."+service, "service "+service+" is not on node "+n.ID)
		}
		m := mask(0)
		for i, a := range actions {
			if a < model.Install || a > model.Remove {
				fault(fmt.Sprintf(".services.%s[%d]", service, i), fmt.Sprintf("%s is not an action of a service", a))
				continue
			}
			m |= bit(a)
		}
		switch {
		case leaves && m&comeActions != 0:
			fault(".services."+service, "node "+n.ID+" is deleted and not created again, so that its services can only be stopped and removed")
		case isNew && m&leaveActions != 0:
			fault(".services."+service, "node "+n.ID+" is created and not deleted before, so that it has nothing to stop or remove")
		}
	}
}

// converge returns the wanted tasks in two phases: tasks that leave, then tasks that come. The
// second phase continues from the end of the first.
func (g *grid) converge() []*phase {
	leave, come := g.newPhase(leaveChain), g.newPhase(createChain)
	leave.local, come.local = g.in.NodeLocal, g.in.NodeLocal
	come.gone = newBitset(len(g.slotNode))
	for n := range g.in.Nodes {
		w, ok := g.in.Wanted[g.in.Nodes[n].ID]
		if !ok {
			continue
		}
		whole := maskOf(w.Node...)
		leave.node[n], come.node[n] = whole&leaveActions, whole&comeActions
		gone := whole&maskOf(model.Delete, model.Create) == bit(model.Delete)
		for _, k := range g.slots(n) {
			s := int(g.slotSvc[k])
			m := maskOf(w.Services[g.names[s]]...)
			if goes(m) {
				come.gone.set(int(k))
			} else if m != 0 && !gone && g.changed(n, s) {
				m |= bit(model.Configure)
			}
			m &= g.defined[s]
			leave.slot[k], come.slot[k] = m&leaveActions, m&comeActions
		}
	}
	return []*phase{leave, come}
}
