package search

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/change/compile"
	"github.com/coopr/coopr/engine/change/object"
	"github.com/coopr/coopr/engine/change/site"
)

func compiled(t testing.TB, text string, unsafe bool) *object.Site {
	t.Helper()
	d, err := site.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	s, err := compile.Site(d, compile.Options{Unsafe: unsafe})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// worlds visits every combination of states.
func worlds(s *object.Site, visit func([]object.State)) {
	w := make([]object.State, len(s.Defs))
	var rec func(int)
	rec = func(i int) {
		if i == len(w) {
			visit(w)
			return
		}
		for st := 1; st < len(s.Defs[i].Type.States); st++ {
			w[i] = object.State(st)
			rec(i + 1)
		}
	}
	rec(0)
}

// all searches from every combination of states and returns the first problem.
func all(t testing.TB, cfg Config) (r Result) {
	t.Helper()
	states := 0
	worlds(cfg.Site, func(w []object.State) {
		if r.Problem != "" {
			return
		}
		cfg.World = w
		r = Run(cfg)
		states += r.States
		if r.Cut && cfg.Limit == 0 {
			t.Fatalf("more than %d states from %v", r.States, w)
		}
	})
	r.States = states
	return r
}

func sound(t testing.TB, what string, cfg Config) {
	t.Helper()
	if r := all(t, cfg); r.Problem != "" {
		t.Errorf("%s: %s\n%s", what, r.Problem, strings.Join(r.Trace, "\n"))
	} else {
		t.Logf("%s: %d states", what, r.States)
	}
}

const figure1 = `
name: figure1
objects:
  - name: svcB
    host: agent:a0
    type: service
    requires: [{from: down, object: svcA}]
    holds: [{object: svcA}]
  - name: svcA
    host: agent:a1
    type: service
    requires: [{from: down, object: cfgA}, {from: up, to: down, object: svcB, state: down}]
    holds: [{object: cfgA}]
  - {name: cfgA, host: agent:a2, type: filetree, requires: [{from: outdated, object: svcA, state: down}]}
`

// pair is the smallest site with all kinds of dependencies.
const pair = `
name: pair
objects:
  - {name: svc, host: agent:a0, type: service, requires: [{object: cfg}], holds: [{object: cfg}]}
  - {name: cfg, host: agent:a1, type: filetree, requires: [{from: outdated, object: svc, state: down}, {from: up, to: down, object: svc, state: down}]}
`

func TestFigure1(t *testing.T) {
	sound(t, "figure 1", Config{Site: compiled(t, figure1, false)})
}

// Every fault happens at every moment. FIGURE1_FAULTS=1 does the same with figure 1, which
// takes minutes and gigabytes.
func TestFaults(t *testing.T) {
	faults := []Config{{Losses: 2, Doubles: 1}, {Failures: 1, Losses: 1}, {Deaths: 1}}
	for i, c := range faults {
		c.Site = compiled(t, pair, false)
		sound(t, fmt.Sprintf("pair, faults %d", i), c)
	}
	if os.Getenv("FIGURE1_FAULTS") == "" {
		return
	}
	for i, c := range []Config{{Losses: 1}, {Doubles: 1}, {Failures: 1}, {Deaths: 1}} {
		c.Site, c.World = compiled(t, figure1, false), []object.State{2, 2, 3}
		r := Run(c)
		t.Logf("figure 1, faults %d: %d states", i, r.States)
		if r.Problem != "" || r.Cut {
			t.Errorf("figure 1, faults %d: %s\n%s", i, r.Problem, strings.Join(r.Trace, "\n"))
		}
	}
}

// The sites that the compiler refuses do deadlock or livelock.
func TestRefusedSitesHang(t *testing.T) {
	for what, text := range map[string]string{
		"deadlock (C10)": `
name: c10
objects:
  - {name: A, host: agent:a0, type: script, requires: [{object: B}]}
  - {name: B, host: agent:a0, type: script, requires: [{object: A}]}
`,
		"livelock (rule 27)": `
name: rule27
objects:
  - {name: A, host: agent:a0, type: script, requires: [{from: down, object: B, state: up}]}
  - {name: B, host: agent:a0, type: script, preferred: down, requires: [{from: up, object: A, state: down}]}
`,
	} {
		if r := all(t, Config{Site: compiled(t, text, true)}); r.Problem == "" {
			t.Errorf("%s: nothing is wrong in %d states", what, r.States)
		}
	}
}

// Two objects need the same two locks. Without Recall, each would hold one of them and both
// would wait for ever.
func TestHoldAndWait(t *testing.T) {
	s := compiled(t, `
name: holdandwait
objects:
  - {name: top, host: agent:a0, type: script, requires: [{from: down, object: x}, {from: down, object: y}]}
  - {name: x, host: agent:a0, type: script}
  - {name: y, host: agent:a0, type: script}
  - {name: cfg, host: agent:a0, type: script, requires: [{from: outdated, object: x, state: down}, {from: outdated, object: y, state: down}]}
`, false)
	r := Run(Config{Site: s, World: []object.State{1, 2, 2, 3}})
	if r.Problem != "" || r.Cut {
		t.Fatalf("%s\n%s", r.Problem, strings.Join(r.Trace, "\n"))
	}
	t.Logf("%d states", r.States)
}

// tiny draws a site of a few objects, sensible or not.
func tiny(rng *rand.Rand, n int) *site.Document {
	d := &site.Document{Name: "tiny"}
	pick := func(s ...string) string { return s[rng.IntN(len(s))] }
	for i := range n {
		d.Objects = append(d.Objects, site.Object{Name: fmt.Sprintf("o%d", i), Host: "agent:a0", Type: "script",
			Preferred: pick("up", "up", "up", "down")})
	}
	for range 1 + rng.IntN(2*n) {
		i, j := rng.IntN(n), rng.IntN(n)
		if i == j {
			continue
		}
		o := &d.Objects[i]
		p := fmt.Sprintf("o%d", j)
		if rng.IntN(3) == 0 {
			o.Holds = append(o.Holds, site.Holding{State: pick("up", "down"), Object: p, In: pick("up", "down")})
			continue
		}
		r := site.Requirement{Object: p, State: pick("up", "down")}
		switch rng.IntN(4) {
		case 0:
			r.From, r.To = "down", "up"
		case 1:
			r.From, r.To = "up", "down"
		case 2:
			r.From, r.To = "outdated", "up"
		case 3:
			r.To = pick("up", "down")
		}
		o.Requires = append(o.Requires, r)
	}
	return d
}

// Every site that the compiler accepts comes to rest from every start: the static rules (26,
// 27) are compared with the whole state space of random sites. SEARCH_SITES multiplies the
// number of sites; then every 200th site has three objects, of which a part of the states is
// searched.
func TestAcceptedSitesComeToRest(t *testing.T) {
	times := 1
	if v, err := strconv.Atoi(os.Getenv("SEARCH_SITES")); err == nil {
		times = v
	}
	sites := uint64(600 * times)
	accepted, refused := 0, 0
	for seed := range sites {
		rng := rand.New(rand.NewPCG(seed, 2))
		n, limit := 2, 0
		if times > 1 && seed%200 == 199 {
			n, limit = 3, 2_000
		}
		d := tiny(rng, n)
		s, err := compile.Site(d, compile.Options{})
		if err != nil {
			refused++
			continue
		}
		accepted++
		if r := all(t, Config{Site: s, Limit: limit}); r.Problem != "" {
			t.Fatalf("seed %d: %s\n%s\n%+v", seed, r.Problem, strings.Join(r.Trace, "\n"), d.Objects)
		}
	}
	t.Logf("%d sites accepted and searched, %d refused", accepted, refused)
}
