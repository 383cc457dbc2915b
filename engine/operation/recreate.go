package operation

import (
	"fmt"
	"maps"
	"slices"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/planner"
)

// recreation returns what replaces the machine of a node while another operation of the cluster is open: the machine is deleted and made
// again, and the services on it are brought to where they were, by the definitions and configurations that they had. It also returns the
// recoveries among it that plans of the template describe. Services on other nodes are not among it: see dependents.
func recreation(at Input, n *model.Node) (planner.Wanted, []recovered, error) {
	cl := at.Cluster
	if !n.Created {
		return planner.Wanted{}, nil, fmt.Errorf("%w: node %s has no machine yet, and operation %s is to make it", ErrState, n.ShortName(),
			cl.Operation)
	}
	w := planner.Wanted{Node: []model.Action{model.Delete, model.Create, model.Confirm}, Services: map[string][]model.Action{}}
	bootstraps := false
	for _, s := range n.Staying() {
		def, _ := cl.DefinitionAt(n.Marks[s], s)
		for _, a := range wayTo(n.States[s]) {
			if act, ok := def.Provisioner.Actions[a.Key()]; ok {
				w.Services[s] = append(w.Services[s], a)
				bootstraps = bootstraps || act.Type != ""
			}
		}
	}
	if bootstraps {
		w.Node = append(w.Node, model.Bootstrap)
	}
	own, err := patterns(cl, at.Nodes, n, slices.Sorted(maps.Keys(w.Services)), model.RecoversReplace) // of those that are installed
	for _, r := range own {
		if patternOf(&cl.Template, r.service, model.RecoversReplace).Others == model.OthersRestart {
			return planner.Wanted{}, nil, fmt.Errorf("%w: operation %s is open, and plan %s, which replaces %s, restarts the service on other "+
				"nodes, too: wait for the operation, or abort it", ErrState, cl.Operation, r.phase.Name, n.ShortName())
		}
		w.Services[r.service] = r.actions
	}
	return w, own, err
}

// wayTo returns the actions that bring a service on a new machine to the state that it had on the former one. A service that was started or
// stopped is started. One that a step of the open operation has brought part of the way is left to that step, which begins again.
func wayTo(state string) []model.Action {
	way := []model.Action{model.Install, model.Configure, model.Initialize, model.Start}
	for i, a := range way[:3] {
		switch state {
		case a.String():
			return way[:i+1]
		case a.String() + "?":
			return way[:i]
		}
	}
	switch state {
	case "", model.Remove.String(), model.Remove.String() + "?":
		return nil
	}
	return way
}

// dependents returns the services of other nodes whose configuration has an address of nodes whose machines are made again, by node: the
// configuration that a service has, or that to which the open operation brings it, as the operation may do so before the new address is
// known. Nodes without a machine, and services that are not installed, are not among them: the open operation configures these later. It
// also returns the names of all services with such a configuration, on whatever node.
func dependents(at Input, made map[string]bool) (on map[string][]string, names []string, err error) {
	type pair struct{ is, shall *expansions }
	known := map[int]pair{}
	changes := func(place int, n *model.Node, def model.Service) (bool, error) {
		p, ok := known[place]
		if !ok {
			with := *at.Cluster
			if place >= 0 {
				with.Config = with.Earlier[place].Config
			}
			var err error
			if p.is, err = expand(&with, at.Nodes, nil); err != nil {
				return false, err
			}
			if p.shall, err = expand(&with, at.Nodes, made); err != nil {
				return false, err
			}
			known[place] = p
		}
		return p.is.of(n.Number, def) != p.shall.of(n.Number, def), nil
	}
	on = map[string][]string{}
	for _, n := range at.Nodes {
		if made[n.ID] || n.Leaves {
			continue
		}
		for _, s := range n.Staying() {
			m := n.Marks[s]
			def, _ := at.Cluster.DefinitionAt(m, s)
			if _, configures := def.Provisioner.Actions[model.Configure.Key()]; !configures {
				continue
			}
			has, err := changes(at.Cluster.ConfiguredAt(m), n, def)
			if err == nil && !has {
				has, err = changes(-1, n, at.Cluster.Definitions[s])
			}
			if err != nil {
				return nil, nil, err
			}
			if !has {
				continue
			}
			names = append(names, s)
			switch n.States[s] {
			case "", model.Install.String() + "?", model.Remove.String(), model.Remove.String() + "?":
			default:
				if n.Created && !at.Gone[n.ID] {
					on[n.ID] = append(on[n.ID], s)
				}
			}
		}
	}
	slices.Sort(names)
	return on, slices.Compact(names), nil
}
