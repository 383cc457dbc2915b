package planner

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/coopr/coopr/engine/model"
)

// grid is the cluster in flat form. A slot is one service on one node; the slots of a service are
// adjacent, in the order of nodes.
type grid struct {
	in       *Input
	names    []string
	services []model.Service // parallel to names
	defined  []mask          // the service actions that each service defines
	kinds    []uint64        // the automator types of each service's actions, one bit each

	slotOff  []int // service s has the slots slotOff[s] to slotOff[s+1]
	slotNode []int32
	nodeOff  []int // node n has the slots nodeSlot[nodeOff[n]] to nodeSlot[nodeOff[n+1]]
	nodeSlot []int32
	slotSvc  []int16

	byName       providers
	runtime      *relations
	installation *relations

	onNode     bitset // planned nodes
	gatherFrom bitset // nodes of GatherFrom
	ofSvc      bitset // planned services, before expansion
	wide       bitset // planned services, after expansion
}

// newGrid returns the grid of an input, or an error with all its faults.
func newGrid(in *Input) (*grid, error) {
	g := &grid{in: in}
	var faults model.Faults
	placed := make(map[string]int, len(in.Services))
	seen := make(map[string]bool, len(in.Nodes))
	for i := range in.Nodes {
		n := &in.Nodes[i]
		if seen[n.ID] {
			faults.Add(fmt.Sprintf("nodes[%d]", i), "node "+n.ID+" is there twice")
		}
		seen[n.ID] = true
		for _, s := range n.Services {
			if placed[s]++; placed[s] > 1 {
				continue
			}
			if _, ok := in.Services[s]; !ok {
				faults.Add(fmt.Sprintf("nodes[%d].services", i), "service "+s+" on node "+n.ID+" has no definition")
			}
		}
	}
	g.names = slices.Sorted(maps.Keys(placed))
	if len(g.names) > math.MaxInt16 {
		faults.Add("services", fmt.Sprintf("%d services are on the nodes; at most %d can be planned", len(g.names), math.MaxInt16))
	}
	g.byName = newProviders(g.names, in.Services)
	g.selectPlanned(seen, &faults)
	g.checkWanted(seen, &faults)
	if err := faults.Err(); err != nil {
		return nil, err
	}
	g.describe()
	g.place(placed)
	g.runtime = newRelations(g.names, in.Services, g.byName, false)
	g.installation = newRelations(g.names, in.Services, g.byName, true)
	if !in.Compat {
		if err := g.installation.cycle(g.names, true); err != nil {
			return nil, err
		}
		if err := g.runtime.cycle(g.names, false); err != nil {
			return nil, err
		}
	}
	g.wide = slices.Clone(g.ofSvc)
	expand(in.Operation, g.wide, g.runtime)
	return g, nil
}

// selectPlanned marks the planned nodes and services.
func (g *grid) selectPlanned(ids map[string]bool, faults *model.Faults) {
	g.onNode, g.ofSvc = newBitset(len(g.in.Nodes)), newBitset(len(g.names))
	wanted := make(map[string]bool, len(g.in.PlannedNodes))
	for i, id := range g.in.PlannedNodes {
		if !ids[id] {
			faults.Add(fmt.Sprintf("plannedNodes[%d]", i), "node "+id+" is not in the cluster")
		}
		wanted[id] = true
	}
	for i := range g.in.Nodes {
		if g.in.PlannedNodes == nil || wanted[g.in.Nodes[i].ID] {
			g.onNode.set(i)
		}
	}
	g.gatherFrom = newBitset(len(g.in.Nodes))
	from := make(map[string]bool, len(g.in.GatherFrom))
	for i, id := range g.in.GatherFrom {
		if !ids[id] {
			faults.Add(fmt.Sprintf("gatherFrom[%d]", i), "node "+id+" is not in the cluster")
		}
		from[id] = true
	}
	for i := range g.in.Nodes {
		if g.in.GatherFrom == nil || from[g.in.Nodes[i].ID] {
			g.gatherFrom.set(i)
		}
	}
	if g.in.PlannedServices == nil {
		for i := range g.names {
			g.ofSvc.set(i)
		}
	}
	for i, s := range g.in.PlannedServices {
		if k, ok := g.byName.index[s]; ok {
			g.ofSvc.set(k)
		} else {
			faults.Add(fmt.Sprintf("plannedServices[%d]", i), "service "+s+" is on no node of the cluster")
		}
	}
}

// describe fills in the definition, the actions and the automator types of each service.
func (g *grid) describe() {
	n := len(g.names)
	g.services, g.defined, g.kinds = make([]model.Service, n), make([]mask, n), make([]uint64, n)
	types := map[string]int{}
	for i, name := range g.names {
		g.services[i] = g.in.Services[name]
		actions := g.services[i].Provisioner.Actions
		g.defined[i] = definedBy(actions)
		if previous, ok := g.in.Previous[name]; ok {
			g.defined[i] = g.defined[i]&^leaveActions | definedBy(previous.Provisioner.Actions)&leaveActions
		}
		for _, key := range slices.Sorted(maps.Keys(actions)) {
			t := actions[key].Type
			if _, ok := types[t]; !ok {
				types[t] = min(len(types), moreKinds)
			}
			g.kinds[i] |= 1 << types[t]
		}
	}
}

// definedBy returns the service actions that a definition has.
func definedBy(actions map[string]model.ServiceAction) mask {
	m := mask(0)
	for a := model.Install; a <= model.Remove; a++ {
		if _, ok := actions[a.Key()]; ok {
			m |= bit(a)
		}
	}
	return m
}

// moreKinds is the bit that all automator types beyond the first 63 share. It never counts as known
// on a node, so that these types are bootstrapped too often rather than not at all.
const moreKinds = 63

// place lays out the slots.
func (g *grid) place(placed map[string]int) {
	n := len(g.names)
	g.slotOff = make([]int, n+1)
	for i, name := range g.names {
		g.slotOff[i+1] = g.slotOff[i] + placed[name]
	}
	total := g.slotOff[n]
	fill := slices.Clone(g.slotOff[:n])
	g.slotNode, g.slotSvc = make([]int32, total), make([]int16, total)
	g.nodeOff, g.nodeSlot = make([]int, len(g.in.Nodes)+1), make([]int32, 0, total)
	for i := range g.in.Nodes {
		for _, name := range g.in.Nodes[i].Services {
			s := g.byName.index[name]
			if k := fill[s]; k > g.slotOff[s] && g.slotNode[k-1] == int32(i) {
				continue // the node lists the service twice
			}
			g.slotNode[fill[s]], g.slotSvc[fill[s]] = int32(i), int16(s)
			g.nodeSlot = append(g.nodeSlot, int32(fill[s]))
			fill[s]++
		}
		g.nodeOff[i+1] = len(g.nodeSlot)
	}
	for s := range fill {
		for k := fill[s]; k < g.slotOff[s+1]; k++ {
			g.slotNode[k] = -1 // unused, because a node lists the service twice
		}
	}
}

// slots returns the slots of a node.
func (g *grid) slots(node int) []int32 { return g.nodeSlot[g.nodeOff[node]:g.nodeOff[node+1]] }

// relation returns the dependencies to which a rule applies.
func (g *grid) relation(r rule) *relations {
	if r.install {
		return g.installation
	}
	return g.runtime
}
