package planner

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
)

// TestDependenciesAreReduced checks how dependencies are resolved, with the facts of
// docs/spec/coopr.md 5.12.
func TestDependenciesAreReduced(t *testing.T) {
	for _, c := range []struct {
		services map[string]model.Service
		want     string
	}{
		{services("base[]", "s1[] runtime:base", "s2[] runtime:base,s1", "s3[] runtime:base,s1,s2", "s4[] runtime:base",
			"s5[] runtime:base,s1,s2,s3,s4"),
			"base: s1:base s2:s1 s3:s2 s4:base s5:s3,s4"},
		{services("base[]", "s1[] runtime:base", "s2-v1[] runtime:base,s1 provides:s2", "s2-v2[] runtime:base,s1 provides:s2",
			"s3[] runtime:base,s1,s2"),
			"base: s1:base s2-v1:s1 s2-v2:s1 s3:s2-v1,s2-v2"},
		{services("a[] runtime:b", "b[] runtime:a", "c[] runtime:a"), "a: b: c:"}, // dependencies on a cycle are dropped
		// a provider of a name stands for it, and no service waits for itself
		{services("a[] runtime:x,a", "x[]", "y[] provides:x"), "a:y x: y:"},
		{services("a[] runtime:x", "x[] provides:x", "y[] provides:x"), "a:y x: y:"}, // providing its own name does not count
		{services("a[] runtime:~gone"), "a:"},
	} {
		names := slices.Sorted(func(yield func(string) bool) {
			for n := range c.services {
				if !yield(n) {
					return
				}
			}
		})
		r := newRelations(names, c.services, newProviders(names, c.services), false)
		var got []string
		for i, deps := range r.deps {
			var on []string
			for _, d := range deps {
				on = append(on, names[d])
			}
			got = append(got, names[i]+":"+strings.Join(on, ","))
		}
		if line := strings.Join(got, " "); line != c.want {
			t.Errorf("got %s, want %s", line, c.want)
		}
	}
}

// TestActionsPassThrough checks which actions wait for which, across services that lack them (the
// same table).
func TestActionsPassThrough(t *testing.T) {
	for _, c := range []struct {
		services map[string]model.Service
		want     []string // "to action of service < from action of service"
	}{
		{services("s1[initialize,start]", "s2[configure,initialize] runtime:s1", "s3[start] runtime:s1", "s4[initialize,start] runtime:s2,s3,s6",
			"s5[initialize,start]", "s6[initialize] runtime:s5"),
			[]string{"INITIALIZE s2 < START s1", "INITIALIZE s4 < START s3", "INITIALIZE s4 < START s5", "INITIALIZE s6 < START s5",
				"START s3 < START s1", "START s4 < START s3", "START s4 < START s5"}},
		{services("s1[install]", "s2[] install:s1", "s3[install] install:s1", "s4[install] install:s2,s3,s6", "s5[install]", "s6[] install:s5"),
			[]string{"INSTALL s3 < INSTALL s1", "INSTALL s4 < INSTALL s3", "INSTALL s4 < INSTALL s5"}},
		{services("s1[install]", "s2[install] install:~s1,~s3"), []string{"INSTALL s2 < INSTALL s1"}},
	} {
		n := Node{ID: "n"}
		for s := range c.services {
			n.Services = append(n.Services, s)
		}
		in := Input{Operation: model.OpCreate, Nodes: []Node{n}, Services: c.services}
		g, err := newGrid(&in)
		if err != nil {
			t.Fatal(err)
		}
		order, _ := in.order()
		var got []string
		for _, x := range g.newPairs(g.wants(order)).cross {
			got = append(got, x.to.String()+" "+g.names[x.of]+" < "+x.from.String()+" "+g.names[x.on])
		}
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("got %v, want %v", got, c.want)
		}
	}
}

// TestSplitStages is testDedupNodesPerStage of the original.
func TestSplitStages(t *testing.T) {
	b := plan.NewBuilder([]string{"h1", "h2", "h3"}, []string{"a", "b"})
	stage := func(hosts ...int) []int {
		var out []int
		used := map[int]int{}
		for _, h := range hosts {
			out = append(out, int(b.Task(model.Install, h, used[h])))
			used[h]++
		}
		return out
	}
	stages := [][]int{stage(0, 0, 2), stage(0, 1, 2), stage(0, 0, 2)}
	g, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	want := [][]int{{0, 2}, {1}, {3, 4, 5}, {6, 8}, {7}}
	if got := SplitStages(g, stages); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestCheckCycles(t *testing.T) {
	for _, c := range []struct {
		services map[string]model.Service
		want     string
	}{
		{services("a[] runtime:b", "b[] runtime:c", "c[]"), ""},
		{services("a[] runtime:b", "b[] runtime:c", "c[] runtime:~a", "d[] runtime:a"), "run-time a b c"},
		{services("a[] install:face", "b[] install:a provides:face"), "install-time a b"},
		{services("a[] runtime:a"), ""},                  // waits for no other service
		{services("a[] install:b", "b[] runtime:a"), ""}, // INSTALL b, INSTALL a, START a, START b
		{services("a[] runtime:b,c", "b[] runtime:d", "c[] runtime:a", "d[] runtime:a"), "run-time a c"},
	} {
		err := CheckCycles(c.services)
		got := ""
		var e *CycleError
		if errors.As(err, &e) {
			got = "run-time "
			if e.Install {
				got = "install-time "
			}
			got += strings.Join(e.Services, " ")
			if !strings.Contains(err.Error(), strings.Join(e.Services, " -> ")+" -> "+e.Services[0]) {
				t.Errorf("the message does not show the cycle: %v", err)
			}
		} else if err != nil {
			t.Error(err)
		}
		if got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestExpandServices(t *testing.T) {
	all := services("db[]", "app[] runtime:~db", "face[] provides:web runtime:app", "lb[] runtime:web", "tool[] install:db")
	for _, c := range []struct {
		op   model.OperationType
		from []string
		want []string
	}{
		{model.OpStart, []string{"lb"}, []string{"app", "db", "face", "lb"}},
		{model.OpStop, []string{"db", "unknown"}, []string{"app", "db", "face", "lb"}},
		{model.OpRestart, []string{"face"}, []string{"face", "lb"}},
		{model.OpConfigure, []string{"db"}, []string{"db"}},
		{model.OpStop, nil, nil},
	} {
		if got := ExpandServices(c.op, c.from, all); !slices.Equal(got, c.want) || (got == nil) != (c.want == nil) {
			t.Errorf("%s %v: got %v, want %v", c.op, c.from, got, c.want)
		}
	}
}

func TestFaults(t *testing.T) {
	_, err := Plan(Input{
		Operation: model.OpStart, Services: services("a[start]"),
		Nodes:        []Node{{ID: "n1", Services: []string{"a", "b"}}, {ID: "n1"}},
		PlannedNodes: []string{"n2"}, PlannedServices: []string{"c"},
	})
	var faults model.Faults
	if !errors.As(err, &faults) || len(faults) != 4 {
		t.Errorf("got %v", err)
	}
	if _, err := Plan(Input{Operation: "dance"}); err == nil {
		t.Error("an unknown operation was planned")
	}
	var cycle *CycleError
	if _, err := Plan(Input{Operation: model.OpStart, Services: services("a[start] runtime:b", "b[start] runtime:a"),
		Nodes: nodes("n:a,b")}); !errors.As(err, &cycle) {
		t.Errorf("got %v", err)
	}
}
