package recovery

import (
	"fmt"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/recovery"
)

// TestOneAtATime checks that a node that a plan of the template recovers has an operation of its own, because the plan's tasks have the
// address of one node, and that all others are recovered together.
func TestOneAtATime(t *testing.T) {
	own := func(name, service, when string) model.Plan {
		return model.Plan{Name: name, Recovers: &model.Recovers{Service: service, When: when}}
	}
	cl := &model.Cluster{Template: model.ClusterTemplate{Plans: []model.Plan{
		own("replace-db", "db", model.RecoversReplace), own("restart-web", "web", model.RecoversRestart),
	}}}
	nodes := []*model.Node{{ID: "n0", Services: []string{"db"}}, {ID: "n1", Services: []string{"db", "web"}}, {ID: "n2", Services: []string{"web"}},
		{ID: "n3", Services: []string{"web"}}}
	for _, r := range []struct {
		replace []string
		want    string
	}{
		{nil, "[]"}, {[]string{"n0"}, "[n0]"}, {[]string{"n0", "n2"}, "[n0]"}, {[]string{"n2", "n0", "n3"}, "[n2 n3]"}, {[]string{"n2", "n3"}, "[n2 n3]"},
		{[]string{"n0", "n1"}, "[n0]"},
	} {
		if got := fmt.Sprint(replaceable(cl, nodes, r.replace)); got != r.want {
			t.Errorf("of %v: %s, not %s", r.replace, got, r.want)
		}
	}
	units := []recovery.Unit{{Node: "n0", Services: []string{"db"}}, {Node: "n2", Services: []string{"web"}}, {Node: "n3", Services: []string{"db"}}}
	if got := fmt.Sprint(together(cl, units)); got != "[[{n2 [web]}] [{n0 [db]} {n3 [db]}]]" {
		t.Errorf("%s", got)
	}
}
