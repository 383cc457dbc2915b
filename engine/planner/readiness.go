package planner

import (
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
)

// WithReadiness returns the graph with a CHECK after each START of a service that has a readiness
// check. Tasks that waited for the START wait for the CHECK, so that a step is complete, and others
// continue, when the service is ready (docs/spec/plans.md §7). Vertices still come after all those
// for which they wait. Without such a service it returns the same graph.
func WithReadiness(g *plan.Graph, services map[string]model.Service) (*plan.Graph, error) {
	has := make([]bool, len(g.Services))
	some := false
	for i, name := range g.Services {
		s := services[name]
		_, checks := s.Provisioner.Actions[model.Check.Key()]
		has[i] = checks && s.ReadinessCheck != nil && !s.ReadinessCheck.Off
		some = some || has[i]
	}
	if !some {
		return g, nil
	}
	b := plan.NewBuilder(g.Nodes, g.Services)
	first, end := make([]uint32, g.Len()), make([]uint32, g.Len())
	for v, action := range g.Action {
		node, service := int(g.Node[v]), int(g.Service[v])
		first[v] = b.Task(action, node, service)
		end[v] = first[v]
		if action == model.Start && service >= 0 && has[service] {
			end[v] = b.Task(model.Check, node, service)
			b.Edge(first[v], end[v])
		}
	}
	for v := range g.Len() {
		for _, w := range g.Next(v) {
			b.Edge(end[v], first[w])
		}
	}
	return b.Build()
}
