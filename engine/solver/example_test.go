package solver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/solver"
)

// shop returns an input whose template has one balancer and any number of web servers, on separate
// nodes.
func shop(nodes int) solver.Input {
	in := solver.Input{
		Nodes:    nodes,
		Services: map[string]model.Service{"balancer": {}, "web": {}},
		HardwareTypes: []model.HardwareType{
			{Base: model.Base{Name: "small"}, ProviderMap: map[string]map[string]any{"cloud": {"flavor": "s-1"}}},
		},
		ImageTypes: []model.ImageType{
			{Base: model.Base{Name: "debian"}, ProviderMap: map[string]map[string]any{"cloud": {"image": "debian-12"}}},
		},
	}
	template := `{
		"name": "shop",
		"defaults": {"services": ["balancer", "web"], "provider": "cloud"},
		"compatibility": {"services": ["balancer", "web"]},
		"constraints": {
			"layout": {"cantcoexist": [["balancer", "web"]]},
			"services": {"balancer": {"quantities": {"min": 1, "max": 1}}, "web": {"quantities": {"min": 1}}}
		}
	}`
	if err := json.Unmarshal([]byte(template), &in.Template); err != nil {
		log.Fatal(err)
	}
	return in
}

func ExampleSolve() {
	answer, err := solver.Solve(context.Background(), shop(5))
	if err != nil {
		log.Fatal(err)
	}
	for _, g := range answer.Layout {
		fmt.Println(g.Count, g.HardwareType, g.ImageType, g.Services)
	}
	// Output:
	// 1 small debian [balancer]
	// 4 small debian [web]
}

// If no layout exists, the error holds a minimal set of constraints that contradict each other.
func ExampleSolve_conflict() {
	_, err := solver.Solve(context.Background(), shop(1))
	var none *solver.Unsolvable
	if !errors.As(err, &none) {
		log.Fatal(err)
	}
	for _, c := range none.Conflict {
		fmt.Println(c.Path)
	}
	// Output: constraints.layout.cantcoexist[0]
}

// A change to a cluster leaves its existing nodes as they are.
func ExampleSolve_grow() {
	in := shop(0)
	in.Existing = []solver.ExistingNode{
		{ID: "a", Number: 1, HardwareType: "small", ImageType: "debian", Services: []string{"balancer"}},
		{ID: "b", Number: 2, HardwareType: "small", ImageType: "debian", Services: []string{"web"}},
	}
	in.Change = solver.Change{Kind: solver.Grow, Nodes: 2}
	answer, err := solver.Solve(context.Background(), in)
	if err != nil {
		log.Fatal(err)
	}
	for _, g := range answer.New {
		fmt.Println(g.Count, g.Services)
	}
	// Output: 2 [web]
}
