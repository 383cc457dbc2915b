package site_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/coopr/coopr/engine/change/compile"
	"github.com/coopr/coopr/engine/change/object"
	"github.com/coopr/coopr/engine/change/site"
)

// drawDocument makes a site whose objects depend on earlier ones.
func drawDocument(t *rapid.T) *site.Document {
	d := &site.Document{Name: "s"}
	for i := range rapid.IntRange(1, 12).Draw(t, "objects") {
		if i > 0 && rapid.IntRange(0, 3).Draw(t, "left out") == 0 {
			continue
		}
		o := site.Object{Name: fmt.Sprintf("o%d", i), Host: fmt.Sprintf("agent:a%d", rapid.IntRange(0, 3).Draw(t, "host")), Type: "script",
			Content: map[string]any{"version": rapid.IntRange(0, 2).Draw(t, "version")}}
		for j := range d.Objects {
			if rapid.IntRange(0, 2).Draw(t, "depends") == 0 {
				o.Requires = append(o.Requires, site.Requirement{To: "up", Object: d.Objects[j].Name})
				o.Holds = append(o.Holds, site.Holding{Object: d.Objects[j].Name})
			}
		}
		d.Objects = append(d.Objects, o)
	}
	return d
}

// A slice compiles to the same objects on its hosts as the whole document.
func TestSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawDocument(t)
		whole, err := compile.Site(d, compile.Options{})
		if err != nil {
			t.Fatal(err)
		}
		hosts := map[string]bool{}
		for i := range 4 {
			hosts[fmt.Sprintf("agent:a%d", i)] = rapid.Bool().Draw(t, "mine")
		}
		p := (&site.Generation{Number: 7, IDs: compile.Numbers(d, whole)}).Part(d, hosts)
		part, err := compile.Part(&p)
		if err != nil {
			t.Fatal(err)
		}
		if part.Generation != 7 {
			t.Errorf("generation %d", part.Generation)
		}
		for i := range whole.Defs {
			w := &whole.Defs[i]
			if !hosts[w.Host] {
				continue
			}
			x, y := *w, part.Defs[i]
			x.Type, y.Type = nil, nil
			if !reflect.DeepEqual(x, y) {
				t.Errorf("%+v is %+v in the slice", x, y)
			}
			for _, n := range w.Out {
				if part.Defs[n].Name != whole.Defs[n].Name || part.Defs[n].Host != whole.Defs[n].Host {
					t.Errorf("neighbour %s is missing", whole.Defs[n].Name)
				}
			}
			for _, n := range w.In {
				if part.Defs[n.ID].Name != whole.Defs[n.ID].Name {
					t.Errorf("dependent %s is missing", whole.Defs[n.ID].Name)
				}
			}
		}
	})
}

// For any sequence of generations and crashes: incarnations only grow, exactly the objects of
// the generation in force have a host, and no host has two agents.
func TestRecord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &site.Record{Name: "s"}
		var now *object.Site
		alive := map[string]bool{}
		agents := []string{"x", "y", "z"}
		var was []site.Life
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0: // a new generation
				next, err := compile.Site(drawDocument(t), compile.Options{Last: now})
				if err != nil {
					t.Fatal(err)
				}
				plan := compile.NewPlan(now, next)
				if r.Next != 0 {
					if err := r.Begin(r.Last+1, compile.Switches(plan, next), false); !errors.Is(err, site.ErrOnItsWay) {
						t.Fatal(err)
					}
					continue
				}
				if err := r.Begin(r.Last+1, compile.Switches(plan, next), false); err != nil {
					t.Fatal(err)
				}
				now = next
			case 1: // some groups switch
				for _, g := range r.Ready(func(object.ID) bool { return rapid.Bool().Draw(t, "away") }) {
					if err := r.Turn([]int{g}); err != nil && r.Next != 0 {
						t.Fatal(err)
					}
				}
			case 2: // an agent dies, or joins
				a := rapid.SampledFrom(agents).Draw(t, "agent")
				alive[a] = !alive[a]
			case 3:
				var hosts []site.Host
				for _, h := range r.Hosts {
					a := rapid.SampledFrom(agents).Draw(t, "agent")
					if (h.Agent == "" || h.Agent == a || !alive[h.Agent]) && alive[a] {
						hosts = append(hosts, site.Host{h.Name, a, fmt.Sprint("run", rapid.IntRange(0, 1).Draw(t, "run"))})
					} else if err := r.Clone().Assign([]site.Host{{h.Name, a, "run"}}, func(id string) bool { return alive[id] }); !errors.Is(err,
						site.ErrHeld) && h.Agent != a {
						t.Fatalf("%s went from %s to %s: %v", h.Name, h.Agent, a, err)
					}
				}
				if err := r.Assign(hosts, func(id string) bool { return alive[id] }); err != nil {
					t.Fatal(err)
				}
			}
			b, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			again := &site.Record{}
			if err := json.Unmarshal(b, again); err != nil {
				t.Fatal(err)
			}
			for i, l := range was {
				if r.Lives[i].Inc < l.Inc {
					t.Fatalf("object %d: incarnation %d after %d", i, r.Lives[i].Inc, l.Inc)
				}
			}
			was = slices.Clone(r.Lives)
			if r.Next != 0 || now == nil {
				continue
			}
			for i, l := range r.Lives {
				here := i < len(now.Defs) && now.Defs[i].Name != ""
				if here != (l.Host >= 0) || here && r.Hosts[l.Host].Name != now.Defs[i].Host {
					t.Fatalf("object %d: %+v of %+v", i, l, r.Hosts)
				}
				if here && (l.Inc > 0) != (r.Hosts[l.Host].Agent != "") && l.Inc == 0 {
					t.Fatalf("object %d has an agent and never ran", i)
				}
			}
		}
	})
}

// A dead agent delays only the hosts that its removed objects need (rule 25).
func TestGroupsWaitForNoMoreThanTheyMust(t *testing.T) {
	d := &site.Document{Name: "s", Objects: []site.Object{
		{Name: "top", Host: "agent:dead", Type: "script", Requires: []site.Requirement{{From: "up", To: "down", Object: "base", State: "up"}}},
		{Name: "base", Host: "agent:needed", Type: "script"},
		{Name: "else", Host: "agent:free", Type: "script"},
		{Name: "goes", Host: "agent:free", Type: "script"},
	}}
	old, err := compile.Site(d, compile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	next, err := compile.Site(&site.Document{Name: "s", Objects: []site.Object{
		{Name: "base", Host: "agent:needed", Type: "script", Content: map[string]any{"version": 2}}, d.Objects[2],
	}}, compile.Options{Last: old})
	if err != nil {
		t.Fatal(err)
	}
	r := &site.Record{Name: "s"}
	if err := errors.Join(r.Begin(1, compile.Switches(compile.NewPlan(nil, old), old), false),
		r.Begin(2, compile.Switches(compile.NewPlan(old, next), next), false)); err != nil {
		t.Fatal(err)
	}
	goes, _ := old.Find("goes")
	if err := r.Turn(r.Ready(func(id object.ID) bool { return id == goes })); err != nil {
		t.Fatal(err)
	}
	if turned := r.Turned(); !turned["agent:free"] || turned["agent:needed"] || turned["agent:dead"] {
		t.Errorf("%v", turned)
	}
	if err := r.Turn(r.Ready(func(object.ID) bool { return true })); err != nil || r.Generation != 2 {
		t.Errorf("%+v, %v", r, err)
	}
}
