package change

import (
	"io"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/engine/model"

	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

// TestSiteView checks what a terminal shows of figure 1 of the paper: dependencies first, a reason for each
// object that waits, and no more than a screen.
func TestSiteView(t *testing.T) {
	out := &output.Printer{Stdout: io.Discard, Env: func(string) string { return "" }}
	g := &site.Graph{Nodes: []site.GraphNode{{Name: "cfgA", Preferred: "up"}, {Name: "svcA", Preferred: "up"}, {Name: "svcB",
		Preferred: "up"}}, Edges: []site.GraphEdge{
		{From: "svcB", To: "svcA", When: "*→up", State: "up"}, {From: "svcB", To: "svcA", When: "up", State: "up",
			Hold: true}, {From: "svcA", To: "svcB", When: "up→down", State: "down"},
		{From: "svcA", To: "cfgA", When: "*→up", State: "up"}, {From: "cfgA", To: "svcA", When: "outdated→up", State: "down"},
	}}
	v := &view{out: out, name: "shop", now: snapshot{graph: g, status: site.SiteStatus{Overview: site.Overview{Name: "shop", Generation: 2,
		Objects: 3}, Items: []site.ObjectStatus{
		{Name: "svcB", Host: "agent:c", State: "up", To: "down", Target: "down", Preferred: "up", Phase: "moving"},
		{Name: "svcA", Host: "agent:b", State: "up", Target: "down", Preferred: "up", Phase: "resting",
			Waits: []string{"waits for svcB in down", "held in up by svcB"}},
		{Name: "cfgA", Host: "agent:a", State: "outdated", Target: "up", Preferred: "up", Phase: "resting",
			Waits: []string{"waits for svcA in down"}},
	}}}}
	v.hear(model.Event{Type: "site.changed", Subject: "shop", Status: "generation 2 is in force"})
	v.hear(model.Event{Type: "object.changed", Subject: "another/svcB", Status: "moved", Message: "stop: up → down"})
	v.hear(model.Event{Type: "object.changed", Subject: "shop/cfgA", Status: "drifted", Message: "found outdated"})
	seen := func(width, height int) string { return strings.Join(v.lines(width, height), "\n") }
	for _, want := range []string{
		"Site shop: generation 2 is in force; 0 of 3 objects have converged.\n",
		`  OBJECT  HOST     DEPENDS ON  STATE
○ cfgA    agent:a              outdated   target up: waits until svcA is down
○ svcA    agent:b  cfgA        up         target down: waits until svcB is down, and svcB still needs it up
● svcB    agent:c  svcA        up → down  moving
`,
		"Latest events:\n", "  generation 2 is in force\n", "  cfgA  was changed from outside: found outdated",
	} {
		if !strings.Contains(seen(120, 40), want) {
			t.Errorf("no %q in\n%s", want, seen(120, 40))
		}
	}
	if strings.Contains(seen(120, 40), "stop: up → down") {
		t.Error("events of another site are shown")
	}
	for _, line := range v.lines(40, 40)[1:] {
		if n := len([]rune(line)); n > 40 {
			t.Errorf("%d wide: %q", n, line)
		}
	}
	for i := range v.now.status.Items {
		o := &v.now.status.Items[i]
		o.State, o.Target, o.To, o.Phase, o.Waits, o.Converged = "up", "up", "", "resting", nil, true
	}
	v.now.status.Items[0].Converged, v.now.status.Items[0].Phase, v.now.status.Items[0].Failures, v.now.status.Items[0].Message = false,
		"backoff", 2, "start: exit code 7"
	v.now.status.ConvergedObjects = 2
	for range 100 {
		v.now.status.Items = append(v.now.status.Items, site.ObjectStatus{Name: "more", State: "up", Target: "up", Phase: "resting",
			Converged: true})
	}
	if got := seen(120, 24); !strings.Contains(got, "✗ svcB    agent:c  svcA        up     failed 2×: start: exit code 7\n"+
		"  … and 102 more\n") || strings.Count(got, "\n") > 23 {
		t.Errorf("many objects:\n%s", got)
	}
	v.now.status.Converged = true
	if !strings.Contains(seen(120, 24), "all 3 objects have converged") {
		t.Error("the view does not say that all objects have converged")
	}
}
