package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/planner"
)

// plannerFile is a file of planner cases with the results of the original's planner.
type plannerFile struct {
	ServiceSets map[string]map[string]model.Service `json:"serviceSets"`
	Cases       []plannerCase                       `json:"cases"`
}

type plannerCase struct {
	Name       string `json:"name"`
	Action     string `json:"action"`
	ServiceSet string `json:"serviceSet"`
	Nodes      []struct {
		ID       string   `json:"id"`
		Services []string `json:"services"`
	} `json:"nodes"`
	PlanServices []string `json:"planServices"`
	PlanNodes    []string `json:"planNodes"`
	// The original's results. A case need not have all of them.
	Tasks         *int        `json:"tasks"`
	Levels        *int        `json:"levels"`
	Split         *int        `json:"stagesAfterOneTaskPerNode"`
	Stages        [][]string  `json:"stages"`
	Edges         [][2]string `json:"edges"`
	OriginalError string      `json:"originalError"`
}

// plannerOps maps the original's cluster actions to ours.
var plannerOps = map[string]planner.Input{
	"CLUSTER_CREATE":                 {Operation: model.OpCreate},
	"CLUSTER_DELETE":                 {Operation: model.OpDelete},
	"CLUSTER_CONFIGURE":              {Operation: model.OpConfigure},
	"CLUSTER_CONFIGURE_WITH_RESTART": {Operation: model.OpConfigure, Restart: true},
	"START_SERVICES":                 {Operation: model.OpStart},
	"STOP_SERVICES":                  {Operation: model.OpStop},
	"RESTART_SERVICES":               {Operation: model.OpRestart},
	"ADD_SERVICES":                   {Operation: model.OpAddServices},
}

// runPlanner runs planner cases. In compat mode the stages must be those of the original. Otherwise
// the tasks must have the same order as in the original; tasks whose effect exists already are left
// out. Failures are printed.
func runPlanner(files []string, compat bool) (passed, failed int) {
	for _, name := range files {
		data, err := os.ReadFile(name)
		var file plannerFile
		if err == nil {
			err = json.Unmarshal(data, &file)
		}
		if err != nil {
			fmt.Printf("FAIL %s: %v\n", name, err)
			failed++
			continue
		}
		if len(file.Cases) == 0 {
			fmt.Printf("FAIL %s: it has no cases\n", name)
			failed++
		}
		for _, c := range file.Cases {
			check := c.checkDefault
			if compat {
				check = c.checkCompat
			}
			if err := check(file.ServiceSets[c.ServiceSet]); err != nil {
				fmt.Printf("FAIL %s: %s: %s\n", name, c.Name, strings.ReplaceAll(err.Error(), "\n", "; "))
				failed++
			} else {
				passed++
			}
		}
	}
	return passed, failed
}

// plannerCommand is runPlanner for the command line, where -compat among the files selects the
// original's stages.
func plannerCommand(args []string) (passed, failed int) {
	compat := func(a string) bool { return a == "-compat" || a == "--compat" }
	asked := slices.ContainsFunc(args, compat)
	files := slices.DeleteFunc(slices.Clone(args), compat)
	if len(files) == 0 {
		fmt.Println("FAIL no file of cases is named")
		return 0, 1
	}
	return runPlanner(files, asked)
}

// input returns the case as the planner's input, in compat mode.
func (c *plannerCase) input(services map[string]model.Service) (planner.Input, error) {
	in, ok := plannerOps[c.Action]
	if !ok {
		return in, fmt.Errorf("unknown cluster action %s", c.Action)
	}
	in.Services, in.PlannedServices, in.PlannedNodes, in.Compat = services, c.PlanServices, c.PlanNodes, true
	for i, n := range c.Nodes {
		in.Nodes = append(in.Nodes, planner.Node{ID: n.ID, Number: i, Services: n.Services})
	}
	return in, nil
}

func (c *plannerCase) checkCompat(services map[string]model.Service) error {
	in, err := c.input(services)
	if err != nil {
		return err
	}
	g, err := planner.Plan(in)
	if err != nil {
		return err
	}
	if c.OriginalError != "" { // "no source nodes": the original fails where there is nothing to do
		if g.Tasks() > 0 {
			return fmt.Errorf("the original has no task, this plan has %d", g.Tasks())
		}
		return nil
	}
	if c.Tasks == nil && c.Levels == nil && c.Split == nil && c.Stages == nil && c.Edges == nil {
		return errors.New("the case tells nothing of what the original gave")
	}
	stages := planner.Stages(g)
	split := planner.SplitStages(g, stages)
	errs := []error{
		counted("tasks", g.Tasks(), c.Tasks), counted("levels", len(stages), c.Levels),
		counted("stages after the split", len(split), c.Split), oncePerNode(g, split),
	}
	if c.Stages != nil {
		count := len(c.Stages)
		errs = append(errs, counted("stages", len(stages), &count))
		for i := range min(len(stages), count) {
			got, want := namesOf(g, stages[i]), slices.Sorted(slices.Values(c.Stages[i]))
			if !slices.Equal(got, want) {
				errs = append(errs, fmt.Errorf("stage %d: expected %v, came %v", i+1, want, got))
			}
		}
	}
	if c.Edges != nil {
		errs = append(errs, sameOrder("the original", orderOfEdges(c.Edges), "this plan", orderOf(g), nil))
	}
	return errors.Join(errs...)
}

// counted compares a number with that of the case, if it has one.
func counted(what string, got int, want *int) error {
	if want == nil || *want == got {
		return nil
	}
	return fmt.Errorf("%s: expected %d, came %d", what, *want, got)
}

// checkDefault checks that default mode plans the tasks in the original's order. Tasks whose effect
// is already there may be missing. The original's order is that of compat mode, which is why
// checkDefault fails if checkCompat does. If services depend on each other in a cycle, default mode
// must refuse to plan.
func (c *plannerCase) checkDefault(services map[string]model.Service) error {
	if err := c.checkCompat(services); err != nil {
		return err
	}
	in, err := c.input(services)
	if err != nil {
		return err
	}
	original, err := planner.Plan(in)
	if err != nil {
		return err
	}
	in.Compat = false
	if cycle := planner.CheckCycles(services); cycle != nil {
		var e *planner.CycleError
		if _, err := planner.Plan(in); !errors.As(err, &e) {
			return fmt.Errorf("%w, but the plan says %v", cycle, err)
		}
		return nil
	}
	planned := c.live(&in)
	g, err := planner.Plan(in)
	if err != nil {
		return err
	}
	got, want := orderOf(g), orderOf(original)
	var errs []error
	for task := range want {
		if got[task] == nil && !mayMiss(in, task, planned) {
			errs = append(errs, fmt.Errorf("task %s is missing", task))
		}
	}
	for task := range got {
		if want[task] == nil && len(servicesOf(in, task)) > 0 {
			errs = append(errs, fmt.Errorf("task %s is not in the original's plan", task))
		}
	}
	errs = append(errs, sameOrder("the original", want, "this plan", got,
		func(task string) bool { return got[task] != nil && want[task] != nil }))
	return errors.Join(errs...)
}

// live sets the states of the nodes before the operation: a new node has nothing, services to be
// started are stopped, and all others run. It returns the slots ("node/service") of the operation.
func (c *plannerCase) live(in *planner.Input) map[string]bool {
	services := planner.ExpandServices(in.Operation, in.PlannedServices, in.Services)
	planned := map[string]bool{}
	for i := range in.Nodes {
		n := &in.Nodes[i]
		here := in.PlannedNodes == nil || slices.Contains(in.PlannedNodes, n.ID)
		n.Created = in.Operation != model.OpCreate || !here
		n.States = map[string]string{}
		for _, s := range n.Services {
			if here && (services == nil || slices.Contains(services, s)) {
				planned[n.ID+"/"+s] = true
				switch in.Operation {
				case model.OpCreate, model.OpAddServices:
					continue
				case model.OpStart:
					n.States[s] = "STOP"
					continue
				default:
				}
			}
			n.States[s] = "START"
		}
	}
	return planned
}

// mayMiss reports whether the default mode leaves out a task of the original: a repeated START of a
// running service, or a BOOTSTRAP without a new automator.
func mayMiss(in planner.Input, task string, planned map[string]bool) bool {
	part := strings.Split(task, "/")
	switch part[1] {
	case "START":
		return !planned[part[0]+"/"+part[2]]
	case "BOOTSTRAP":
		if in.Operation == model.OpConfigure {
			return true
		}
		known, fresh := map[string]bool{}, map[string]bool{}
		for _, s := range servicesOf(in, task) {
			for _, a := range in.Services[s].Provisioner.Actions {
				if planned[part[0]+"/"+s] {
					fresh[a.Type] = true
				} else {
					known[a.Type] = true
				}
			}
		}
		for t := range fresh {
			if !known[t] {
				return false
			}
		}
		return true
	}
	return false
}

func servicesOf(in planner.Input, task string) []string {
	node, _, _ := strings.Cut(task, "/")
	for _, n := range in.Nodes {
		if n.ID == node {
			return n.Services
		}
	}
	return nil
}

func namesOf(g *plan.Graph, tasks []int) []string {
	out := make([]string, len(tasks))
	for i, v := range tasks {
		out[i] = g.Name(v)
	}
	slices.Sort(out)
	return out
}

func oncePerNode(g *plan.Graph, stages [][]int) error {
	for i, stage := range stages {
		seen := map[int32]bool{}
		for _, v := range stage {
			if seen[g.Node[v]] {
				return fmt.Errorf("part %d has two tasks of node %s", i+1, g.NodeID(v))
			}
			seen[g.Node[v]] = true
		}
	}
	return nil
}

// order holds, for each task, all tasks that come after it.
type order map[string]map[string]bool

func orderOf(g *plan.Graph) order {
	out := order{}
	for v := range g.Len() {
		if g.Action[v] == model.Barrier {
			continue
		}
		after, stack, seen := map[string]bool{}, []int{v}, make([]bool, g.Len())
		for len(stack) > 0 {
			u := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			for _, w := range g.Next(u) {
				if seen[w] {
					continue
				}
				seen[w] = true
				stack = append(stack, int(w))
				if g.Action[w] != model.Barrier {
					after[g.Name(int(w))] = true
				}
			}
		}
		out[g.Name(v)] = after
	}
	return out
}

func orderOfEdges(edges [][2]string) order {
	next := map[string][]string{}
	for _, e := range edges {
		next[e[0]] = append(next[e[0]], e[1])
		next[e[1]] = append(next[e[1]], []string{}...)
	}
	out := order{}
	for v := range next {
		after, stack := map[string]bool{}, []string{v}
		for len(stack) > 0 {
			u := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			for _, w := range next[u] {
				if !after[w] {
					after[w] = true
					stack = append(stack, w)
				}
			}
		}
		out[v] = after
	}
	return out
}

// sameOrder compares two orders over the tasks for which counts returns true, or over all tasks if
// counts is nil.
func sameOrder(nameA string, a order, nameB string, b order, counts func(string) bool) error {
	var errs []error
	only := func(x, y order, name string) {
		for _, v := range slices.Sorted(maps.Keys(x)) {
			for _, w := range slices.Sorted(maps.Keys(x[v])) {
				if (counts == nil || counts(v) && counts(w)) && !y[v][w] {
					errs = append(errs, fmt.Errorf("%s before %s only in %s", v, w, name))
				}
			}
		}
	}
	only(a, b, nameA)
	only(b, a, nameB)
	return errors.Join(errs...)
}
