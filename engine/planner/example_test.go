package planner_test

import (
	"encoding/json"
	"fmt"
	"log"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/planner"
)

// services returns a database and a web server that needs the database to start.
func services() map[string]model.Service {
	var out map[string]model.Service
	definitions := `{
		"db": {"name": "db", "provisioner": {"actions": {"install": {"type": "shell"}, "start": {"type": "shell"}, "stop": {"type": "shell"}}}},
		"web": {"name": "web", "provisioner": {"actions": {"install": {"type": "shell"}, "start": {"type": "shell"}, "stop": {"type": "shell"}}},
			"dependencies": {"runtime": {"requires": ["db"]}}}
	}`
	if err := json.Unmarshal([]byte(definitions), &out); err != nil {
		log.Fatal(err)
	}
	return out
}

// Tasks that do not wait for each other are in one stage. The installation of the web server waits
// for nothing on the other node; its start waits for the start of the database.
func ExamplePlan() {
	graph, err := planner.Plan(planner.Input{
		Operation: model.OpCreate,
		Nodes: []planner.Node{
			{ID: "n1", Number: 1, Services: []string{"db"}},
			{ID: "n2", Number: 2, Services: []string{"web"}},
		},
		Services: services(),
	})
	if err != nil {
		log.Fatal(err)
	}
	for i, stage := range planner.Stages(graph) {
		var names []string
		for _, v := range stage {
			names = append(names, graph.Name(v))
		}
		fmt.Println(i+1, strings.Join(names, " "))
	}
	// Output:
	// 1 n1/CREATE n2/CREATE
	// 2 n1/CONFIRM n2/CONFIRM
	// 3 n1/BOOTSTRAP n2/BOOTSTRAP
	// 4 n1/INSTALL/db n2/INSTALL/web
	// 5 n1/START/db
	// 6 n2/START/web
}

// A graph shows which tasks wait for a task.
func ExamplePlan_order() {
	graph, err := planner.Plan(planner.Input{
		Operation: model.OpStop,
		Nodes: []planner.Node{
			{ID: "n1", Number: 1, Services: []string{"db"}, States: map[string]string{"db": "START"}, Created: true},
			{ID: "n2", Number: 2, Services: []string{"web"}, States: map[string]string{"web": "START"}, Created: true},
		},
		Services: services(),
	})
	if err != nil {
		log.Fatal(err)
	}
	for v := range graph.Len() {
		for _, w := range graph.Next(v) {
			fmt.Printf("%s is before %s\n", graph.Name(v), graph.Name(int(w)))
		}
	}
	// Output: n2/STOP/web is before n1/STOP/db
}
