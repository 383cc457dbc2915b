package planner

import (
	"slices"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
)

// TestStatesDecide checks the tasks that each operation plans for a service in each state
// (docs/spec/planner.md, "Operations"; finished actions are not repeated). I, C, N, S, T, R stand
// for INSTALL, CONFIGURE, INITIALIZE, START, STOP, REMOVE, in the order of the plan.
func TestStatesDecide(t *testing.T) {
	columns := []struct {
		name string
		in   Input
	}{
		{"create", Input{Operation: model.OpCreate}},
		{"add-services", Input{Operation: model.OpAddServices}},
		{"remove-services", Input{Operation: model.OpRemoveServices}},
		{"shrink", Input{Operation: model.OpShrink}},
		{"start", Input{Operation: model.OpStart}},
		{"stop", Input{Operation: model.OpStop}},
		{"restart", Input{Operation: model.OpRestart}},
		{"configure", Input{Operation: model.OpConfigure}},
		{"configure, restart", Input{Operation: model.OpConfigure, Restart: true}},
		{"upgrade", Input{Operation: model.OpUpgrade}},
		{"reconfigured", Input{Operation: model.OpGrow, PlannedNodes: []string{}, Reconfigure: map[string][]string{"n": {"a"}}}},
		{"needed by what starts", Input{Operation: model.OpAddServices, PlannedServices: []string{"user"}}},
	}
	for _, row := range strings.Split(strings.TrimSpace(`
-            ICNS ICNS TR TR S  T TS C TCS TICS TCS -
INSTALL?     ICNS ICNS R  R  -  - -  C C   IC   C   -
INSTALL      CNS  CNS  R  R  S  - S  C C   IC   C   -
CONFIGURE?   CNS  CNS  TR TR S  T TS C TCS TICS C   -
CONFIGURE    NS   NS   TR TR S  T TS C TCS TICS C   -
INITIALIZE?  NS   NS   R  R  S  - S  C C   IC   C   -
INITIALIZE   S    S    R  R  S  - S  C C   IC   C   S
START?       S    S    TR TR S  T TS C TCS TICS TCS S
START        -    -    TR TR -  T TS C TCS TICS TCS -
STOP?        S    S    TR TR S  T TS C TCS TICS TCS S
STOP         S    S    R  R  S  - S  C C   IC   C   S
REMOVE?      ICNS ICNS R  R  -  - -  - -   -    -   -
REMOVE       ICNS ICNS -  -  -  - -  - -   -    -   -`), "\n") {
		words := strings.Fields(row)
		state := strings.Trim(words[0], "-")
		for i, c := range columns {
			in := c.in
			in.Services = services("a[install,configure,initialize,start,stop,remove]", "user[start] runtime:a")
			in.Nodes = nodes("n:a,user=REMOVE")
			if state != "" {
				in.Nodes[0].States["a"] = state
			}
			g := mustPlan(t, in)
			got := ""
			for v := range g.Len() {
				if g.ServiceName(v) == "a" {
					got += string("..  ICNSTR"[g.Action[v]])
				}
			}
			if want := strings.Trim(words[i+1], "-"); got != want {
				t.Errorf("%s of a service at %q: got %q, want %q", c.name, state, got, want)
			}
		}
	}
}

// TestNodesThatAreNotCreated checks that operations that create nodes plan the whole create chain
// on a node that is not created, regardless of the states of its services, and that other
// operations plan nothing on it.
func TestNodesThatAreNotCreated(t *testing.T) {
	for _, c := range []struct {
		op   model.OperationType
		want int
	}{
		{model.OpCreate, 9}, {model.OpGrow, 9}, {model.OpAddServices, 9}, {model.OpReplaceNode, 9},
		{model.OpDelete, 0}, {model.OpShrink, 0}, {model.OpRemoveServices, 0}, {model.OpUpgrade, 0},
		{model.OpStart, 0}, {model.OpStop, 0}, {model.OpRestart, 0}, {model.OpConfigure, 0},
	} {
		in := Input{Operation: c.op, Services: services("a[install,configure,initialize,start,stop,remove]", "b[start,stop]", "c[configure]"),
			Nodes: nodes("-n:a=START,b=STOP,c=CONFIGURE")}
		if g := mustPlan(t, in); g.Tasks() != c.want {
			t.Errorf("%s: %v", c.op, stageNames(g, Stages(g)))
		}
	}
}

// TestReconfiguration checks that a changed configuration restarts running services that permit it,
// in the order of dependencies, after everything else.
func TestReconfiguration(t *testing.T) {
	all := services("db[configure,start,stop]", "app[configure,start,stop] runtime:db", "cron[configure,start,stop]", "motd[configure]",
		"jar[install,start]")
	no := false
	cron := all["cron"]
	cron.RestartOnConfigure = &no
	all["cron"] = cron
	in := Input{Operation: model.OpGrow, Services: all, PlannedNodes: []string{"n3"},
		Nodes:       nodes("n1:db=START,cron=START,jar=START", "n2:app=START,motd=CONFIGURE", "-n3:app"),
		Reconfigure: map[string][]string{"n1": {"db", "cron", "jar"}, "n2": {"app", "motd"}, "n3": {"app"}}}
	g := mustPlan(t, in)
	want := []string{"n3/CREATE", "n3/CONFIRM", "n3/BOOTSTRAP", "n3/CONFIGURE/app", "n3/START/app",
		"n1/CONFIGURE/cron n2/CONFIGURE/motd n2/STOP/app", "n1/STOP/db n2/CONFIGURE/app", "n1/CONFIGURE/db", "n1/START/db", "n2/START/app"}
	if got := stageNames(g, Stages(g)); !slices.Equal(got, want) {
		t.Errorf("\n got %q\nwant %q", got, want)
	}
}
