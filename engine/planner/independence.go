package planner

import (
	"slices"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
)

// WithIndependence returns a graph in which the tasks of a service with "exclusive: service"
// exclude only the tasks of the same service on their node, not the node's other tasks.
// Dependencies do not change. Without such a service it returns the same graph.
func WithIndependence(g *plan.Graph, services map[string]model.Service) (*plan.Graph, error) {
	apart := make([]bool, len(g.Services))
	for i, name := range g.Services {
		s := services[name]
		apart[i] = s.Exclusive == model.ExclusiveService
	}
	if !slices.Contains(apart, true) {
		return g, nil
	}
	type instance struct {
		node    int32
		service int16
	}
	nodes := slices.Clone(g.Nodes)
	entry := map[instance]int{}
	of := make([]int, g.Len())
	for v, service := range g.Service {
		if of[v] = int(g.Node[v]); service < 0 || !apart[service] {
			continue
		}
		at := instance{g.Node[v], service}
		n, ok := entry[at]
		if !ok {
			n = len(nodes)
			nodes = append(nodes, g.NodeID(v))
			entry[at] = n
		}
		of[v] = n
	}
	b := plan.NewBuilder(nodes, g.Services)
	b.Grow(g.Len(), len(g.Succ))
	for v, action := range g.Action {
		b.Task(action, of[v], int(g.Service[v]))
	}
	for v := range g.Len() {
		for _, w := range g.Next(v) {
			b.Edge(uint32(v), w)
		}
	}
	return b.Build()
}
