package tree

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
)

// Instances are the nodes of a service and its actions.
type Instances struct {
	// Nodes are the ids of the nodes that carry it, in order of their numbers.
	Nodes []string
	// Tasks are the keys of its actions, in the order in which they run.
	Tasks []string
	// NotOnAgent returns why a task cannot be done on an agent, or "". It may be nil: none can.
	NotOnAgent func(task string) string
}

// Outline is a template's plan for given nodes, before there is a graph.
type Outline struct {
	Name     string
	Strategy Strategy
	Phases   []OutlinePhase
	// Turns is true if nodes take turns in the graphs to draft: their tasks wait only for tasks of
	// the same node, so that nothing is reconfigured after all the rest.
	Turns bool
}

// OutlinePhase is one phase of an outline.
type OutlinePhase struct {
	Name     string
	Service  string
	Strategy Strategy
	Timeout  int64 // milliseconds
	Steps    []OutlineStep
	// whole is true if each step is everything that is done on its node.
	whole bool
}

// OutlineStep is a step on one node, or on an agent if Node is "".
type OutlineStep struct {
	Node  string
	Tasks []string
}

// Name returns the step's name: "hello-0:[once, server]".
func (s OutlineStep) Name() string { return place(s.Node) + ":[" + strings.Join(s.Tasks, ", ") + "]" }

// place returns the name of where a step is done, for the name of its node.
func place(node string) string { return cmp.Or(node, model.AgentSteps) }

// Outlines returns the phases and steps of a template's plan (docs/spec/plans.md §13). The
// error, of type model.Faults, has all of its faults for these services.
//
// The strategy orders nodes. The steps of one node follow each other even if nodes are handled
// in parallel; such a phase shows the strategy "dependency".
func Outlines(p model.Plan, services map[string]Instances) (*Outline, error) {
	var faults model.Faults
	out := &Outline{Name: p.Name}
	fault := func(path, format string, args ...any) { faults.Add(path, fmt.Sprintf(format, args...)) }
	var err error
	if out.Strategy, err = ParseStrategy(p.Strategy); err != nil || p.Strategy != "" && !slices.Contains(model.PlanStrategies, p.Strategy) {
		fault("strategy", "Unsupported plan strategy %q", p.Strategy)
	}
	for i, ph := range p.Phases {
		path := fmt.Sprintf("phases[%d]", i)
		at, ok := services[ph.Service]
		if !ok {
			fault(path+".service", "Unable to find pod %q referenced by phase %q", ph.Service, ph.Name)
			continue
		}
		o := OutlinePhase{Name: ph.Name, Service: ph.Service, Timeout: int64(ph.Timeout), whole: len(ph.Steps) == 0}
		if ph.Batch != "" || ph.Strategy == "batch" {
			o.Strategy = Strategy{Kind: Batch, MaxFailures: ph.MaxFailures}
			err = o.Strategy.SetBatch(ph.Batch)
		} else {
			o.Strategy, err = ParseStrategy(ph.Strategy)
		}
		if err != nil {
			fault(path+".strategy", "%v", err)
		}
		if !o.whole && o.Strategy.Kind == Parallel {
			o.Strategy.Kind = Dependency
		}
		o.Steps = outlineSteps(path, ph, at, fault)
		out.Phases = append(out.Phases, o)
	}
	return out, faults.Err()
}

func outlineSteps(path string, ph model.PlanPhase, at Instances, fault func(path, format string, args ...any)) []OutlineStep {
	var out []OutlineStep
	if len(ph.Steps) == 0 {
		for _, n := range at.Nodes {
			out = append(out, OutlineStep{n, at.Tasks})
		}
		return out
	}
	entries, agent := map[string]int{}, -1
	for i, s := range ph.Steps {
		for k, tasks := range s.Tasks {
			for _, t := range tasks {
				if !slices.Contains(at.Tasks, t) {
					fault(
						fmt.Sprintf("%s.steps[%d].tasks[%d]", path, i, k),
						"Malformed step: step refers to a task that does not exist: %q of %s",
						t,
						ph.Service,
					)
				} else if why := at.onAgent(t); s.OnAgent() && why != "" {
					fault(fmt.Sprintf("%s.steps[%d].tasks[%d]", path, i, k), "Malformed step: %s", why)
				}
			}
		}
		if s.OnAgent() {
			agent = i
			continue
		}
		node := s.Node
		if n, err := strconv.Atoi(node); err == nil {
			node = strconv.Itoa(n)
		}
		entries[node] = i
	}
	add := func(node string, i int) {
		for _, tasks := range ph.Steps[i].Tasks {
			out = append(out, OutlineStep{node, tasks})
		}
	}
	if agent == 0 {
		add("", agent)
	}
	for n, node := range at.Nodes {
		i, ok := entries[strconv.Itoa(n)]
		if len(entries) == 0 {
			break // the phase is about no node
		}
		if !ok {
			if i, ok = entries[model.DefaultSteps]; !ok {
				fault(path+".steps", "Missing '%d' step entry, and no 'default' defined", n)
				continue
			}
		}
		add(node, i)
	}
	if agent > 0 {
		add("", agent)
	}
	return out
}

func (in *Instances) onAgent(task string) string {
	if in.NotOnAgent == nil {
		return "this plan has no steps on an agent"
	}
	return in.NotOnAgent(task)
}

// slot is a service on a node of a graph.
type slot struct {
	node    int32
	service int16
}

// Draft puts the tasks of a graph into phases, in this order:
//
//   - a phase "nodes", which makes machines;
//   - a phase for each service that the outline does not name;
//   - the phases of the outline, without tasks that the graph lacks;
//   - a phase for each service that the outline names, with the nodes where no step names it;
//   - a phase "nodes", which deletes machines;
//   - a phase "reconfigure" for services that are only reconfigured at the end.
//
// If steps name only some tasks of a service on a node, each other task joins the step of the
// service's next task there that has a step, or else of the previous one. The error,
// model.Faults, names tasks that are in two steps.
func (o *Outline) Draft(g *plan.Graph) (*Draft, error) {
	var faults model.Faults
	d := newDraft(g, o.Name, o.Strategy)
	cut := g.Len()
	if !o.Turns {
		cut = reconfiguration(g)
	}
	d.outline(o, g, cut, &faults)
	late := make([]uint32, 0, g.Len()-cut)
	for v := cut; v < g.Len(); v++ {
		if g.Action[v] != model.Barrier {
			late = append(late, uint32(v))
		}
	}
	d.perNode(g, Phase{Name: "reconfigure", Strategy: Strategy{Kind: Dependency}}, late)
	return d, faults.Err()
}

// reconfiguration returns the first vertex of the final part of a graph that only reconfigures
// existing services, while the rest installs, makes or removes. These tasks wait for all the
// rest, so they cannot share phases with it. No task before that vertex waits for one after
// it.
func reconfiguration(g *plan.Graph) int {
	does := map[slot]uint16{}
	all := uint16(0)
	for v, a := range g.Action {
		all |= 1 << a
		if g.Service[v] >= 0 {
			does[slot{g.Node[v], g.Service[v]}] |= 1 << a
		}
	}
	if all&(1<<model.Create|1<<model.Install|1<<model.Remove|1<<model.Delete) == 0 {
		return g.Len()
	}
	cut := g.Len()
	for v := cut - 1; v >= 0; v-- {
		if g.Action[v] == model.Barrier {
			continue
		}
		if has := does[slot{g.Node[v], g.Service[v]}]; g.Service[v] < 0 || has&(1<<model.Install|1<<model.Remove) != 0 ||
			has&(1<<model.Configure) == 0 {
			break
		}
		cut = v
	}
	for v := cut; v < g.Len(); v++ {
		for _, w := range g.Next(v) {
			if int(w) < cut { // the graph is not numbered in a planner's order
				return g.Len()
			}
		}
	}
	return cut
}

// outline puts the vertices before end into the phases of o.
func (d *Draft) outline(o *Outline, g *plan.Graph, end int, faults *model.Faults) {
	within := func(v uint32) bool { return int(v) < end }
	slots := map[slot][]uint32{} // their tasks, in order of number
	for v := range end {
		if k := (slot{g.Machine(g.Node[v]), g.Service[v]}); k.node >= 0 && k.service >= 0 {
			slots[k] = append(slots[k], uint32(v))
		}
	}
	nodes := make(map[string]int32, len(g.Nodes))
	for i, id := range g.Nodes {
		nodes[id] = g.Machine(int32(i))
	}
	named := map[string]bool{}
	for _, p := range o.Phases {
		named[p.Service] = true
	}
	inner := Strategy{Kind: Dependency}
	p := partsOf(g, within)
	amid := between(g, end)
	d.perNode(g, Phase{Name: NodesPhase, Strategy: inner}, slices.DeleteFunc(slices.Clone(p.made), func(v uint32) bool { return amid[v] }))
	for _, s := range p.order {
		if name := g.Services[s]; !named[name] {
			d.perNode(g, Phase{Name: name, Service: name, Strategy: inner}, p.services[s])
		}
	}
	for i, ph := range o.Phases {
		d.phase(Phase{Name: ph.Name, Service: ph.Service, Strategy: ph.Strategy, Timeout: ph.Timeout})
		service := int16(slices.Index(g.Services, ph.Service))
		for k, s := range ph.Steps {
			node, ok := nodes[s.Node]
			if !ok || service < 0 {
				continue
			}
			var mine []uint32
			for _, v := range slots[slot{node, service}] {
				if ph.whole || slices.Contains(s.Tasks, g.Action[v].Key()) {
					mine = append(mine, v)
				}
			}
			if len(mine) == 0 {
				continue
			}
			step := d.step()
			for _, v := range mine {
				if d.Step[v] != plan.NoStep {
					faults.Add(
						fmt.Sprintf("phases[%d]", i),
						fmt.Sprintf("%s is in two steps of the plan (here in %s, number %d): name it once", g.Name(int(v)), s.Name(), k),
					)
				}
				d.Step[v] = step
			}
		}
	}
	for _, vs := range slots {
		d.join(vs)
	}
	for v := end - 1; v >= 0; v-- { // later tasks on the node have their steps already
		for _, w := range g.Next(v) {
			if amid[uint32(v)] && g.Node[w] == g.Node[v] && d.Step[w] != plan.NoStep {
				d.Step[v] = min(d.Step[v], d.Step[w])
			}
		}
	}
	// Services that a plan's steps do not name at all on a node come after them.
	rest := partsOf(g, func(v uint32) bool { return within(v) && d.Step[v] == plan.NoStep && g.Service[v] >= 0 })
	for _, s := range rest.order {
		d.perNode(g, Phase{Name: g.Services[s], Service: g.Services[s], Strategy: inner}, rest.services[s])
	}
	for _, v := range p.made {
		if d.Step[v] == plan.NoStep {
			p.gone = append(p.gone, v)
		}
	}
	d.perNode(g, Phase{Name: NodesPhase, Strategy: inner}, p.gone)
}

// between finds tasks of whole nodes that come after a task of a service on their node. An
// example is a BOOTSTRAP between the stop and the installation of a service that moves to
// another automator. Such tasks belong to that service's step.
func between(g *plan.Graph, end int) map[uint32]bool {
	out := map[uint32]bool{}
	for v := range end {
		if g.Node[v] < 0 || g.Service[v] < 0 && !out[uint32(v)] {
			continue
		}
		for _, w := range g.Next(v) {
			if int(w) < end && g.Node[w] == g.Node[v] && g.Service[w] < 0 {
				out[w] = true
			}
		}
	}
	return out
}

// join puts tasks that are in no step into one. vs are the tasks of one service on one node, in
// order. Each such task joins the step of the next task that has one, or else of the previous one.
func (d *Draft) join(vs []uint32) {
	step := uint32(plan.NoStep)
	for _, v := range slices.Backward(vs) {
		if d.Step[v] == plan.NoStep {
			d.Step[v] = step
		}
		step = d.Step[v]
	}
	for i, v := range vs {
		if i > 0 && d.Step[v] == plan.NoStep {
			d.Step[v] = d.Step[vs[i-1]]
		}
	}
}

// Graph returns the graph of a plan that an operator starts. It has a vertex for each task that
// the steps name; the tasks of one step run one after the other. The error, model.Faults, names
// tasks that cannot be planned.
func (o *Outline) Graph() (*plan.Graph, *Draft, error) {
	var faults model.Faults
	nodes, services := map[string]int{}, map[string]int{}
	index := func(m map[string]int, names *[]string, name string) int {
		i, ok := m[name]
		if !ok {
			i = len(m)
			m[name] = i
			*names = append(*names, name)
		}
		return i
	}
	var nodeNames, serviceNames []string
	for _, p := range o.Phases {
		for _, s := range p.Steps {
			if s.Node != "" {
				index(nodes, &nodeNames, s.Node)
			}
		}
		index(services, &serviceNames, p.Service)
		for _, s := range p.Steps {
			for _, name := range s.Tasks {
				if _, err := model.ParseAction(name); err != nil || s.Node == "" {
					index(services, &serviceNames, model.OwnAction(p.Service, name))
				}
			}
		}
	}
	b := plan.NewBuilder(nodeNames, serviceNames)
	d := &Draft{Tree: Tree{Name: o.Name, Strategy: o.Strategy}}
	for i, p := range o.Phases {
		d.phase(Phase{Name: p.Name, Service: p.Service, Strategy: p.Strategy, Timeout: p.Timeout})
		for k, s := range p.Steps {
			step, last := d.step(), uint32(plan.NoStep)
			node := plan.None
			if s.Node != "" {
				node = nodes[s.Node]
			}
			for _, name := range s.Tasks {
				a, err := model.ParseAction(name)
				entry := p.Service
				if err != nil || node == plan.None { // on an agent, no action has an effect on the service of a node
					a, entry = model.Run, model.OwnAction(p.Service, name)
				} else if a.PerNode() || a == model.Barrier || a == model.Run {
					faults.Add(fmt.Sprintf("phases[%d]", i), fmt.Sprintf("step %d, %s: %q is nothing that a plan can do", k, s.Name(), name))
					continue
				}
				v := b.Task(a, node, services[entry])
				d.Step = append(d.Step, step)
				if last != plan.NoStep {
					b.Edge(last, v)
				}
				last = v
			}
		}
	}
	if err := faults.Err(); err != nil {
		return nil, nil, err
	}
	g, err := b.Build()
	return g, d, err
}
