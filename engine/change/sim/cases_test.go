package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/change/compile"
	"github.com/coopr/coopr/engine/change/object"
	"github.com/coopr/coopr/engine/change/site"
)

// figure1 is the first figure of the paper (case C1), with the hosts filled in.
const figure1 = `
name: figure1
objects:
  - name: svcB
    host: agent:%s
    type: service
    requires: [{from: down, to: up, object: svcA, state: up}]
    holds: [{state: up, object: svcA, in: up}]
  - name: svcA
    host: agent:%s
    type: service
    requires:
      - {from: down, to: up, object: cfgA, state: up}
      - {from: up, to: down, object: svcB, state: down}
    holds: [{state: up, object: cfgA, in: up}]
  - name: cfgA
    host: agent:%s
    type: filetree
    content: {version: %d}
    requires: [{from: outdated, to: up, object: svcA, state: down}]
`

func document(t *testing.T, text string) *site.Document {
	t.Helper()
	d, err := site.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func compiled(t *testing.T, text string, last *object.Site) *object.Site {
	t.Helper()
	s, err := compile.Site(document(t, text), compile.Options{Last: last})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// up makes a world in which every object is up and has this generation's content.
func up(cfg Config) Config {
	site := cfg.Site
	cfg.Initial = func(id object.ID) object.State { return state(site, id, "up") }
	cfg.Deployed = true
	return cfg
}

func state(s *object.Site, id object.ID, name string) object.State {
	st, _ := s.Defs[id].Type.State(name)
	return st
}

// log records each transition that began, such as "svcA stop".
type log struct {
	site  *object.Site
	begun []string
	steps []Step
}

func (l *log) watch(s Step) {
	l.steps = append(l.steps, s)
	if s.Begin {
		d := &l.site.Defs[s.ID]
		l.begun = append(l.begun, d.Name+" "+d.Type.Actions[s.Transition.Action])
	}
}

func (l *log) String() string { return strings.Join(l.begun, "; ") }

func ordinary(s *object.Site) Config {
	return Config{Site: s, Agents: 3, Delay: 1, Jitter: 3, CheckTime: 2, MoveTime: 10}
}

func mustRest(t *testing.T, s *Sim) {
	t.Helper()
	if !s.RunUntilRest(s.Now() + 3_600_000) {
		t.Fatalf("not at rest at %d: %s", s.Now(), s.report())
	}
	check(t, s)
}

func check(t *testing.T, s *Sim) {
	t.Helper()
	for _, v := range s.Violations {
		t.Error(v)
	}
	if t.Failed() {
		t.FailNow()
	}
}

func (s *Sim) report() string {
	var b strings.Builder
	for a := range s.agents {
		s.agents[a].runtime.Each(func(o *object.Object) {
			if s.Object(o.Def().ID) != o {
				fmt.Fprintf(&b, "\na%d has %s", a, o.Def().Name)
			}
		})
	}
	for i := range s.site.Defs {
		if s.site.Defs[i].Name == "" {
			continue
		}
		o := s.Object(object.ID(i))
		if o == nil {
			fmt.Fprintf(&b, "\n%s: nobody's", s.site.Defs[i].Name)
			continue
		}
		if !o.AtRest() {
			fmt.Fprintf(&b, "\n%s", o.Status().Text(s.def))
		}
	}
	return b.String()
}

const c1Order = "svcB stop; svcA stop; cfgA restart; svcA start; svcB start"

func TestC1(t *testing.T) {
	for _, hosts := range [][3]any{{"a0", "a0", "a0"}, {"a0", "a1", "a2"}, {"a0", "a0", "a1"}} {
		for seed := range uint64(20) {
			old := compiled(t, fmt.Sprintf(figure1, hosts[0], hosts[1], hosts[2], 1), nil)
			l := &log{site: old}
			cfg := up(ordinary(old))
			cfg.Seed, cfg.Watch = seed, l.watch
			s := New(cfg)
			mustRest(t, s)
			if len(l.begun) > 0 {
				t.Fatalf("nothing has changed, but %s", l)
			}
			s.Apply(compiled(t, fmt.Sprintf(figure1, hosts[0], hosts[1], hosts[2], 2), old))
			mustRest(t, s)
			if l.String() != c1Order {
				t.Fatalf("hosts %v, seed %d: %s", hosts, seed, l)
			}
		}
	}
}

func TestC2(t *testing.T) {
	for seed := range uint64(20) {
		s1 := compiled(t, fmt.Sprintf(figure1, "a0", "a1", "a2", 1), nil)
		l := &log{site: s1}
		cfg := ordinary(s1)
		cfg.Seed, cfg.Watch = seed, l.watch
		s := New(cfg)
		mustRest(t, s)
		if want := "cfgA start; svcA start; svcB start"; l.String() != want {
			t.Fatalf("%s, want %s", l, want)
		}
	}
}

func TestC3(t *testing.T) {
	s1 := compiled(t, `
name: base
objects:
  - {name: base, host: agent:a0, type: script}
  - {name: x, host: agent:a1, type: service, requires: [{object: base}], holds: [{object: base}]}
  - {name: y, host: agent:a2, type: service, requires: [{object: base}], holds: [{object: base}]}
`, nil)
	l := &log{site: s1}
	cfg := ordinary(s1)
	cfg.Watch = l.watch
	s := New(cfg)
	mustRest(t, s)
	if l.begun[0] != "base start" || len(l.begun) != 3 {
		t.Fatal(l)
	}
	// Both services must have begun before either has ended.
	if n := len(l.steps); !l.steps[n-3].Begin || l.steps[n-2].Begin || l.steps[n-1].Begin {
		t.Fatalf("not in parallel: %+v", l.steps)
	}
}

func TestC4(t *testing.T) {
	// C's restart needs B down; B may stop only when A is down; A holds B up.
	text := `
name: locks
objects:
  - {name: A, host: agent:a0, type: service, requires: [{from: down, to: up, object: B}], holds: [{object: B}]}
  - {name: B, host: agent:a1, type: service, requires: [{from: up, to: down, object: A, state: down}]}
  - {name: C, host: agent:a2, type: filetree, content: {v: %d}, requires: [{from: outdated, to: up, object: B, state: down}]}
`
	for seed := range uint64(20) {
		old := compiled(t, fmt.Sprintf(text, 1), nil)
		l := &log{site: old}
		cfg := up(ordinary(old))
		cfg.Seed, cfg.Watch = seed, l.watch
		s := New(cfg)
		mustRest(t, s)
		s.Apply(compiled(t, fmt.Sprintf(text, 2), old))
		mustRest(t, s)
		if want := "A stop; B stop; C restart; B start; A start"; l.String() != want {
			t.Fatalf("%s, want %s", l, want)
		}
	}
}

func TestC6(t *testing.T) {
	s1 := compiled(t, fmt.Sprintf(figure1, "a0", "a1", "a2", 1), nil)
	l := &log{site: s1}
	cfg := ordinary(s1)
	cfg.Watch = l.watch
	s := New(cfg)
	a, _ := s1.Find("svcA")
	s.FailNext(a, 2)
	mustRest(t, s)
	if want := "cfgA start; svcA start; svcA start; svcA start; svcB start"; l.String() != want {
		t.Fatalf("%s, want %s", l, want)
	}
	var begun []int64
	for _, st := range l.steps {
		if st.ID == a && st.Begin {
			begun = append(begun, st.At)
		}
	}
	if begun[1]-begun[0] < 1000 || begun[2]-begun[1] < 2000 {
		t.Errorf("no backoff between attempts at %v", begun)
	}
}

func TestC7(t *testing.T) {
	hosts := []any{"a0", "a1", "a2", 1}
	full := fmt.Sprintf(figure1, hosts...)
	d := document(t, full)
	without := func(names ...string) *site.Document {
		c := *d
		c.Objects = nil
		for _, o := range d.Objects {
			if slices.Contains(names, o.Name) {
				continue
			}
			o.Requires = slices.DeleteFunc(slices.Clone(o.Requires), func(r site.Requirement) bool { return slices.Contains(names, r.Object) })
			o.Holds = slices.DeleteFunc(slices.Clone(o.Holds), func(h site.Holding) bool { return slices.Contains(names, h.Object) })
			c.Objects = append(c.Objects, o)
		}
		return &c
	}
	for _, c := range []struct {
		removed []string
		want    string
	}{
		{[]string{"svcB"}, "svcB stop"},
		{[]string{"svcA", "svcB"}, "svcB stop; svcA stop"},
	} {
		for seed := range uint64(20) {
			old := compiled(t, full, nil)
			next, err := compile.Site(without(c.removed...), compile.Options{Last: old})
			if err != nil {
				t.Fatal(err)
			}
			l := &log{site: old}
			cfg := up(ordinary(old))
			cfg.Seed, cfg.Watch = seed, l.watch
			s := New(cfg)
			mustRest(t, s)
			s.Apply(next)
			mustRest(t, s)
			if l.String() != c.want {
				t.Fatalf("removing %v: %s, want %s", c.removed, l, c.want)
			}
			if s.Generation() != 2 {
				t.Fatalf("generation %d is active", s.Generation())
			}
		}
	}
}

func TestC8(t *testing.T) {
	s1 := compiled(t, fmt.Sprintf(figure1, "a0", "a1", "a2", 1), nil)
	l := &log{site: s1}
	cfg := up(ordinary(s1))
	cfg.Watch = l.watch
	s := New(cfg)
	mustRest(t, s)
	c, _ := s1.Find("cfgA")
	s.Drift(c, state(s1, c, "up"), 12345) // edited by hand
	s.Probe(c)
	s.Run(s.Now() + 20)
	mustRest(t, s)
	if l.String() != c1Order {
		t.Fatal(l)
	}
	if s.World(c) != state(s1, c, "up") {
		t.Fatal("not repaired")
	}
}

// C9: the host of any object crashes or is cut off at any moment of C1.
func TestC9(t *testing.T) {
	old := compiled(t, fmt.Sprintf(figure1, "a0", "a1", "a2", 1), nil)
	next := compiled(t, fmt.Sprintf(figure1, "a0", "a1", "a2", 2), old)
	for victim := range 3 {
		for at := int64(0); at < 90; at += 3 {
			for way := range 4 {
				l := &log{site: old}
				cfg := up(ordinary(old))
				cfg.Seed, cfg.Watch = uint64(at), l.watch
				s := New(cfg)
				mustRest(t, s)
				s.Apply(next)
				s.Run(s.Now() + at)
				if way < 2 {
					s.Crash(victim, way == 1)
				} else {
					s.Cut(victim, way == 3)
				}
				s.Run(s.Now() + Lease + 1)
				mustRest(t, s)
				for i := range old.Defs {
					if s.World(object.ID(i)) != state(old, object.ID(i), "up") {
						t.Fatalf("victim %d at %d: %s is not up", victim, at, old.Defs[i].Name)
					}
				}
				// The order is that of C1, except for actions that had to be repeated.
				if got := strings.Join(slices.Compact(l.begun), "; "); got != c1Order && !afterCrash(l.begun) {
					t.Errorf("victim %d at %d, way %d: %s", victim, at, way, got)
				}
			}
		}
	}
}

// afterCrash reports whether the transitions are those of C1, apart from actions that were
// killed and then repeated, or found done.
func afterCrash(begun []string) bool {
	order := strings.Split(c1Order, "; ")
	i := 0
	for _, b := range begun {
		for i < len(order) && order[i] != b {
			i++
		}
		if i == len(order) {
			return false
		}
	}
	return true
}

// C5: conflicting requests for one object: down wins, and up follows.
func TestC5(t *testing.T) {
	text := `
name: conflict
objects:
  - {name: up-needer, host: agent:a0, type: service, requires: [{object: x}]}
  - {name: down-needer, host: agent:a1, type: filetree, content: {v: %d}, requires: [{from: outdated, to: up, object: x, state: down}]}
  - {name: x, host: agent:a2, type: script}
`
	for seed := range uint64(20) {
		old := compiled(t, fmt.Sprintf(text, 1), nil)
		next := compiled(t, fmt.Sprintf(text, 2), old)
		l := &log{site: next}
		cfg := up(ordinary(next))
		cfg.Seed, cfg.Watch = seed, l.watch
		needer, _ := next.Find("up-needer")
		cfg.Initial = func(id object.ID) object.State {
			if id == needer {
				return state(next, id, "down")
			}
			return state(next, id, "up")
		}
		s := New(cfg)
		dn, _ := next.Find("down-needer")
		s.Drift(dn, state(next, dn, "up"), 77) // of an older content
		mustRest(t, s)
		got := l.String()
		for _, ok := range []string{
			"x stop; down-needer restart; x start; up-needer start",
			"up-needer start; x stop; down-needer restart; x start", // its request came first, and its lock was granted
		} {
			if got == ok {
				got = ""
			}
		}
		if got != "" {
			t.Fatalf("seed %d: %s", seed, got)
		}
	}
}

// C12: a pair of objects that never comes to rest (rule 27) is reported and slowed down if its site
// is compiled in spite of that. Other objects are not delayed.
func TestC12Forced(t *testing.T) {
	d := document(t, `
name: c12
objects:
  - {name: A, host: agent:a0, type: script, requires: [{from: down, to: up, object: B, state: up}]}
  - {name: B, host: agent:a1, type: script, preferred: down, requires: [{from: up, to: down, object: A, state: down}]}
  - {name: other, host: agent:a0, type: script}
`)
	c12, err := compile.Site(d, compile.Options{Unsafe: true})
	if err != nil {
		t.Fatal(err)
	}
	s := New(ordinary(c12))
	s.Run(600_000)
	check(t, s)
	a, _ := c12.Find("A")
	b, _ := c12.Find("other")
	if !s.Object(a).Status().Oscillating {
		t.Error("A is not reported")
	}
	if n := s.Ran[a]; n < 8 || n > 40 {
		t.Errorf("A made %d transitions in ten minutes", n)
	}
	if !s.Object(b).AtRest() || s.Ran[b] != 1 {
		t.Error("the other object was delayed")
	}
}

// A revert is a new generation with the old content. It follows the order of C1.
func TestRevert(t *testing.T) {
	one := fmt.Sprintf(figure1, "a0", "a1", "a2", 1)
	old := compiled(t, one, nil)
	two := compiled(t, fmt.Sprintf(figure1, "a0", "a1", "a2", 2), old)
	l := &log{site: old}
	cfg := up(ordinary(old))
	cfg.Watch = l.watch
	s := New(cfg)
	mustRest(t, s)
	s.Apply(two)
	mustRest(t, s)
	back := compiled(t, one, two)
	if back.Generation != 3 || back.Defs[0].Content != old.Defs[0].Content {
		t.Fatal("the reverted generation is not the old content under a new number")
	}
	s.Apply(back)
	mustRest(t, s)
	if want := c1Order + "; " + c1Order; l.String() != want {
		t.Fatal(l)
	}
}

// With check_interval every kind of drift is repaired.
func TestCheckInterval(t *testing.T) {
	text := "check_interval: 1s" + fmt.Sprintf(figure1, "a0", "a1", "a2", 1)
	s1 := compiled(t, text, nil)
	l := &log{site: s1}
	cfg := up(ordinary(s1))
	cfg.Watch = l.watch
	s := New(cfg)
	mustRest(t, s)
	a, _ := s1.Find("svcA")
	s.Drift(a, state(s1, a, "down"), 0) // it has crashed
	s.Run(s.Now() + 2_000)
	mustRest(t, s)
	if l.String() != "svcA start" || s.World(a) != state(s1, a, "up") {
		t.Fatalf("%s", l)
	}
}

func TestRehearse(t *testing.T) {
	one := compiled(t, fmt.Sprintf(figure1, "a0", "a1", "a2", 1), nil)
	two := compiled(t, fmt.Sprintf(figure1, "a0", "a1", "a2", 2), one)
	for _, c := range []struct {
		old, next *object.Site
		want      string
	}{
		{nil, one, "cfgA start; svcA start; svcB start"},
		{one, two, c1Order},
		{one, one, ""},
	} {
		r := Rehearse(c.old, c.next, nil)
		var got []string
		for _, round := range r.Rounds {
			for _, st := range round {
				d := &c.next.Defs[st.ID]
				got = append(got, d.Name+" "+d.Type.Actions[st.Transition.Action])
			}
		}
		if strings.Join(got, "; ") != c.want || len(r.Stuck)+len(r.Trouble) > 0 {
			t.Errorf("%v, want %s (%+v)", got, c.want, r)
		}
	}
}

// Explain names the root cause: the failed object, the missing agent, or the objects that wait
// for each other.
func TestExplain(t *testing.T) {
	s1 := compiled(t, fmt.Sprintf(figure1, "a0", "a1", "a2", 1), nil)
	s := New(ordinary(s1))
	c, _ := s1.Find("cfgA")
	b, _ := s1.Find("svcB")
	explain := func() string {
		var words []string
		for _, r := range Explain(s, b) {
			words = append(words, r.Name+" "+r.Text)
		}
		return strings.Join(words, "; ")
	}
	s.FailNext(c, 1000)
	s.Run(600)
	if got, want := explain(), "svcB waits for svcA in up; svcA waits for cfgA in up; cfgA failed 1 times, and is checked again after a while"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	s.FailNext(c, 0)
	mustRest(t, s)
	if got := explain(); got != "" {
		t.Error(got)
	}
	d := document(t, `
name: c10
objects:
  - {name: A, host: agent:a0, type: script, requires: [{object: svcB}]}
  - {name: svcB, host: agent:a0, type: script, requires: [{object: A}]}
`)
	c10, err := compile.Site(d, compile.Options{Unsafe: true})
	if err != nil {
		t.Fatal(err)
	}
	s = New(ordinary(c10))
	s.Run(100)
	b, _ = c10.Find("svcB")
	if got := explain(); !strings.Contains(got, "wait for each other for ever") {
		t.Error(got)
	}
}

// Explain calls object.Explain for an object of a simulation.
func Explain(s *Sim, id object.ID) []object.Reason {
	return object.Explain(id, s.def, func(id object.ID) (object.Status, bool) {
		if o := s.Object(id); o != nil {
			return o.Status(), true
		}
		return object.Status{}, false
	})
}
