package planner

import (
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
)

// phase is one part of an operation: its tasks by node and by slot.
type phase struct {
	order []model.Action
	node  []mask // actions on the whole node
	slot  []mask // actions of services
	// again marks tasks that the original repeats although they are not planned. They wait for
	// nothing (Compat only).
	again []mask
	// local limits the rules between services to each node (upgrade, NodeLocal).
	local bool
	// gone marks slots whose services leave their nodes in the phase before. Tasks that come to
	// these nodes wait for that (converge only).
	gone bitset
}

func (g *grid) newPhase(order []model.Action) *phase {
	return &phase{order: order, node: make([]mask, len(g.in.Nodes)), slot: make([]mask, len(g.slotNode))}
}

const (
	hardware = mask(1<<model.Create | 1<<model.Confirm | 1<<model.Delete)
	perNode  = hardware | mask(1<<model.Bootstrap)
)

// wants returns a phase with the tasks that the operation needs.
func (g *grid) wants(order []model.Action) *phase {
	p := g.newPhase(order)
	p.local = g.in.Operation == model.OpUpgrade || g.in.NodeLocal
	all := maskOf(order...)
	for n := range g.in.Nodes {
		if !g.onNode.has(n) {
			continue
		}
		some := false
		for _, k := range g.slots(n) {
			s := int(g.slotSvc[k])
			if !g.wide.has(s) {
				continue
			}
			some = true
			base := all & g.defined[s]
			if g.in.Compat {
				p.slot[k] = base
			} else if base != 0 {
				p.slot[k] = g.needed(n, s, base)
				if p.slot[k] != 0 && g.changed(n, s) {
					p.slot[k] |= base & bit(model.Configure) // configured before, but with another configuration
				}
			}
		}
		if g.in.Compat {
			if some {
				p.node[n] = all & perNode
			}
		} else {
			p.node[n] = g.neededNode(p, n, all&perNode)
		}
	}
	return p
}

// idle reports whether a service certainly does not run: it was stopped or removed, or its START is
// still to come. After a CONFIGURE it may run.
func (g *grid) idle(service int, state string) bool {
	switch state {
	case "STOP", "REMOVE", "REMOVE?": // a service is stopped before it is removed
		return true
	case "INSTALL", "INSTALL?", "INITIALIZE", "INITIALIZE?":
		return g.defined[service]&bit(model.Start) != 0
	}
	return false
}

// needed returns the actions in base, those of the operation for a service on a node, without those
// that are done already (docs/spec/planner.md, "Operations").
func (g *grid) needed(node, service int, base mask) mask {
	n := &g.in.Nodes[node]
	state := n.States[g.names[service]]
	switch g.in.Operation {
	case model.OpCreate, model.OpGrow, model.OpAddServices:
		if !n.Created {
			return base
		}
		return base &^ conditionOf(state).reached.way()
	case model.OpReplaceNode:
		return base
	}
	if !n.Created {
		return 0
	}
	idle := g.idle(service, state)
	switch g.in.Operation {
	case model.OpDelete, model.OpShrink, model.OpRemoveServices:
		if idle {
			base &^= bit(model.Stop)
		}
		if state == "REMOVE" {
			base &^= bit(model.Remove)
		}
		return base
	}
	if removed(state) {
		return 0
	}
	switch g.in.Operation {
	case model.OpStart:
		if state == "START" || state == "INSTALL?" { // what may not be installed cannot be started
			base = 0
		}
	case model.OpStop:
		if idle {
			base = 0
		}
	case model.OpRestart:
		if idle {
			base &^= bit(model.Stop)
			if !g.ofSvc.has(service) || state == "INSTALL?" {
				base = 0 // it is not installed, or the service depends on one that restarts, but did not run itself
			}
		}
	case model.OpConfigure:
		if idle || !restarts(&g.services[service]) {
			base &= bit(model.Configure)
		}
	case model.OpUpgrade:
		if idle {
			base &^= maskOf(model.Stop, model.Start)
		}
	}
	return base
}

// removed reports whether a service was removed from its node, completely or at least in part.
func removed(state string) bool { return state == "REMOVE" || state == "REMOVE?" }

func restarts(s *model.Service) bool { return s.RestartOnConfigure == nil || *s.RestartOnConfigure }

// neededNode is the counterpart of needed for the actions on the whole node.
func (g *grid) neededNode(p *phase, node int, base mask) mask {
	if base == 0 {
		return 0
	}
	n := &g.in.Nodes[node]
	switch g.in.Operation {
	case model.OpDelete, model.OpShrink:
		if !n.Created {
			return 0
		}
		return base
	case model.OpReplaceNode:
		if !n.Created {
			base &^= bit(model.Delete)
		}
		if g.newKinds(p, node, false) == 0 {
			base &^= bit(model.Bootstrap)
		}
		return base
	}
	if g.newKinds(p, node, n.Created) == 0 {
		base &^= bit(model.Bootstrap)
	}
	if n.Created {
		base &^= bit(model.Create)
		if g.in.Operation == model.OpAddServices || len(n.States) > 0 {
			base &^= bit(model.Confirm)
		}
	}
	return base
}

// newKinds returns the automator types that the node's planned services need and that none of
// its services has used before.
func (g *grid) newKinds(p *phase, node int, created bool) uint64 {
	var need, have uint64
	states := g.in.Nodes[node].States
	for _, k := range g.slots(node) {
		s := g.slotSvc[k]
		if p.slot[k] != 0 {
			need |= g.kinds[s]
		}
		if created && len(states) > 0 && states[g.names[s]] != "" {
			have |= g.kinds[s] &^ (1 << moreKinds)
		}
	}
	return need &^ have
}

// startIdle adds the START of stopped services on which services to be started or initialized
// depend. Running services are not started again.
func (g *grid) startIdle(p *phase) {
	if g.in.Operation == model.OpStart {
		return // they are planned already
	}
	starting := newBitset(len(g.names))
	some := false
	for k, m := range p.slot {
		if m&maskOf(model.Start, model.Initialize) != 0 {
			starting.set(int(g.slotSvc[k]))
			some = true
		}
	}
	if !some {
		return
	}
	set := newBitset(len(g.names))
	for s := range g.names {
		if starting.has(s) {
			for _, d := range g.runtime.direct[s] {
				set.set(d)
			}
		}
	}
	spread(set, g.runtime.direct)
	for s := range g.names {
		if !set.has(s) || g.defined[s]&bit(model.Start) == 0 {
			continue
		}
		for k := g.slotOff[s]; k < g.slotOff[s+1]; k++ {
			n := g.slotNode[k]
			if n < 0 || p.slot[k] != 0 || p.node[n]&bit(model.Delete) != 0 || !g.in.Nodes[n].Created {
				continue
			}
			if !g.startable(s, g.in.Nodes[n].States[g.names[s]]) {
				continue
			}
			p.slot[k] = bit(model.Start)
			if g.changed(int(n), s) {
				p.slot[k] |= g.defined[s] & maskOf(p.order...) & bit(model.Configure)
			}
		}
	}
}

// startable reports whether a service does not run and needs only START to run.
func (g *grid) startable(service int, state string) bool {
	switch state {
	case "STOP", "STOP?", "START?":
		return true
	}
	before := conditionOf(state).reached.way()
	return before != 0 && before&bit(model.Start) == 0 && g.idle(service, state) &&
		g.defined[service]&maskOf(model.Install, model.Configure, model.Initialize)&^before == 0
}

// startAgain adds the redundant tasks of the original: an action for which a planned task waits is
// added on every node with the other service, planned or not (docs/spec/coopr.md 5.4).
func (g *grid) startAgain(p *phase, deps *pairs) {
	p.again = make([]mask, len(p.slot))
	for _, d := range deps.cross {
		for k := g.slotOff[d.on]; k < g.slotOff[d.on+1]; k++ {
			n := g.slotNode[k]
			if n < 0 || g.onNode.has(int(n)) && g.wide.has(d.on) {
				continue
			}
			p.again[k] |= bit(d.from)
		}
	}
}

// reconfiguration returns the last phase, or nil: CONFIGURE if the configuration changed, and a
// restart if the service runs (docs/spec/planner.md, "Reconfiguration").
func (g *grid) reconfiguration(before []*phase) *phase {
	if len(g.in.Reconfigure) == 0 {
		return nil
	}
	p := g.newPhase([]model.Action{model.Stop, model.Configure, model.Start})
	some := false
	for n := range g.in.Nodes {
		node := &g.in.Nodes[n]
		if len(g.in.Reconfigure[node.ID]) == 0 || !node.Created ||
			slices.ContainsFunc(before, func(p *phase) bool { return p.node[n]&bit(model.Delete) != 0 }) {
			continue
		}
		for _, k := range g.slots(n) {
			s := int(g.slotSvc[k])
			leaves := g.in.Operation == model.OpRemoveServices && g.onNode.has(n) && g.wide.has(s)
			tasks := slices.ContainsFunc(before, func(p *phase) bool { return p.slot[k] != 0 || p.gone != nil && p.gone.has(int(k)) })
			state := node.States[g.names[s]]
			if tasks || leaves || removed(state) || !g.changed(n, s) {
				continue // a service with tasks is configured among them
			}
			p.slot[k] = g.defined[s] & bit(model.Configure)
			if p.slot[k] == 0 {
				continue
			}
			some = true
			if restarts(&g.services[s]) && !g.idle(s, state) && !strings.HasPrefix(state, "CONFIGURE") {
				p.slot[k] |= g.defined[s] & maskOf(model.Stop, model.Start)
			}
		}
	}
	if !some {
		return nil
	}
	return p
}

// changed reports whether the operation changes the configuration of a service on a node.
func (g *grid) changed(node, service int) bool {
	if len(g.in.Reconfigure) == 0 {
		return false
	}
	return slices.Contains(g.in.Reconfigure[g.in.Nodes[node].ID], g.names[service])
}
