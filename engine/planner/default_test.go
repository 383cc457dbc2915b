package planner

import (
	"slices"
	"testing"

	"github.com/coopr/coopr/engine/model"
)

// TestDefaultPlans checks the plans of the default mode for clusters in various states. Each line
// is one level of the plan.
func TestDefaultPlans(t *testing.T) {
	web := services("db[install,configure,initialize,start,stop,remove]", "app[install,configure,start,stop,remove] runtime:db install:db",
		"lb[configure,start,stop] runtime:app")
	no := false
	calm := services("db[configure,start,stop]", "app[configure,start,stop] runtime:db")
	s := calm["db"]
	s.RestartOnConfigure = &no
	calm["db"] = s
	chef := services("a[install,start]", "b[install,start] runtime:a")
	s = chef["b"]
	s.Provisioner.Actions["install"] = model.ServiceAction{Type: "chef"}
	chef["b"] = s
	for _, c := range []struct {
		name string
		in   Input
		want []string
	}{
		{"create", Input{Operation: model.OpCreate, Services: web, Nodes: nodes("-n1:db", "-n2:app", "-n3:")}, []string{
			"n1/CREATE n2/CREATE n3/CREATE", "n1/CONFIRM n2/CONFIRM n3/CONFIRM", "n1/BOOTSTRAP n2/BOOTSTRAP",
			"n1/INSTALL/db", "n1/CONFIGURE/db n2/INSTALL/app", "n1/INITIALIZE/db n2/CONFIGURE/app", "n1/START/db", "n2/START/app"}},
		{"create, gathered", Input{Operation: model.OpCreate, Services: web, Gather: true, GatherFrom: []string{"n1"},
			Nodes: nodes("-n1:db", "-n2:lb")}, []string{
			"n1/CREATE n2/CREATE", "n1/CONFIRM n2/CONFIRM", "n1/BOOTSTRAP n2/BOOTSTRAP",
			"n1/INSTALL/db n2/CONFIGURE/lb", "n1/CONFIGURE/db n2/START/lb", "n1/INITIALIZE/db", "n1/START/db"}}, // app is on no node
		{"create, half done", Input{Operation: model.OpCreate, Services: web, Nodes: nodes("n1:db=CONFIGURE", "n2:app=START", "-n3:app")},
			[]string{
				"n1/INITIALIZE/db n3/CREATE", "n1/START/db n3/CONFIRM", "n3/BOOTSTRAP", "n3/INSTALL/app", "n3/CONFIGURE/app", "n3/START/app"}},
		{"create, all done", Input{Operation: model.OpCreate, Services: web, Nodes: nodes("n1:db=START", "n2:app=START")}, nil},
		{"grow", Input{Operation: model.OpGrow, Services: web, PlannedNodes: []string{"n3"},
			Nodes:       nodes("n1:db=START", "n2:app=START", "-n3:app"),
			Reconfigure: map[string][]string{"n1": {"db"}, "n3": {"app"}}}, []string{
			"n3/CREATE", "n3/CONFIRM", "n3/BOOTSTRAP", "n3/INSTALL/app", "n3/CONFIGURE/app", "n3/START/app", "n1/STOP/db", "n1/CONFIGURE/db",
			"n1/START/db"}},
		{"grow onto a stopped service", Input{Operation: model.OpGrow, Services: web, PlannedNodes: []string{"n2"},
			Nodes: nodes("n1:db=STOP", "-n2:app")}, []string{
			"n1/START/db n2/CREATE", "n2/CONFIRM", "n2/BOOTSTRAP", "n2/INSTALL/app", "n2/CONFIGURE/app", "n2/START/app"}},
		{"grow onto a stopped service that it reconfigures",
			Input{Operation: model.OpGrow, Services: web, PlannedNodes: []string{"n2"}, Nodes: nodes("n1:db=STOP", "-n2:app"),
				Reconfigure: map[string][]string{"n1": {"db"}}}, []string{
				"n1/CONFIGURE/db n2/CREATE", "n1/START/db n2/CONFIRM", "n2/BOOTSTRAP", "n2/INSTALL/app", "n2/CONFIGURE/app", "n2/START/app"}},
		{"grow again with other values", Input{Operation: model.OpGrow, Services: web, PlannedNodes: []string{"n2"},
			Nodes:       nodes("n1:db=START", "n2:app=CONFIGURE"),
			Reconfigure: map[string][]string{"n2": {"app"}}}, []string{"n2/CONFIGURE/app", "n2/START/app"}},
		{"shrink", Input{Operation: model.OpShrink, Services: web, PlannedNodes: []string{"n3"},
			Nodes:       nodes("n1:db=START", "n2:lb=STOP", "n3:app=START"),
			Reconfigure: map[string][]string{"n2": {"lb"}, "n3": {"app"}}}, []string{
			"n3/STOP/app", "n3/REMOVE/app", "n3/DELETE", "n2/CONFIGURE/lb"}},
		{"delete", Input{Operation: model.OpDelete, Services: web, Nodes: nodes("n1:db", "n2:", "-n3:app")}, []string{"n1/DELETE n2/DELETE"}},
		{"delete, graceful", Input{Operation: model.OpDelete, Graceful: true, Services: web, Nodes: nodes("n1:db,app", "n2:lb=STOP", "n3:")},
			[]string{
				"n1/STOP/app n2/DELETE n3/DELETE", "n1/REMOVE/app n1/STOP/db", "n1/REMOVE/db", "n1/DELETE"}},
		{"add services with a new automator", Input{Operation: model.OpAddServices, Services: chef, PlannedServices: []string{"b"},
			Nodes: nodes("n1:a=START,b")}, []string{
			"n1/BOOTSTRAP", "n1/INSTALL/b", "n1/START/b"}},
		{"add services with a known automator, and a new node",
			Input{Operation: model.OpAddServices, Services: web, PlannedServices: []string{"app"}, Nodes: nodes("n1:db=START,app", "-n2:app")},
			[]string{
				"n1/INSTALL/app n2/CREATE", "n1/CONFIGURE/app n2/CONFIRM", "n1/START/app n2/BOOTSTRAP", "n2/INSTALL/app", "n2/CONFIGURE/app",
				"n2/START/app"}},
		{"remove services", Input{Operation: model.OpRemoveServices, Services: web, PlannedServices: []string{"app", "lb"},
			Nodes:       nodes("n1:db=START,app=START,lb=START"),
			Reconfigure: map[string][]string{"n1": {"db", "app"}}}, []string{
			"n1/STOP/lb", "n1/STOP/app", "n1/REMOVE/app", "n1/STOP/db", "n1/CONFIGURE/db", "n1/START/db"}},
		{"remove a service that has nothing to remove",
			Input{Operation: model.OpRemoveServices, Services: web, PlannedServices: []string{"lb"}, Nodes: nodes("n1:lb=STOP"),
				Reconfigure: map[string][]string{"n1": {"lb"}}}, nil},
		{"start widens over what is needed", Input{Operation: model.OpStart, Services: web, PlannedServices: []string{"lb"},
			Nodes: nodes("n1:db=STOP,app=START,lb=STOP", "n2:app=STOP")}, []string{
			"n1/START/db", "n2/START/app", "n1/START/lb"}},
		{"start passes what runs", Input{Operation: model.OpStart, Services: web, Nodes: nodes("n1:db=STOP,app=START,lb=STOP")},
			[]string{"n1/START/db", "n1/START/lb"}},
		{"start what runs", Input{Operation: model.OpStart, Services: web, Nodes: nodes("n1:db=START")}, nil},
		{"stop widens over the users", Input{Operation: model.OpStop, Services: web, PlannedServices: []string{"db"},
			Nodes: nodes("n1:db=START,app=STOP,lb=START")}, []string{"n1/STOP/lb", "n1/STOP/db"}},
		{"stop what waits for its first start", Input{Operation: model.OpStop, Services: web, Nodes: nodes("n1:db=INITIALIZE,app=CONFIGURE")},
			[]string{"n1/STOP/app"}},
		{"restart leaves stopped users alone", Input{Operation: model.OpRestart, Services: web, PlannedServices: []string{"db"},
			Nodes: nodes("n1:db=START,app=START,lb=STOP")}, []string{
			"n1/STOP/app", "n1/STOP/db", "n1/START/db", "n1/START/app"}},
		{"restart starts what is stopped", Input{Operation: model.OpRestart, Services: web, PlannedServices: []string{"app"},
			Nodes: nodes("n1:db=STOP,app=STOP")}, []string{"n1/START/db", "n1/START/app"}},
		{"configure", Input{Operation: model.OpConfigure, Services: web, Nodes: nodes("n1:db=START,app=START")},
			[]string{"n1/CONFIGURE/app n1/CONFIGURE/db"}},
		{"configure with restart of what runs", Input{Operation: model.OpConfigure, Restart: true, Services: web,
			Nodes: nodes("n1:db=START,app=STOP", "-n2:lb")}, []string{
			"n1/CONFIGURE/app n1/STOP/db", "n1/CONFIGURE/db", "n1/START/db"}},
		{"configure with restart, which a service does not want",
			Input{Operation: model.OpConfigure, Restart: true, Services: calm, Nodes: nodes("n1:db=START,app=START")}, []string{
				"n1/CONFIGURE/db n1/STOP/app", "n1/CONFIGURE/app", "n1/START/app"}},
		{"upgrade goes node by node", Input{Operation: model.OpUpgrade, Services: web,
			Nodes: nodes("n1:db=START,app=START", "n2:app=START", "n3:db=STOP,lb=START")}, []string{
			"n1/STOP/app n2/STOP/app n3/INSTALL/db n3/STOP/lb", "n1/STOP/db n2/INSTALL/app n3/CONFIGURE/db n3/CONFIGURE/lb",
			"n1/INSTALL/db n2/CONFIGURE/app n3/START/lb",
			"n1/CONFIGURE/db n1/INSTALL/app n2/START/app", "n1/CONFIGURE/app n1/START/db", "n1/START/app"}},
		{"replace a node", Input{Operation: model.OpReplaceNode, Services: web, PlannedNodes: []string{"n1"},
			Nodes: nodes("n1:db=START", "n2:app=START"), Reconfigure: map[string][]string{"n2": {"app"}}}, []string{
			"n1/DELETE", "n1/CREATE", "n1/CONFIRM", "n1/BOOTSTRAP", "n1/INSTALL/db", "n1/CONFIGURE/db", "n1/INITIALIZE/db", "n1/START/db",
			"n2/STOP/app", "n2/CONFIGURE/app", "n2/START/app"}},
		{"replace a node that is gone", Input{Operation: model.OpReplaceNode, Services: web, PlannedNodes: []string{"n1"},
			Nodes: nodes("-n1:lb=START", "n2:app=START")}, []string{
			"n1/CREATE", "n1/CONFIRM", "n1/BOOTSTRAP", "n1/CONFIGURE/lb", "n1/START/lb"}},
		{"nothing planned", Input{Operation: model.OpStart, Services: web, PlannedServices: []string{}, Nodes: nodes("n1:db")}, nil},
		{"no nodes", Input{Operation: model.OpCreate}, nil},
	} {
		g := mustPlan(t, c.in)
		if got := stageNames(g, Stages(g)); !slices.Equal(got, c.want) {
			t.Errorf("%s:\n got %q\nwant %q", c.name, got, c.want)
		}
	}
}
