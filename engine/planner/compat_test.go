package planner

import (
	"slices"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
)

// TestOriginalPlans checks the stages of those plans in docs/spec/coopr.md 5.12 that the case file
// lacks (testing/conformance runs the case file).
func TestOriginalPlans(t *testing.T) {
	create := services("s1[configure,start]", "s2[install,configure] runtime:s1", "s3[install,configure,initialize,start] runtime:s1,s2")
	full := "[install,configure,initialize,start,stop]"
	install := services("s1"+full, "s2"+full+" install:s1", "s3"+full+" install:~s2,~s1")
	run := services("s1[start,stop]", "s2[start,stop] runtime:s1", "s3[start,stop] runtime:s1,s2")
	two := []string{"node1:s1", "node2:s1,s2,s3"}
	for _, c := range []struct {
		name  string
		in    Input
		split int
		want  []string
	}{
		{"testPlannerObeysNodesToPlanSet/node2", Input{Operation: model.OpCreate, Services: create, Nodes: nodes(two...),
			PlannedNodes: []string{"node2"}}, 11, []string{
			"node1/START/s1 node2/CREATE", "node2/CONFIRM", "node2/BOOTSTRAP", "node2/CONFIGURE/s1 node2/INSTALL/s2 node2/INSTALL/s3",
			"node2/CONFIGURE/s2 node2/CONFIGURE/s3 node2/START/s1", "node2/INITIALIZE/s3", "node2/START/s3"}},
		{"testAddServicesDoesNotInstallDependentServices",
			Input{Operation: model.OpAddServices, Services: install, Nodes: nodes("node1:s1,s2,s3"), PlannedServices: []string{"s3"}}, 5, []string{
				"node1/BOOTSTRAP", "node1/INSTALL/s3", "node1/CONFIGURE/s3", "node1/INITIALIZE/s3", "node1/START/s3"}},
		{"testStartServiceTaskDag/s1", Input{Operation: model.OpStart, Services: run, Nodes: nodes(two...), PlannedServices: []string{"s1"}}, 1,
			[]string{"node1/START/s1 node2/START/s1"}},
		{"testStopServiceTaskDag/s3", Input{Operation: model.OpStop, Services: run, Nodes: nodes(two...), PlannedServices: []string{"s3"}}, 1,
			[]string{"node2/STOP/s3"}},
		{"testRestartServiceTaskDag/all", Input{Operation: model.OpRestart, Services: run, Nodes: nodes(two...)}, 6, []string{
			"node2/STOP/s3", "node2/STOP/s2", "node1/STOP/s1 node2/STOP/s1", "node1/START/s1 node2/START/s1", "node2/START/s2", "node2/START/s3"}},
	} {
		c.in.Compat = true
		g := mustPlan(t, c.in)
		stages := Stages(g)
		if got := stageNames(g, stages); !slices.Equal(got, c.want) {
			t.Errorf("%s:\n got %q\nwant %q", c.name, got, c.want)
		}
		if n := len(SplitStages(g, stages)); n != c.split {
			t.Errorf("%s: %d stages after the split, want %d", c.name, n, c.split)
		}
	}
}

// TestHadoopStages plans hadoop-distributed on three nodes, which docs/spec/coopr.md 5.12 lists
// completely, and checks the first stages of services by name.
func TestHadoopStages(t *testing.T) {
	set := templateServices(t, "hadoop-distributed")
	g := mustPlan(t, Input{Operation: model.OpCreate, Nodes: clusterOf(3, set.masters, set.workers), Services: set.services})
	got := stageNames(g, Stages(g))
	want := map[int]string{
		8:  "n1000/START/hadoop-hdfs-namenode",
		9:  "n1001/START/hadoop-hdfs-datanode n1002/START/hadoop-hdfs-datanode",
		10: "n1000/INITIALIZE/hadoop-yarn-resourcemanager n1000/INITIALIZE/hbase-master",
		11: "n1000/START/hadoop-yarn-resourcemanager n1000/START/hbase-master",
	}
	for i, names := range want {
		if len(got) != 12 || got[i-1] != names {
			t.Errorf("stage %d of %d is %s, want %s", i, len(got), strings.Join(got[i-1:i], ""), names)
		}
	}
}
