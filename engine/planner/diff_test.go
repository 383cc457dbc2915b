package planner

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	"pgregory.net/rapid"
)

// diffNodes returns nodes written as "n1:a=START/1/2,b=STOP": services with their state, definition
// and configuration (1 and 1 by default). "-" before the id means that the node is not created, "+"
// that it is not confirmed, and "!" that it is broken. "n1@7" is made from machine 7.
func diffNodes(lines ...string) []DiffNode {
	var out []DiffNode
	for _, line := range lines {
		id, list, _ := strings.Cut(line, ":")
		n := DiffNode{Created: !strings.HasPrefix(id, "-"), Confirmed: !strings.HasPrefix(id, "+"), Broken: strings.HasPrefix(id, "!")}
		n.ID, id, _ = strings.Cut(strings.TrimLeft(id, "-+!"), "@")
		_, _ = fmt.Sscan(id, &n.Machine)
		for _, w := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' }) {
			s := DiffService{Definition: 1, Config: 1}
			name, rest, _ := strings.Cut(w, "=")
			part := strings.Split(rest, "/")
			s.Name, s.State = name, strings.TrimSuffix(part[0], "!")
			s.Initialized = s.State != part[0]
			if len(part) > 2 {
				_, _ = fmt.Sscan(part[1], &s.Definition)
				_, _ = fmt.Sscan(part[2], &s.Config)
			}
			n.Services = append(n.Services, s)
		}
		out = append(out, n)
	}
	return out
}

func TestDiff(t *testing.T) {
	const fresh = "INSTALL CONFIGURE INITIALIZE START"
	for _, c := range []struct {
		name     string
		from, to []DiffNode
		want     string
	}{
		{"nothing", diffNodes("n1:a=START,b=STOP", "-n2:a"), diffNodes("n1:b=STOP,a=START"), ""},
		{"a node comes", nil, diffNodes("n1:a=START,b=STOP"), "n1:CREATE CONFIRM BOOTSTRAP a:" + fresh + " b:INSTALL CONFIGURE INITIALIZE"},
		{"a node comes without services", diffNodes("-n1:a=START"), diffNodes("n1"), "n1:CREATE CONFIRM"},
		{"a node goes", diffNodes("n1:a=START,b=CONFIGURE?,c,d=REMOVE", "n2"), diffNodes("-n2"), "n1:DELETE a:STOP REMOVE b:REMOVE n2:DELETE"},
		{"a broken node goes", diffNodes("!n1:a=START"), nil, "n1:DELETE"},
		{"a node is made of something else", diffNodes("n1@1:a=START"), diffNodes("n1@2:a=START"), "n1:DELETE CREATE CONFIRM BOOTSTRAP a:STOP REMOVE " + fresh},
		{"a broken node is made anew", diffNodes("!n1:a=START"), diffNodes("n1:a=START"), "n1:DELETE CREATE CONFIRM BOOTSTRAP a:" + fresh},
		{"a node that was created only", diffNodes("+n1:a"), diffNodes("n1:a=START"), "n1:CONFIRM BOOTSTRAP a:" + fresh},
		{"a service comes, another goes", diffNodes("n1:a=START"), diffNodes("n1:b=START"), "n1: a:STOP REMOVE b:" + fresh},
		{"a service comes with a new automator", diffNodes("n1:a=START"), diffNodes("n1:a=START,chef=START"), "n1:BOOTSTRAP chef:" + fresh},
		{"the service that brought the automator was never tried", diffNodes("n1:a"), diffNodes("n1:b=START"), "n1:BOOTSTRAP b:" + fresh},
		{"another definition", diffNodes("n1:a=START/1/1,b=STOP/1/1"), diffNodes("n1:a=START/2/1,b=STOP/2/1"), "n1: a:STOP INSTALL CONFIGURE START b:INSTALL CONFIGURE"},
		{"an unknown definition", diffNodes("n1:a=START/0/1"), diffNodes("n1:a=START/0/1"), "n1: a:STOP INSTALL CONFIGURE START"},
		{"another configuration", diffNodes("n1:a=START/1/1,b=STOP/1/1,c=CONFIGURE/1/1,d=INSTALL/1/1"), diffNodes("n1:a=START/1/2,b=STOP/1/2,c=CONFIGURE/1/2,d=INSTALL/1/2"), "n1 reconfigures a b c"},
		{"another configuration, and running no more", diffNodes("n1:a=START/1/1"), diffNodes("n1:a=STOP/1/2"), "n1: a:STOP CONFIGURE"},
		{"another configuration, and running again", diffNodes("n1:a=STOP/1/1"), diffNodes("n1:a=START/1/2"), "n1: a:CONFIGURE START"},
		{"start and stop", diffNodes("n1:a=START,b=STOP"), diffNodes("n1:a=STOP,b=START"), "n1: a:STOP b:START"},
		{"going on with a creation", diffNodes("n1:a=INSTALL,b=CONFIGURE,c=INITIALIZE,d"), diffNodes("n1:a=START,b=START,c=START,d=START"),
			"n1: a:CONFIGURE INITIALIZE START b:INITIALIZE START c:START d:" + fresh},
		{"going on with an upgrade", diffNodes("n1:a=INSTALL!,b=CONFIGURE!"), diffNodes("n1:a=START,b=START"), "n1: a:CONFIGURE START b:START"},
		{"half an upgrade back", diffNodes("n1:a=INSTALL?!/0/1,b=STOP,c=INSTALL!/2/1"), diffNodes("n1:a=START,b=START,c=START"),
			"n1: a:INSTALL CONFIGURE START b:START c:INSTALL CONFIGURE START"},
		{"half done is done again", diffNodes("n1:a=CONFIGURE?,b=INITIALIZE?,c=START?,d=STOP?,e=REMOVE?!"), diffNodes("n1:a=START,b=START,c=START,d=STOP,e=START"),
			"n1: a:CONFIGURE INITIALIZE START b:INITIALIZE START c:START d:STOP e:" + fresh},
		{"half a removal goes on", diffNodes("n1:a=REMOVE?,b=STOP?"), diffNodes("n1:a"), "n1: a:REMOVE b:STOP REMOVE"},
		{"may run and is to be configured", diffNodes("n1:a=START?/1/0"), diffNodes("n1:a=START"), "n1: a:STOP CONFIGURE START"},
		{"may run and is to be configured, and not to run", diffNodes("n1:a=STOP?/1/0"), diffNodes("n1:a=STOP"), "n1: a:STOP CONFIGURE"},
		{"what was not there before", diffNodes("n1:a=START"), diffNodes("n1:a="), "n1: a:STOP REMOVE"},
		{"what had not come as far", diffNodes("n1:a=START,b=CONFIGURE"), diffNodes("n1:a=INSTALL,b=INSTALL"), "n1: a:STOP"},
	} {
		got := differenceString(Diff(c.from, c.to, aService))
		if got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

// aService returns a definition with every action. "chef" has an automator of its own.
func aService(s DiffService) model.Service {
	out := service(s.Name, "install", "configure", "initialize", "start", "stop", "remove")
	if s.Name == "chef" {
		out.Provisioner.Actions["install"] = model.ServiceAction{Type: "chef"}
	}
	return out
}

func differenceString(d Difference) string {
	var out []string
	words := func(actions []model.Action) string {
		var names []string
		for _, a := range actions {
			names = append(names, a.String())
		}
		return strings.Join(names, " ")
	}
	for _, id := range slices.Sorted(maps.Keys(d.Wanted)) {
		w := d.Wanted[id]
		line := id + ":" + words(w.Node)
		for _, s := range slices.Sorted(maps.Keys(w.Services)) {
			line += " " + s + ":" + words(w.Services[s])
		}
		out = append(out, line)
	}
	for _, id := range slices.Sorted(maps.Keys(d.Reconfigure)) {
		out = append(out, id+" reconfigures "+strings.Join(d.Reconfigure[id], " "))
	}
	return strings.Join(out, " ")
}

// lab is a cluster on which plans are carried out: the real state of the machines, and the known
// state.
type lab struct {
	services map[string]model.Service
	known    []DiffNode // in the form of a snapshot
	machines map[string]*machine
}

type machine struct {
	exists, confirmed bool
	spec              uint64
	bootstrapped      map[string]bool
	services          map[string]*deployed
}

type deployed struct {
	present, initialized, running bool
	halfInitialized               bool // then INITIALIZE may run again
	definition, config            uint64
}

func (l *lab) defines(service string, a model.Action) bool {
	_, ok := l.services[service].Provisioner.Actions[a.Key()]
	return ok
}

func (l *lab) kinds(s DiffService) []string {
	var out []string
	for _, a := range l.services[s.Name].Provisioner.Actions {
		if !slices.Contains(out, a.Type) {
			out = append(out, a.Type)
		}
	}
	slices.Sort(out)
	return out
}

// plan returns the graph that leads to another state.
func (l *lab) plan(t *rapid.T, to []DiffNode) *plan.Graph {
	d := Diff(l.known, to, func(s DiffService) model.Service { return l.services[s.Name] })
	for _, n := range l.known {
		i := slices.IndexFunc(to, func(t DiffNode) bool { return t.ID == n.ID })
		if i < 0 || !n.Created || n.Broken || !to[i].Created || n.Machine != to[i].Machine {
			continue
		}
		for _, s := range n.Services { // a service in its target state has no tasks
			s.Initialized = false
			for _, asked := range to[i].Services {
				asked.Initialized = false
				if s == asked && s.Definition > 0 && s.Config > 0 && !strings.HasSuffix(s.State, unclear) &&
					(len(d.Wanted[n.ID].Services[s.Name]) > 0 || slices.Contains(d.Reconfigure[n.ID], s.Name)) {
					t.Fatalf("service %s on %s is as it is to be: %s", s.Name, n.ID, differenceString(d))
				}
			}
		}
	}
	in := Input{Operation: OpConverge, Services: l.services, Wanted: d.Wanted, Reconfigure: d.Reconfigure,
		Gather: rapid.Bool().Draw(t, "gather"), NodeLocal: rapid.Bool().Draw(t, "within nodes")}
	at := map[string]int{}
	for _, side := range [][]DiffNode{l.known, to} {
		for _, n := range side {
			if _, ok := at[n.ID]; !ok {
				at[n.ID] = len(in.Nodes)
				in.Nodes = append(in.Nodes, Node{ID: n.ID, States: map[string]string{}})
			}
			node := &in.Nodes[at[n.ID]]
			for _, s := range n.Services {
				if !slices.Contains(node.Services, s.Name) {
					node.Services = append(node.Services, s.Name)
				}
			}
		}
	}
	for _, n := range l.known {
		node := &in.Nodes[at[n.ID]]
		node.Created = n.Created
		for _, s := range n.Services {
			if s.State != "" {
				node.States[s.Name] = s.State
			}
		}
	}
	g, err := Plan(in)
	if err != nil {
		t.Fatalf("%v (wanted %s)", err, differenceString(d))
	}
	return g
}

// run carries out a plan in a random order that the graph allows: all of it, or a given number of
// tasks and after them some that may end half-way.
func (l *lab) run(t *rapid.T, g *plan.Graph, to []DiffNode, tasks, half int) {
	left := slices.Clone(g.Preds)
	var ready []int
	free := func(v int) {
		queue := []int{v}
		for len(queue) > 0 {
			u := queue[0]
			queue = queue[1:]
			if g.Action[u] != model.Barrier {
				ready = append(ready, u)
				continue
			}
			for _, w := range g.Next(u) {
				if left[w]--; left[w] == 0 {
					queue = append(queue, int(w))
				}
			}
		}
	}
	for v := range g.Len() {
		if g.Preds[v] == 0 {
			free(v)
		}
	}
	busy := map[int32]bool{} // nodes with a task that ended half-way
	for tasks+half > 0 && len(ready) > 0 {
		i := rapid.IntRange(0, len(ready)-1).Draw(t, "next")
		v := ready[i]
		ready = slices.Delete(ready, i, i+1)
		if tasks > 0 {
			tasks--
			l.task(t, g, v, to, true, true)
			for _, w := range g.Next(v) {
				if left[w]--; left[w] == 0 {
					free(int(w))
				}
			}
			continue
		}
		half--
		if !busy[g.Node[v]] {
			l.task(t, g, v, to, false, rapid.Bool().Draw(t, g.Name(v)+" happens"))
		}
		busy[g.Node[v]] = true
	}
}

// task simulates one task. seen is true if its success is reported, and happens if the task takes
// effect. task fails the test if the task finds a machine or service in a state that the plan did
// not expect.
func (l *lab) task(t *rapid.T, g *plan.Graph, v int, to []DiffNode, seen, happens bool) {
	id, name, action := g.NodeID(v), g.ServiceName(v), g.Action[v]
	must := func(ok bool, what string) {
		if !ok {
			t.Fatalf("%s: %s", g.Name(v), what)
		}
	}
	m := l.machines[id]
	if m == nil {
		m = &machine{}
		l.machines[id] = m
	}
	at := slices.IndexFunc(l.known, func(n DiffNode) bool { return n.ID == id })
	if at < 0 {
		l.known = append(l.known, DiffNode{ID: id})
		at = len(l.known) - 1
	}
	n := &l.known[at]
	shall := &DiffNode{}
	if i := slices.IndexFunc(to, func(n DiffNode) bool { return n.ID == id }); i >= 0 {
		shall = &to[i]
	}
	switch action {
	case model.Create:
		must(!m.exists && !n.Created, "the machine is there already")
		n.Created, n.Confirmed, n.Broken, n.Machine, n.Services = true, false, !seen, shall.Machine, nil
		if happens {
			*m = machine{exists: true, spec: shall.Machine, bootstrapped: map[string]bool{}, services: map[string]*deployed{}}
		}
		return
	case model.Delete:
		must(n.Created && (m.exists || n.Broken), "there is no machine")
		n.Broken = !seen
		if seen {
			n.Created, n.Confirmed, n.Services = false, false, nil
		}
		if happens {
			*m = machine{}
		}
		return
	}
	must(m.exists && !n.Broken, "the machine may be missing")
	if action == model.Confirm {
		n.Confirmed, n.Broken = seen, !seen
		m.confirmed = happens
		return
	}
	must(m.confirmed && n.Confirmed, "the machine is not confirmed")
	if action == model.Bootstrap {
		for _, s := range shall.Services {
			for _, kind := range l.kinds(s) {
				m.bootstrapped[kind] = m.bootstrapped[kind] || happens
			}
		}
		return
	}
	d := m.services[name]
	if d == nil {
		d = &deployed{}
		m.services[name] = d
	}
	i := slices.IndexFunc(n.Services, func(s DiffService) bool { return s.Name == name })
	if i < 0 {
		n.Services = append(n.Services, DiffService{Name: name})
		i = len(n.Services) - 1
	}
	k := &n.Services[i]
	asked := DiffService{}
	if i := slices.IndexFunc(shall.Services, func(s DiffService) bool { return s.Name == name }); i >= 0 {
		asked = shall.Services[i]
	}
	for _, kind := range l.kinds(*k) {
		must(m.bootstrapped[kind], "automator "+kind+" is not on the machine")
	}
	state := action.String()
	if !seen {
		state += unclear
	}
	if bit(action)&comeActions != 0 && (action == model.Install || !l.defines(name, model.Install)) {
		k.Definition = 0
		if seen {
			k.Definition = asked.Definition
		}
		if happens {
			d.present, d.definition = true, asked.Definition
		}
	}
	there := d.present || !l.defines(name, model.Install)
	switch action {
	case model.Install:
		must(!d.running || !l.defines(name, model.Stop), "it runs")
	case model.Configure:
		must(there, "it is not installed")
		k.Config = 0
		if seen {
			k.Config = asked.Config
		}
		if happens {
			d.config = asked.Config
		}
		if k.State == "START" {
			state = "START"
		}
	case model.Initialize:
		must(there && (d.config == asked.Config || !l.defines(name, model.Configure)), "it is not configured")
		must(!d.initialized || d.halfInitialized, "it has been initialized before")
		k.Initialized = seen
		d.initialized, d.halfInitialized = d.initialized || happens, !seen
	case model.Start:
		must(there && (d.config == asked.Config || !l.defines(name, model.Configure)), "it is not configured")
		must(d.initialized || !l.defines(name, model.Initialize), "it is not initialized")
		d.running = d.running || happens
	case model.Stop:
		d.running = d.running && !happens
	case model.Remove:
		must(!d.running || !l.defines(name, model.Stop), "it runs")
		k.Initialized = false
		if happens {
			*d = deployed{}
		} else {
			d.halfInitialized = true
		}
	}
	k.State = state
}

// forget drops from the known state everything that a successful operation removed. A service
// without REMOVE stays on the machine; if it is added again, it counts as new.
func (l *lab) forget(to []DiffNode) {
	shall := map[string]DiffNode{}
	for _, n := range to {
		shall[n.ID] = n
	}
	l.known = slices.DeleteFunc(l.known, func(n DiffNode) bool { return !n.Created && !shall[n.ID].Created })
	for i := range l.known {
		n := &l.known[i]
		n.Services = slices.DeleteFunc(n.Services, func(s DiffService) bool {
			stays := slices.ContainsFunc(
				shall[n.ID].Services,
				func(t DiffService) bool { return t.Name == s.Name && conditionOf(t.State).asked != absent },
			)
			if !stays && !l.defines(s.Name, model.Remove) {
				delete(l.machines[n.ID].services, s.Name)
			}
			return !stays
		})
	}
}

// check compares the machines with the target state, as far as the services have actions for it.
func (l *lab) check(t *rapid.T, to []DiffNode) {
	shall := map[string]DiffNode{}
	for _, n := range to {
		shall[n.ID] = n
		if m := l.machines[n.ID]; n.Created && (m == nil || !m.exists) {
			t.Fatalf("node %s is missing", n.ID)
		}
	}
	for id, m := range l.machines {
		n := shall[id]
		if m.exists != n.Created || m.exists && (!m.confirmed || m.spec != n.Machine) {
			t.Fatalf("node %s is %+v, asked for %+v", id, *m, n)
		}
		if !m.exists {
			continue
		}
		asked := map[string]DiffService{}
		for _, s := range n.Services {
			asked[s.Name] = s
			if m.services[s.Name] == nil {
				m.services[s.Name] = &deployed{}
			}
		}
		for name, d := range m.services {
			s := asked[name]
			want := conditionOf(s.State).asked
			fault := func(what string) { t.Fatalf("service %s on %s %s: it is %+v, asked for %+v", name, id, what, *d, s) }
			if want == absent {
				if l.defines(name, model.Remove) && (d.present || d.running && l.defines(name, model.Stop)) {
					fault("is still there")
				}
				continue
			}
			if l.defines(name, model.Install) && (!d.present || d.definition != s.Definition) {
				fault("is not installed")
			}
			if want >= configured && l.defines(name, model.Configure) && d.config != s.Config {
				fault("is configured otherwise")
			}
			if want >= initialized && l.defines(name, model.Initialize) && !d.initialized {
				fault("is not initialized")
			}
			if want == started && l.defines(name, model.Start) && !d.running {
				fault("does not run")
			}
			if want < started && l.defines(name, model.Stop) && d.running {
				fault("runs")
			}
		}
	}
}

// snapshot returns a copy of the known state as a later target. An unknown definition or
// configuration becomes 1.
func (l *lab) snapshot() []DiffNode {
	out := slices.Clone(l.known)
	for i := range out {
		out[i].Services = slices.Clone(out[i].Services)
		for j := range out[i].Services {
			s := &out[i].Services[j]
			s.Definition, s.Config = max(s.Definition, 1), max(s.Config, 1)
		}
	}
	return out
}

// anyTarget draws a target state of a cluster.
func (l *lab) anyTarget(t *rapid.T) []DiffNode {
	var out []DiffNode
	names := slices.Sorted(maps.Keys(l.services))
	state := rapid.SampledFrom([]string{"START", "START", "START", "START", "STOP", "INITIALIZE", "CONFIGURE", "INSTALL", ""})
	few := rapid.Uint64Range(1, 2)
	for i := range 4 {
		n := DiffNode{
			ID:      fmt.Sprintf("n%d", i),
			Created: rapid.IntRange(0, 5).Draw(t, "exists") > 0,
			Machine: max(1, rapid.Uint64Range(0, 2).Draw(t, "machine")),
		}
		if rapid.IntRange(0, 4).Draw(t, "listed") == 0 {
			continue
		}
		for _, s := range rapid.SliceOfDistinct(rapid.SampledFrom(names), rapid.ID[string]).Draw(t, "services of "+n.ID) {
			n.Services = append(
				n.Services,
				DiffService{
					Name:       s,
					State:      state.Draw(t, "state of "+s),
					Definition: few.Draw(t, "definition of "+s),
					Config:     few.Draw(t, "config of "+s),
				},
			)
		}
		out = append(out, n)
	}
	return out
}

// TestDifferencesLeadWhereTheyShould takes a cluster from state to state, by plans that are carried
// out or that break off anywhere with tasks half done. After that the next plan leads to the same
// target, back to the earlier state, or to another state. A plan that was carried out completely
// must reach the target state, and a second Diff must find nothing to do.
func TestDifferencesLeadWhereTheyShould(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &lab{services: map[string]model.Service{}, machines: map[string]*machine{}}
		all := []string{"install", "configure", "initialize", "start", "stop", "remove"}
		for i := range rapid.IntRange(1, 4).Draw(t, "services") {
			name := string(rune('a' + i))
			actions := all
			if rapid.IntRange(0, 3).Draw(t, name+" lacks some") == 0 {
				actions = rapid.SliceOfDistinct(rapid.SampledFrom(all), rapid.ID[string]).Draw(t, "actions of "+name)
			}
			s := service(name, actions...)
			if rapid.IntRange(0, 2).Draw(t, name+" is chef's") == 0 {
				for k, a := range s.Provisioner.Actions {
					a.Type = "chef"
					s.Provisioner.Actions[k] = a
				}
			}
			if i > 0 && rapid.Bool().Draw(t, name+" depends") {
				s.Dependencies.Runtime.Requires = []string{string(rune('a' + i - 1))}
			}
			l.services[name] = s
		}
		var before, to []DiffNode
		for range rapid.IntRange(1, 6).Draw(t, "operations") {
			switch where := rapid.SampledFrom([]string{"elsewhere", "back", "on"}).Draw(t, "goes"); {
			case where == "back":
				before, to = l.snapshot(), before
			case where == "elsewhere" || to == nil:
				before, to = l.snapshot(), l.anyTarget(t)
			}
			g := l.plan(t, to)
			if rapid.Bool().Draw(t, "breaks off") {
				l.run(t, g, to, rapid.IntRange(0, g.Tasks()).Draw(t, "tasks done"), rapid.IntRange(0, 3).Draw(t, "half done"))
				continue
			}
			l.run(t, g, to, g.Tasks(), 0)
			l.forget(to)
			l.check(t, to)
			if again := l.plan(t, to); again.Len() > 0 {
				t.Fatalf("nothing has changed since, but there is more to do: %v", stageNames(again, Stages(again)))
			}
		}
	})
}

// TestDiffIgnoresOrder checks that input in another order has the same result.
func TestDiffIgnoresOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &lab{services: services("a[start]", "b[start]", "chef[start]")}
		from, to := l.anyTarget(t), l.anyTarget(t)
		shuffled := rapid.Permutation(to).Draw(t, "order")
		for i := range shuffled {
			shuffled[i].Services = rapid.Permutation(shuffled[i].Services).Draw(t, "order of services")
		}
		a, b := Diff(from, to, aService), Diff(from, shuffled, aService)
		for _, list := range a.Reconfigure {
			slices.Sort(list)
		}
		for _, list := range b.Reconfigure {
			slices.Sort(list)
		}
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("%s\n%s", differenceString(a), differenceString(b))
		}
	})
}
