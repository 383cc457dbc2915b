package compile

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/change/object"
	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/engine/model"
)

func faults(t *testing.T, text string) string {
	t.Helper()
	d, err := site.Parse([]byte(text))
	if err == nil {
		_, err = Site(d, Options{})
	}
	if err == nil {
		return ""
	}
	var fs model.Faults
	if !errors.As(err, &fs) {
		t.Fatalf("no list of faults: %v", err)
	}
	return err.Error()
}

func compiled(t *testing.T, text string, last *object.Site) *object.Site {
	t.Helper()
	d, err := site.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	s, err := Site(d, Options{Last: last})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestEveryFaultAtOnce(t *testing.T) {
	got := faults(t, `
name: "a b"
check_interval: 30s
objects:
  - {name: x, host: agent:a, type: script, preferred: sideways, actions: {start: {}, leap: {}}}
  - {name: x, host: here, type: service, requires: [{object: nobody}, {object: z, state: outdated}, {from: gone, object: z}]}
  - {name: z, host: node:c/n1, type: scrpt}
  - {name: w, host: agent:a, type: script, requires: [{object: w}, {from: up, to: up, object: x}], holds: [{state: left, object: x}, {object: x, in: up}, {object: x, in: down}]}
`)
	for _, want := range []string{
		`name: "a b" is not a name`,
		`objects[0].preferred: type script has no state "sideways" that may be asked for: it has down, up`,
		`objects[0].actions.leap: type script has no action "leap"`,
		`objects[1].name: objects[0] is called "x" too`,
		`objects[1].host: "here" is not a host`,
		`objects[1].requires[0].object: there is no object "nobody"`,
		`objects[1].requires[2].from: type service has no state "gone"`,
		`objects[2].type: there is no type "scrpt": the types are filetree, ha-resource, script, service, and automator:NAME of an ` +
			`automator plugin`,
		`objects[3].requires[0].object: w cannot depend on itself`,
		`objects[3].requires[1]: type script has no transition from up to up`,
		`objects[3].holds[0].state: type script has no state "left"`,
		`objects[3].holds[2]: objects[3].holds[1] wants the same object in another state at the same time`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("not told: %s\nin\n%s", want, got)
		}
	}
	if got := faults(t, "name: s\nobjcts: []\nobjects: [{nam: x}]"); !strings.Contains(got, "objcts") ||
		!strings.Contains(got, "objects[0].nam") {
		t.Error(got)
	}
}

func TestJSONAndYAMLAreTheSame(t *testing.T) {
	a := compiled(t, `{"name":"s","objects":[{"name":"x","host":"agent:a","type":"script","content":{"a":1,"b":[2]}}]}`, nil)
	b := compiled(t, "name: s\nobjects:\n  - {name: x, host: agent:a, type: script, content: {b: [2], a: 1}}", nil)
	if a.Defs[0].Content != b.Defs[0].Content || a.Defs[0].Content == 0 {
		t.Error("the same content has another digest")
	}
}

func TestC10(t *testing.T) {
	got := faults(t, `
name: c10
objects:
  - {name: A, host: agent:a, type: script, requires: [{object: B}]}
  - {name: B, host: agent:a, type: script, requires: [{object: A}]}
`)
	if !strings.Contains(got, "wait for each other for ever: A → B → A") {
		t.Error(got)
	}
}

func TestC12IsRejected(t *testing.T) {
	got := faults(t, `
name: c12
objects:
  - {name: A, host: agent:a, type: script, requires: [{from: down, to: up, object: B, state: up}]}
  - {name: B, host: agent:a, type: script, preferred: down, requires: [{from: up, to: down, object: A, state: down}]}
`)
	if !strings.Contains(got, "drive each other out of their preferred states for ever: A → B → A") {
		t.Error(got)
	}
}

func TestLocksThatContradict(t *testing.T) {
	got := faults(t, `
name: s
objects:
  - {name: a, host: agent:a, type: script, requires: [{object: b}, {object: c}]}
  - {name: b, host: agent:a, type: script, holds: [{object: d, in: up}]}
  - {name: c, host: agent:a, type: script, holds: [{object: d, in: down}]}
  - {name: d, host: agent:a, type: script}
`)
	if !strings.Contains(got, "a can never start") || !strings.Contains(got, "needs d in another state") {
		t.Error(got)
	}
}

func TestPlan(t *testing.T) {
	one := compiled(t, `
name: s
objects:
  - {name: gone, host: agent:h1, type: script, requires: [{from: up, to: down, object: user, state: down}]}
  - {name: user, host: agent:h2, type: service, requires: [{object: gone}]}
  - {name: same, host: agent:h3, type: script}
  - {name: new-content, host: agent:h3, type: script, content: {v: 1}}
  - {name: moves, host: agent:h3, type: script}
`, nil)
	two := compiled(t, `
name: s
objects:
  - {name: user, host: agent:h2, type: service}
  - {name: same, host: agent:h3, type: script}
  - {name: new-content, host: agent:h3, type: script, content: {v: 2}}
  - {name: moves, host: agent:h1, type: script}
  - {name: added, host: agent:h4, type: script}
`, one)
	p := NewPlan(one, two)
	names := func(s *object.Site, ids []object.ID) string {
		var n []string
		for _, id := range ids {
			n = append(n, s.Defs[id].Name)
		}
		slices.Sort(n)
		return strings.Join(n, " ")
	}
	for _, c := range [][2]string{
		{names(two, p.Added), "added moves"}, {names(one, p.Removed), "gone moves"}, {names(two, p.Changed), "new-content"},
		{names(two, p.Rewired), "user"}, {names(two, p.Same), "same"},
	} {
		if c[0] != c[1] {
			t.Errorf("%q, want %q", c[0], c[1])
		}
	}
	// h2 must still be under the old generation when gone is stopped on h1.
	order := map[string]int{}
	for i, g := range p.Groups {
		for _, h := range g.Hosts {
			order[h] = i
		}
	}
	if len(order) != 4 || order["agent:h1"] >= order["agent:h2"] {
		t.Errorf("hosts switch as %+v", p.Groups)
	}
	if two.Generation != 2 {
		t.Error(two.Generation)
	}
	// A third generation fills the holes, and no object changes its number.
	three := compiled(t, `
name: s
objects:
  - {name: same, host: agent:h3, type: script}
  - {name: later, host: agent:h3, type: script}
`, two)
	a, _ := one.Find("same")
	b, _ := three.Find("same")
	gone, _ := one.Find("gone")
	later, _ := three.Find("later")
	if a != b || later != gone && two.Defs[later].Name != "" {
		t.Errorf("numbers %d %d %d %d", a, b, gone, later)
	}
}

// Hosts whose removed objects need each other switch together.
func TestHostsInACycleSwitchTogether(t *testing.T) {
	one := compiled(t, `
name: s
objects:
  - {name: a1, host: agent:h1, type: script, requires: [{from: up, to: down, object: b1, state: down}]}
  - {name: b1, host: agent:h2, type: script}
  - {name: b2, host: agent:h2, type: script, requires: [{from: up, to: down, object: a2, state: down}]}
  - {name: a2, host: agent:h1, type: script}
  - {name: c, host: agent:h3, type: script, requires: [{from: up, to: down, object: a1, state: down}]}
`, nil)
	two := compiled(t, "name: s\nobjects: [{name: x, host: agent:h3, type: script}]", one)
	got := fmt.Sprint(NewPlan(one, two).Groups)
	if !strings.Contains(got, "[agent:h1 agent:h2]") || strings.Index(got, "h3") > strings.Index(got, "h1") {
		t.Error(got)
	}
}

// FuzzCompile: the compiler fails for any document with faults only, and an accepted document
// can be compiled again as the next generation.
func FuzzCompile(f *testing.F) {
	f.Add([]byte("name: s\nobjects:\n  - {name: a, host: agent:x, type: script, requires: [{object: b, to: '*'}]}\n  - {name: b, host: " +
		"node:c/n, type: service, holds: [{object: a, state: down, in: down}]}"))
	f.Add([]byte(`{"name":"s","objects":[{"name":"a","host":"agent:x","type":"filetree","content":{"x":[1,null]}}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := site.Parse(b)
		if err != nil {
			return
		}
		s, err := Site(d, Options{})
		if err != nil {
			return
		}
		again, err := Site(d, Options{Last: s})
		if err != nil || len(NewPlan(s, again).Same) != len(d.Objects) {
			t.Fatalf("the same document is another site: %v", err)
		}
		site.NewGraph(s, nil).DOT()
	})
}
