package planner

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
)

// service returns a service with these actions, all of one automator.
func service(name string, actions ...string) model.Service {
	s := model.Service{Base: model.Base{Name: name}, Provisioner: model.ServiceProvisioner{Actions: map[string]model.ServiceAction{}}}
	for _, a := range actions {
		s.Provisioner.Actions[a] = model.ServiceAction{Type: "shell"}
	}
	return s
}

// services returns services written as "name[action,…] runtime:b,~c install:d provides:e".
func services(lines ...string) map[string]model.Service {
	out := map[string]model.Service{}
	for _, line := range lines {
		words := strings.Fields(line)
		name, actions, _ := strings.Cut(strings.TrimSuffix(words[0], "]"), "[")
		s := service(name, strings.FieldsFunc(actions, func(r rune) bool { return r == ',' })...)
		for _, w := range words[1:] {
			kind, list, _ := strings.Cut(w, ":")
			for _, on := range strings.Split(list, ",") {
				needs := &s.Dependencies.Runtime
				switch kind {
				case "install":
					needs = &s.Dependencies.Install
				case "provides":
					s.Dependencies.Provides = append(s.Dependencies.Provides, on)
					continue
				}
				if u, ok := strings.CutPrefix(on, "~"); ok {
					needs.Uses = append(needs.Uses, u)
				} else {
					needs.Requires = append(needs.Requires, on)
				}
			}
		}
		out[name] = s
	}
	return out
}

// nodes returns nodes written as "n1:a,b". All of them are created, except those written as
// "-n1:a". A service can have a state: "n1:a=START,b".
func nodes(lines ...string) []Node {
	var out []Node
	for i, line := range lines {
		id, list, _ := strings.Cut(line, ":")
		id, fresh := strings.CutPrefix(id, "-")
		n := Node{ID: id, Number: i, Created: !fresh, States: map[string]string{}}
		for _, w := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' }) {
			name, state, has := strings.Cut(w, "=")
			n.Services = append(n.Services, name)
			if has {
				n.States[name] = state
			}
		}
		out = append(out, n)
	}
	return out
}

// mustPlan returns the plan of an input, or ends the test if there is none.
func mustPlan(t testing.TB, in Input) *plan.Graph {
	t.Helper()
	g, err := Plan(in)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// stageNames returns the tasks of each stage as one line.
func stageNames(g *plan.Graph, stages [][]int) []string {
	out := make([]string, len(stages))
	for i, stage := range stages {
		var names []string
		for _, v := range stage {
			names = append(names, g.Name(v))
		}
		slices.Sort(names)
		out[i] = strings.Join(names, " ")
	}
	return out
}

// templateSet is the services of a shipped template and their layout on three nodes: the first node
// carries the masters, the others carry the workers.
type templateSet struct {
	services         map[string]model.Service
	masters, workers []string
}

// templateServices returns the layout of a shipped distributed template, from the planner cases.
func templateServices(t testing.TB, template string) templateSet {
	t.Helper()
	var file struct {
		ServiceSets map[string]map[string]model.Service
		Cases       []struct {
			Name, ServiceSet string
			Nodes            []struct{ Services []string }
		}
	}
	data, err := os.ReadFile("../../testing/conformance/testdata/planner-cases.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	for _, c := range file.Cases {
		if strings.HasPrefix(c.Name, "templates-develop/"+template+"/defaults/n3/") {
			return templateSet{file.ServiceSets[c.ServiceSet], c.Nodes[0].Services, c.Nodes[1].Services}
		}
	}
	t.Fatalf("no case of template %s", template)
	return templateSet{}
}
