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
// recoveries among it that plans of the template describe.
func recreation(at Input, n *model.Node) (planner.Wanted, []recovered, error) {
	cl := at.Cluster
	if !n.Created {
		return planner.Wanted{}, nil, fmt.Errorf("%w: node %s has no machine yet, and operation %s is to make it", ErrState, n.ShortName(),
			cl.Operation)
	}
	others, err := dependents(cl, at.Nodes, n.ID)
	switch {
	case err != nil:
		return planner.Wanted{}, nil, err
	case len(others) > 0:
		return planner.Wanted{}, nil, fmt.Errorf("%w: operation %s is open, and the address of node %s is in the configuration of node %s, "+
			"which has to be configured for the new one: wait for the operation, or abort it", ErrState, cl.Operation, n.ShortName(), others[0])
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

// dependents returns the names of the other nodes with a service whose configuration has the address of a node.
func dependents(cl *model.Cluster, nodes []*model.Node, id string) ([]string, error) {
	type pair struct{ is, shall *expansions }
	known := map[int]pair{}
	of := func(place int) (pair, error) {
		if p, ok := known[place]; ok {
			return p, nil
		}
		with := *cl
		if place >= 0 {
			with.Config = cl.Earlier[place].Config
		}
		is, err := expand(&with, nodes, nil)
		if err != nil {
			return pair{}, err
		}
		shall, err := expand(&with, nodes, map[string]bool{id: true})
		known[place] = pair{is, shall}
		return known[place], err
	}
	var out []string
	for _, n := range nodes {
		if n.ID == id || !n.Created || n.Leaves {
			continue
		}
		for _, s := range n.Staying() {
			m := n.Marks[s]
			def, _ := cl.DefinitionAt(m, s)
			if _, configures := def.Provisioner.Actions[model.Configure.Key()]; !configures || n.States[s] == "" {
				continue
			}
			p, err := of(cl.ConfiguredAt(m))
			if err != nil {
				return nil, err
			}
			if p.is.of(n.Number, def) != p.shall.of(n.Number, def) {
				out = append(out, n.ShortName())
				break
			}
		}
	}
	return out, nil
}
