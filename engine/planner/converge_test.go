package planner

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"pgregory.net/rapid"
)

// wanted parses lines such as "n1:CREATE,CONFIRM a:STOP,REMOVE b:START".
func wanted(t testing.TB, lines ...string) map[string]Wanted {
	t.Helper()
	out := map[string]Wanted{}
	for _, line := range lines {
		w := Wanted{Services: map[string][]model.Action{}}
		id := ""
		for i, word := range strings.Fields(line) {
			name, list, _ := strings.Cut(word, ":")
			var actions []model.Action
			for _, a := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' }) {
				action, err := model.ParseAction(a)
				if err != nil {
					t.Fatal(err)
				}
				actions = append(actions, action)
			}
			if i == 0 {
				id, w.Node = name, actions
			} else {
				w.Services[name] = actions
			}
		}
		out[id] = w
	}
	return out
}

// TestConverge checks the levels of converging plans, one on each line.
func TestConverge(t *testing.T) {
	web := services(
		"db[install,configure,initialize,start,stop,remove]",
		"app[install,configure,start,stop,remove] runtime:db install:db",
		"lb[configure,start,stop] runtime:app",
		"cron[configure]",
	)
	const come = ":CREATE,CONFIRM,BOOTSTRAP"
	const chain = ":INSTALL,CONFIGURE,INITIALIZE,START"
	for _, c := range []struct {
		name   string
		in     Input
		wanted []string
		want   []string
	}{
		{"nothing", Input{Nodes: nodes("n1:db=START")}, nil, nil},
		{"nothing but what no service defines", Input{Nodes: nodes("n1:lb=START")}, []string{"n1 lb:INSTALL,REMOVE"}, nil},
		{"a node comes while another goes", Input{Nodes: nodes("n1:app=START", "-n2:app")},
			[]string{"n1:DELETE app:STOP,REMOVE", "n2" + come + " app" + chain},
			[]string{"n1/STOP/app n2/CREATE", "n1/REMOVE/app n2/CONFIRM", "n1/DELETE n2/BOOTSTRAP", "n2/INSTALL/app", "n2/CONFIGURE/app", "n2/START/app"}},
		{"a replaced node's services start before what needs them", Input{Nodes: nodes("n1:db=START", "n2:app=START")},
			[]string{"n1:DELETE,CREATE,CONFIRM,BOOTSTRAP db:STOP,REMOVE,INSTALL,CONFIGURE,INITIALIZE,START", "n2 app:STOP,CONFIGURE,START"},
			[]string{"n2/STOP/app", "n1/STOP/db n2/CONFIGURE/app", "n1/REMOVE/db", "n1/DELETE", "n1/CREATE", "n1/CONFIRM", "n1/BOOTSTRAP", "n1/INSTALL/db", "n1/CONFIGURE/db", "n1/INITIALIZE/db", "n1/START/db", "n2/START/app"}},
		{"states do not count", Input{Nodes: nodes("n1:db=START")}, []string{"n1:CONFIRM db:INSTALL,START"}, []string{"n1/CONFIRM", "n1/INSTALL/db", "n1/START/db"}},
		{"a service makes room for another", Input{Nodes: nodes("n1:db=START,lb=START")}, []string{"n1 db:STOP,REMOVE lb:STOP,CONFIGURE,START"},
			[]string{"n1/STOP/db n1/STOP/lb", "n1/REMOVE/db", "n1/CONFIGURE/lb", "n1/START/lb"}},
		{"upgrade", Input{Nodes: nodes("n1:db=START,app=START", "n2:app=START")},
			[]string{"n1 db:STOP,INSTALL,CONFIGURE,START app:STOP,INSTALL,CONFIGURE,START", "n2 app:STOP,INSTALL,CONFIGURE,START"},
			[]string{"n1/STOP/app n2/STOP/app", "n1/STOP/db", "n1/INSTALL/db", "n1/CONFIGURE/db n1/INSTALL/app n2/INSTALL/app", "n1/CONFIGURE/app n1/START/db n2/CONFIGURE/app", "n1/START/app n2/START/app"}},
		{"upgrade from a definition with other ways to leave", Input{Nodes: nodes("n1:lb=START,app=START"), Previous: services("lb[install,start,remove]", "app[stop]")},
			[]string{"n1 lb:STOP,REMOVE,INSTALL,CONFIGURE,START app:STOP,REMOVE,INSTALL"},
			[]string{"n1/REMOVE/lb n1/STOP/app", "n1/CONFIGURE/lb n1/INSTALL/app", "n1/START/lb"}},
		{"upgrade, node by node", Input{NodeLocal: true, Nodes: nodes("n1:db=START", "n2:app=START")},
			[]string{"n1 db:STOP,INSTALL,CONFIGURE,START", "n2 app:STOP,INSTALL,CONFIGURE,START"},
			[]string{"n1/STOP/db n2/STOP/app", "n1/INSTALL/db n2/INSTALL/app", "n1/CONFIGURE/db n2/CONFIGURE/app", "n1/START/db n2/START/app"}},
		{"gathered: what goes does not wait, what comes does", Input{Gather: true, Nodes: nodes("-n1:db", "n2:app=START,lb=START")},
			[]string{"n1" + come + " db:INSTALL", "n2 app:STOP lb:STOP,CONFIGURE"},
			[]string{"n1/CREATE n2/STOP/lb", "n1/CONFIRM n2/STOP/app", "n1/BOOTSTRAP n2/CONFIGURE/lb", "n1/INSTALL/db"}},
		{"gathered: nobody waits for a node that goes", Input{Gather: true, Nodes: nodes("-n1:db", "n2:app=START", "n3:lb")},
			[]string{"n1" + come, "n2:DELETE app:STOP,REMOVE", "n3:CREATE,CONFIRM,DELETE lb:CONFIGURE"},
			[]string{"n1/CREATE n2/STOP/app n3/DELETE", "n1/CONFIRM n2/REMOVE/app n3/CREATE", "n2/DELETE n3/CONFIRM", "n1/BOOTSTRAP n3/CONFIGURE/lb"}},
		{"the rest is configured last, and what has tasks among these", Input{Nodes: nodes("n1:db=START", "n2:app=START", "n3:lb=START"),
			Reconfigure: map[string][]string{"n1": {"db"}, "n2": {"app"}, "n3": {"lb"}}}, []string{"n1 db:STOP,REMOVE", "n3 lb:START"},
			[]string{"n1/STOP/db n3/CONFIGURE/lb", "n1/REMOVE/db n3/START/lb", "n2/STOP/app", "n2/CONFIGURE/app", "n2/START/app"}},
		{"node by node, the rest is stopped and configured when the new machine is confirmed", Input{NodeLocal: true, Gather: true, GatherFrom: []string{"n1"},
			Nodes: nodes("n1:db=START", "n2:app=START,lb=START", "n3:lb=STOP"), Reconfigure: map[string][]string{"n2": {"app"}, "n3": {"lb"}}},
			[]string{"n1:DELETE,CREATE,CONFIRM db:INSTALL,START"},
			[]string{"n1/DELETE", "n1/CREATE", "n1/CONFIRM", "n1/INSTALL/db n2/STOP/app n3/CONFIGURE/lb", "n1/START/db n2/CONFIGURE/app", "n2/START/app"}},
		{"what goes is not configured any more", Input{Nodes: nodes("n1:cron=CONFIGURE"), Reconfigure: map[string][]string{"n1": {"cron"}}}, []string{"n1 cron:STOP,REMOVE"}, nil},
		{"nothing is configured on a new machine that has no part in it", Input{Nodes: nodes("n1:db=START", "n2:lb=START"), Reconfigure: map[string][]string{"n1": {"db"}, "n2": {"lb"}}},
			[]string{"n1:DELETE,CREATE", "n2:DELETE"}, []string{"n1/DELETE n2/DELETE", "n1/CREATE"}},
	} {
		c.in.Operation, c.in.Services, c.in.Wanted = OpConverge, web, wanted(t, c.wanted...)
		g := mustPlan(t, c.in)
		if got := stageNames(g, Stages(g)); !slices.Equal(got, c.want) {
			t.Errorf("%s:\n got %q\nwant %q", c.name, got, c.want)
		}
	}
}

// TestConvergeFaults checks that an invalid Wanted is refused as a whole, with every fault and its
// path.
func TestConvergeFaults(t *testing.T) {
	all := services("a[install,start,stop,remove]", "b[start]")
	for _, c := range []struct {
		name   string
		in     Input
		wanted []string
		want   []string // paths
	}{
		{"unknown", Input{}, []string{"n9:CREATE", "n1 c:START b:START"}, []string{"wanted.n1.services.b", "wanted.n1.services.c", "wanted.n9"}},
		{"not for it", Input{}, []string{"n1:DELETE,STOP,BARRIER a:DELETE,STOP,BARRIER"}, []string{"wanted.n1.node[1]", "wanted.n1.node[2]", "wanted.n1.services.a[0]", "wanted.n1.services.a[2]"}},
		{"after its end", Input{}, []string{"n1:DELETE,CONFIRM a:STOP,START"}, []string{"wanted.n1.node", "wanted.n1.services.a"}},
		{"before its start", Input{}, []string{"n1:CREATE a:STOP"}, []string{"wanted.n1.services.a"}},
		{"besides", Input{PlannedNodes: []string{"n1"}}, nil, []string{"operation"}},
		{"otherwise", Input{Operation: model.OpGrow}, []string{"n1"}, []string{"wanted"}},
	} {
		if c.in.Operation == "" {
			c.in.Operation = OpConverge
		}
		c.in.Services, c.in.Nodes, c.in.Wanted = all, nodes("n1:a", "n2:b"), wanted(t, c.wanted...)
		_, err := Plan(c.in)
		var faults model.Faults
		errors.As(err, &faults)
		var paths []string
		for _, f := range faults {
			paths = append(paths, f.Path)
		}
		if !slices.Equal(paths, c.want) {
			t.Errorf("%s: got %v (%v), want %v", c.name, paths, err, c.want)
		}
	}
}

// TestConvergePlansJustWhatIsWanted checks that a converging plan has the wanted tasks, as far as
// services define them, that its only other tasks are those of reconfigured services, and that
// their order is exactly what the rules require.
func TestConvergePlansJustWhatIsWanted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := anyInput(t)
		in.Operation, in.Restart, in.Graceful = OpConverge, false, false
		limit(t, &in)
		checkOrder(t, in)
		g, err := Plan(in)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]bool{}
		for id, w := range in.Wanted {
			for _, a := range w.Node {
				want[id+"/"+a.String()] = true
			}
			for s, actions := range w.Services {
				for _, a := range actions {
					if _, ok := in.Services[s].Provisioner.Actions[a.Key()]; ok {
						want[id+"/"+a.String()+"/"+s] = true
					}
				}
			}
		}
		for v := range g.Len() {
			if g.Action[v] == model.Barrier {
				continue
			}
			name := g.Name(v)
			if !want[name] && !slices.Contains(in.Reconfigure[g.NodeID(v)], g.ServiceName(v)) {
				t.Fatalf("%s is planned and was not wanted", name)
			}
			delete(want, name)
		}
		if len(want) > 0 {
			t.Fatalf("wanted and not planned: %v", want)
		}
	})
}
