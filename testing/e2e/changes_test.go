package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/client"
)

// TestFigure1 runs cases C1 and C2 of docs/spec/changes.md over three agents, and reverts.
func TestFigure1(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	first := m.write(m.figure1(1))
	if out := m.must("change", "plan", first); !strings.Contains(out, "1. cfgA: down → up (start) on agent:a") {
		t.Errorf("the plan says:\n%s", out)
	}
	m.must("change", "apply", first, "--wait")
	m.does("first deployment", "figure1", "cfgA start", "svcA start", "svcB start")

	m.must("change", "apply", m.write(m.figure1(2)), "--wait")
	change := []string{"svcB stop", "svcA stop", "cfgA restart", "svcA start", "svcB start"}
	m.does("another configuration", "figure1", change...)
	m.must("change", "revert", "figure1", "--wait")
	m.does("back again", "figure1", change...)
	if out := m.must("change", "history", "figure1"); !strings.Contains(out, "in force") {
		t.Errorf("the history says:\n%s", out)
	}
	for _, args := range [][]string{{"status", "figure1"}, {"graph", "figure1"}, {"graph", "figure1", "--format", "dot"},
		{"graph", "figure1", "--format", "svg"}, {"explain", "figure1"}, {"check", "figure1"}, {"list"}, {"show", "figure1"}} {
		if out := m.must(append([]string{"change"}, args...)...); out == "" {
			t.Errorf("coopr change %v says nothing", args)
		}
	}
	m.must("change", "delete", "figure1", "--yes")
	m.await("the site to be gone", func() error {
		all, err := m.api().Sites(context.Background())
		if err == nil && len(all) > 0 {
			err = errNotYet
		}
		return err
	})
	// Nothing requires svcA to be down before cfgA is removed.
	if got := m.did("", 3); len(got) != 3 || slices.Index(got, "svcB stop") > slices.Index(got, "svcA stop") {
		t.Errorf("deletion: did %q", got)
	}
	m.stop()
}

// TestFigure1Killed is case C9: whichever agent is killed at whatever moment, no action runs twice
// at a time or without its locks, and the end is the same.
func TestFigure1Killed(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	apply := func(version int) {
		d := m.figure1(version)
		m.needs(&d.Objects[0], "start", "svcA", true)
		m.needs(&d.Objects[1], "start", "cfgA", true)
		m.needs(&d.Objects[1], "stop", "svcB", false)
		m.needs(&d.Objects[2], "restart", "svcA", false)
		m.apply(d)
	}
	apply(1)
	m.converged("figure1", 1)
	for i, a := range m.agents {
		m.did("figure1", 0)
		apply(2 + i)
		time.Sleep(time.Duration(rand.IntN(400)) * time.Millisecond) // any moment will do
		a.kill()
		a.start()
		m.converged("figure1", uint64(2+i))
		b, err := os.ReadFile(filepath.Join(m.dir, "world", "log"))
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(string(b), "\n") {
			if strings.HasPrefix(line, "overlap") || strings.HasPrefix(line, "without") {
				t.Errorf("agent %s killed: %s, of\n%s", a.name, line, b)
			}
		}
		if !strings.Contains(string(b), "end cfgA restart") {
			t.Errorf("agent %s killed: cfgA was not restarted:\n%s", a.name, b)
		}
	}
	m.stop()
}

// TestChangeCases runs cases C3, C4, C6, C7, C8, C10 and C12 over three real agents. C1, C2, C5, C9
// and C11 have tests of their own.
func TestChangeCases(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	up := func(on string) []site.Requirement { return []site.Requirement{{To: "up", Object: on}} }

	// C3: both begin before either ends, for each waits until the other has begun.
	both := func(me, other string) map[string]any {
		at := filepath.Join(m.dir, "world")
		return map[string]any{"start": fmt.Sprintf("echo >%[1]s/%[2]s.begun; until test -e %[1]s/%[3]s.begun; do sleep 0.02; "+
			"done; echo >%[1]s/%[2]s", at, me, other)}
	}
	base, one, two := m.noted("base", "a", nil), m.noted("one", "b", both("one", "two")), m.noted("two", "c", both("two", "one"))
	one.Requires, two.Requires = up("base"), up("base")
	m.apply(m.try("c3", base, one, two))
	m.converged("c3", 1)
	m.does("C3", "c3", "base start")

	// C4: an object that is held in up stops only after its holder has released it.
	holder, held, mover := m.noted("holder", "a", nil), m.noted("held", "b", nil), m.noted("mover", "c", nil)
	holder.Requires, holder.Holds = up("held"), []site.Holding{{Object: "held"}}
	top := m.noted("top", "c", nil)
	top.Requires, top.Holds = up("holder"), []site.Holding{{Object: "holder"}}
	held.Requires = []site.Requirement{{From: "up", To: "down", Object: "holder", State: "down"}}
	holder.Requires = append(holder.Requires, site.Requirement{From: "up", To: "down", Object: "top", State: "down"})
	mover.Requires = []site.Requirement{{From: "outdated", To: "up", Object: "held", State: "down"}}
	m.apply(m.try("c4", holder, held, mover, top))
	m.converged("c4", 1)
	m.did("c4", 4)
	mover.Content["version"] = 2
	m.apply(m.try("c4", holder, held, mover, top))
	m.converged("c4", 2)
	m.does("C4", "c4", "top stop", "holder stop", "held stop", "mover restart", "held start", "holder start", "top start")

	// C6: two failures, during which the dependent object waits.
	flaky, after := m.noted("flaky", "a", nil), m.noted("after", "b", nil)
	tries := filepath.Join(m.dir, "world", "tries")
	flaky.Content["start"] = fmt.Sprintf("echo >>%[1]s; test $(wc -l <%[1]s) -gt 2 || exit 1; %[2]s", tries, flaky.Content["start"])
	after.Requires = up("flaky")
	m.apply(m.try("c6", flaky, after))
	m.converged("c6", 1)
	m.does("C6", "c6", "flaky start", "after start")
	if b, err := os.ReadFile(tries); err != nil || len(b) != 3 {
		t.Errorf("C6: %d tries, %v", len(b), err)
	}

	// C7: removed objects are brought down first; the others are untouched.
	d := m.figure1(1)
	m.apply(d)
	m.converged("figure1", 1)
	m.did("figure1", 3)
	d.Objects = d.Objects[1:] // without svcB, and without what svcA needs of it
	d.Objects[0].Requires = d.Objects[0].Requires[:1]
	m.apply(d)
	m.converged("figure1", 2)
	m.does("C7", "figure1", "svcB stop")
	whole := m.figure1(1)
	m.apply(whole)
	m.converged("figure1", 3)
	m.does("C7, again", "figure1", "svcB start")
	whole.Objects = whole.Objects[2:] // cfgA alone
	whole.Objects[0].Requires = nil
	m.apply(whole)
	m.converged("figure1", 4)
	m.does("C7, both", "figure1", "svcB stop", "svcA stop")
	m.apply(d)
	m.converged("figure1", 5)
	m.does("C7, back", "figure1", "svcA start")

	// C8: a change by hand is found and repaired.
	d.CheckInterval = 200
	m.apply(d)
	m.converged("figure1", 6)
	if err := os.Remove(filepath.Join(m.dir, "world", "svcA")); err != nil {
		t.Fatal(err)
	}
	m.does("C8", "figure1", "svcA start")

	// C10 and C12: sites that would deadlock or never come to rest.
	a, b := m.noted("A", "a", nil), m.noted("B", "b", nil)
	a.Requires, b.Requires = up("B"), up("A")
	if said := m.coopr("change", "apply", m.write(m.try("c10", a, b))); said.code != 1 || !strings.Contains(said.out+said.err, "A → B → A") {
		t.Errorf("C10: %+v", said)
	}
	a.Requires[0].State = "up"
	b.Preferred, b.Requires = "down", []site.Requirement{{From: "up", To: "down", Object: "A", State: "down"}}
	if said := m.coopr("change", "plan", m.write(m.try("c12", a, b))); said.code != 1 {
		t.Errorf("C12: %+v", said)
	}
	m.stop()
}

// TestConflict is case C5 over three real agents, observed by events: x is requested up and down at
// the same time; down wins, and up follows.
func TestConflict(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	var told []string
	connected, ended := make(chan struct{}, 1), make(chan error, 1)
	ctx, cancel := context.WithCancel(m.context())
	defer cancel()
	go func() {
		over := errors.New("the site is deleted")
		err := m.api().Events(ctx, client.EventFilter{Types: []string{"site.*", "object.*"}, Connected: func() {
			select {
			case connected <- struct{}{}:
			default:
			}
		}}, func(e model.Event) error {
			told = append(told, strings.TrimSpace(e.Type+" "+e.Subject+" "+e.Status+" "+e.Message))
			if e.Type == "site.deleted" {
				return over
			}
			return nil
		})
		if errors.Is(err, over) {
			err = nil
		}
		ended <- err
	}()
	<-connected

	at := filepath.Join(m.dir, "world")
	x, goes, comes := m.noted("x", "c", nil), m.noted("goes", "b", map[string]any{"version": 1}), m.noted("comes", "a", nil)
	goes.Content["restart"] = fmt.Sprintf("echo >%[1]s/begun; until test -e %[1]s/go; do sleep 0.02; done; %[2]s", at, goes.Content["restart"])
	goes.Requires = []site.Requirement{{From: "outdated", To: "up", Object: "x", State: "down"}}
	comes.Requires = []site.Requirement{{To: "up", Object: "x"}}
	d := m.try("c5", x, goes, comes)
	d.CheckInterval = 100
	m.apply(d)
	m.converged("c5", 1)
	if got := m.did("c5", 3); len(got) != 3 {
		t.Errorf("deployed: %q", got)
	}
	goes.Content["version"] = 2
	m.apply(d)
	m.await("x to be held down", func() error { _, err := os.Stat(filepath.Join(at, "begun")); return err })
	if err := os.Remove(filepath.Join(at, "comes")); err != nil { // now it has to start, for which it wants x up
		t.Fatal(err)
	}
	m.await("the conflict", func() error {
		s, err := m.api().SiteStatus(m.context(), "c5", 0)
		if err != nil {
			return err
		}
		if o := s.Items[0]; o.Name != "comes" || !slices.Equal(o.Waits, []string{"waits for x in up"}) || s.Converged {
			return fmt.Errorf("%+v", s)
		}
		if o := s.Items[2]; o.Name != "x" || o.State != "down" || o.Target != "down" {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	if out := m.must("change", "explain", "c5", "comes"); !strings.Contains(out, "x") || !strings.Contains(out, "goes") {
		t.Errorf("explain says:\n%s", out)
	}
	if err := os.WriteFile(filepath.Join(at, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m.does("C5", "c5", "x stop", "goes restart", "x start", "comes start")

	// A watcher receives all events, in order.
	m.must("change", "delete", "c5", "--yes")
	if err := <-ended; err != nil {
		t.Fatalf("%v, after %q", err, told)
	}
	for _, want := range [][]string{
		{"site.changed c5 generation 1 is in force", "site.changed c5 generation 2 is in force", "object.changed c5/comes drifted found down",
			"site.changed c5 generation 3 is on its way", "site.deleted c5"},
		{"object.changed c5/x moved start: down → up", "object.changed c5/x moved stop: up → down", "object.changed c5/x moved start: down → up",
			"object.changed c5/x moved stop: up → down", "site.deleted c5"},
		{"object.changed c5/goes moved start: down → up", "object.changed c5/goes moved restart: outdated → up",
			"object.changed c5/goes moved stop: up → down"},
	} {
		rest := told
		for _, w := range want {
			i := slices.Index(rest, w)
			if i < 0 {
				t.Errorf("no %q where it should be in\n%s", w, strings.Join(told, "\n"))
				break
			}
			rest = rest[i+1:]
		}
	}
	if out := m.must("events", "--type", "object.*", "--index", "1", "--limit", "1"); !strings.Contains(out, "c5/") ||
		!strings.Contains(out, "moved") {
		t.Errorf("coopr events says:\n%s", out)
	}
	m.stop()
}
