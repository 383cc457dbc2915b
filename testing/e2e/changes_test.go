package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/engine/change/storage"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"
)

// noted is a script object that writes down what it does, and is up for as long
// as its file is there.
func (m *mesh) noted(name, host string, content map[string]any) site.Object {
	file, log := filepath.Join(m.dir, "world", name), filepath.Join(m.dir, "world", "log")
	// Who acts holds a lock that ends with the last process of the act: nothing
	// may run twice at a time, whoever was killed.
	script := func(what, do string) string {
		return fmt.Sprintf("exec 9>>%[5]s; flock -n 9 || echo overlap %[1]s %[2]s >>%[3]s; echo begin %[1]s %[2]s >>%[3]s; sleep 0.05; %[4]s; echo end %[1]s %[2]s >>%[3]s", name, what, log, do, file+".lock")
	}
	o := site.Object{Name: name, Host: "agent:" + host, Type: "script", Content: map[string]any{
		"check": "test -e " + file, "start": script("start", "echo >"+file), "stop": script("stop", "rm -f "+file), "restart": script("restart", ":"),
	}}
	maps.Copy(o.Content, content)
	return o
}

// figure1 is the paper's figure 1 over three agents.
func (m *mesh) figure1(version int) *site.Document {
	d := &site.Document{Name: "figure1", Objects: []site.Object{
		m.noted("svcB", "c", nil), m.noted("svcA", "b", nil), m.noted("cfgA", "a", map[string]any{"version": version}),
	}}
	b, a, cfg := &d.Objects[0], &d.Objects[1], &d.Objects[2]
	b.Requires = []site.Requirement{{To: "up", Object: "svcA"}}
	b.Holds = []site.Holding{{Object: "svcA"}}
	a.Requires = []site.Requirement{{To: "up", Object: "cfgA"}, {From: "up", To: "down", Object: "svcB", State: "down"}}
	a.Holds = []site.Holding{{Object: "cfgA"}}
	cfg.Requires = []site.Requirement{{From: "outdated", To: "up", Object: "svcA", State: "down"}}
	return d
}

// write writes a site's file.
func (m *mesh) write(d *site.Document) string {
	m.t.Helper()
	if err := os.MkdirAll(filepath.Join(m.dir, "world"), 0o700); err != nil {
		m.t.Fatal(err)
	}
	b, err := json.Marshal(d)
	if err != nil {
		m.t.Fatal(err)
	}
	file := filepath.Join(m.dir, d.Name+".json")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		m.t.Fatal(err)
	}
	return file
}

// did waits until objects of the world have ended so many actions since it was
// last asked, and all is settled, and gives them.
func (m *mesh) did(name string, n int) []string {
	m.t.Helper()
	file := filepath.Join(m.dir, "world", "log")
	read := func() (out []string) {
		b, err := os.ReadFile(file)
		if err != nil && !os.IsNotExist(err) {
			m.t.Fatal(err)
		}
		for _, line := range strings.Split(string(b), "\n") {
			if end, ok := strings.CutPrefix(line, "end "); ok {
				out = append(out, end)
			}
		}
		return out
	}
	m.await(fmt.Sprintf("%d actions", n), func() error {
		if got := read(); len(got) < n {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
	if name != "" {
		m.settled(name, 0)
	}
	out := read()
	if err := os.Remove(file); err != nil && n > 0 && !os.IsNotExist(err) {
		m.t.Fatal(err)
	}
	return out
}

// settled waits until a site is in force and all of it where it should be.
func (m *mesh) settled(name string, generation uint64) site.Standing {
	m.t.Helper()
	var last site.Standing
	ctx := m.context()
	for after := uint64(0); ; {
		s, err := m.api().SiteStatus(ctx, name, after)
		switch {
		case err == nil && s.Converged && s.Generation >= generation:
			return s
		case ctx.Err() != nil:
			for _, o := range last.Items {
				m.t.Logf("%+v", o)
			}
			m.t.Fatalf("site %s never settled: generation %d, next %d, %d of %d; %v", name, last.Generation, last.Next, last.Settled, last.Objects, err)
		case err != nil:
			pause(ctx)
			continue
		}
		last, after = s, max(s.Revision, 1)
	}
}

// pause waits a moment before something is asked again that gave an error.
func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(50 * time.Millisecond):
	}
}

func (m *mesh) does(what, name string, want ...string) {
	m.t.Helper()
	if got := m.did(name, len(want)); !slices.Equal(got, want) {
		m.t.Errorf("%s: did %q, not %q", what, got, want)
	}
}

// Figure 1 of the paper, over three agents (cases C1 and C2), and back.
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
	for _, args := range [][]string{{"status", "figure1"}, {"graph", "figure1"}, {"graph", "figure1", "--format", "dot"}, {"graph", "figure1", "--format", "svg"}, {"explain", "figure1"}, {"check", "figure1"}, {"list"}, {"show", "figure1"}} {
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
	// Nothing says that cfgA may go only when svcA is down.
	if got := m.did("", 3); len(got) != 3 || slices.Index(got, "svcB stop") > slices.Index(got, "svcA stop") {
		t.Errorf("deletion: did %q", got)
	}
	m.stop()
}

// apply puts a site on its way.
func (m *mesh) apply(d *site.Document) {
	m.t.Helper()
	b, err := os.ReadFile(m.write(d))
	if err != nil {
		m.t.Fatal(err)
	}
	m.await("the site "+d.Name+" to be taken", func() error { _, _, err := m.api().ApplySite(m.context(), d.Name, b); return err })
}

// needs lets an object refuse to act where what it needs is not so: no
// transition may run without its locks.
func (m *mesh) needs(o *site.Object, action, other string, up bool) {
	file := filepath.Join(m.dir, "world", other)
	test := "test -e " + file
	if !up {
		test = "! " + test
	}
	o.Content[action] = fmt.Sprintf("flock -n %[1]s.lock true && %[2]s || echo without %[3]s %[4]s >>%[5]s; %[6]s", file, test, o.Name, action, filepath.Join(m.dir, "world", "log"), o.Content[action])
}

// Case C9: whoever is killed, whenever: nothing runs twice at a time, nothing
// without its locks, and it ends as it would have.
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
	m.settled("figure1", 1)
	for i, a := range m.agents {
		m.did("figure1", 0)
		apply(2 + i)
		time.Sleep(time.Duration(rand.IntN(400)) * time.Millisecond) // any moment will do
		a.kill()
		a.start()
		m.settled("figure1", uint64(2+i))
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

// try is a site of the world with objects that a test wires itself.
func (m *mesh) try(name string, objects ...site.Object) *site.Document {
	return &site.Document{Name: name, Objects: objects}
}

// Cases C3, C4, C6, C7, C8, C10 and C12 over three real agents. C1, C2, C5, C9 and
// C11 have tests of their own.
func TestChangeCases(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	up := func(on string) []site.Requirement { return []site.Requirement{{To: "up", Object: on}} }

	// C3: both begin before either ends, for each waits until the other has begun.
	both := func(me, other string) map[string]any {
		at := filepath.Join(m.dir, "world")
		return map[string]any{"start": fmt.Sprintf("echo >%[1]s/%[2]s.begun; until test -e %[1]s/%[3]s.begun; do sleep 0.02; done; echo >%[1]s/%[2]s", at, me, other)}
	}
	base, one, two := m.noted("base", "a", nil), m.noted("one", "b", both("one", "two")), m.noted("two", "c", both("two", "one"))
	one.Requires, two.Requires = up("base"), up("base")
	m.apply(m.try("c3", base, one, two))
	m.settled("c3", 1)
	m.does("C3", "c3", "base start")

	// C4: what is held up stops only when its holder has let go.
	holder, held, mover := m.noted("holder", "a", nil), m.noted("held", "b", nil), m.noted("mover", "c", nil)
	holder.Requires, holder.Holds = up("held"), []site.Holding{{Object: "held"}}
	top := m.noted("top", "c", nil)
	top.Requires, top.Holds = up("holder"), []site.Holding{{Object: "holder"}}
	held.Requires = []site.Requirement{{From: "up", To: "down", Object: "holder", State: "down"}}
	holder.Requires = append(holder.Requires, site.Requirement{From: "up", To: "down", Object: "top", State: "down"})
	mover.Requires = []site.Requirement{{From: "outdated", To: "up", Object: "held", State: "down"}}
	m.apply(m.try("c4", holder, held, mover, top))
	m.settled("c4", 1)
	m.did("c4", 4)
	mover.Content["version"] = 2
	m.apply(m.try("c4", holder, held, mover, top))
	m.settled("c4", 2)
	m.does("C4", "c4", "top stop", "holder stop", "held stop", "mover restart", "held start", "holder start", "top start")

	// C6: two failures, and who depends on it waits.
	flaky, after := m.noted("flaky", "a", nil), m.noted("after", "b", nil)
	tries := filepath.Join(m.dir, "world", "tries")
	flaky.Content["start"] = fmt.Sprintf("echo >>%[1]s; test $(wc -l <%[1]s) -gt 2 || exit 1; %[2]s", tries, flaky.Content["start"])
	after.Requires = up("flaky")
	m.apply(m.try("c6", flaky, after))
	m.settled("c6", 1)
	m.does("C6", "c6", "flaky start", "after start")
	if b, err := os.ReadFile(tries); err != nil || len(b) != 3 {
		t.Errorf("C6: %d tries, %v", len(b), err)
	}

	// C7: what is removed is brought down first; the rest is left alone.
	d := m.figure1(1)
	m.apply(d)
	m.settled("figure1", 1)
	m.did("figure1", 3)
	d.Objects = d.Objects[1:] // without svcB, and without what svcA needs of it
	d.Objects[0].Requires = d.Objects[0].Requires[:1]
	m.apply(d)
	m.settled("figure1", 2)
	m.does("C7", "figure1", "svcB stop")
	whole := m.figure1(1)
	m.apply(whole)
	m.settled("figure1", 3)
	m.does("C7, again", "figure1", "svcB start")
	whole.Objects = whole.Objects[2:] // cfgA alone
	whole.Objects[0].Requires = nil
	m.apply(whole)
	m.settled("figure1", 4)
	m.does("C7, both", "figure1", "svcB stop", "svcA stop")
	m.apply(d)
	m.settled("figure1", 5)
	m.does("C7, back", "figure1", "svcA start")

	// C8: what somebody does by hand is found, and repaired.
	d.CheckInterval = 200
	m.apply(d)
	m.settled("figure1", 6)
	if err := os.Remove(filepath.Join(m.dir, "world", "svcA")); err != nil {
		t.Fatal(err)
	}
	m.does("C8", "figure1", "svcA start")

	// C10 and C12: sites that are certain to hang, or to go round for ever.
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

// Case C5 over three real agents, told by events: x is wanted up and down at the same
// time; down wins, and up follows.
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
	m.settled("c5", 1)
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

	// What watches is told everything, each in its order.
	m.must("change", "delete", "c5", "--yes")
	if err := <-ended; err != nil {
		t.Fatalf("%v, after %q", err, told)
	}
	for _, want := range [][]string{
		{"site.changed c5 generation 1 is in force", "site.changed c5 generation 2 is in force", "object.changed c5/comes drifted found down", "site.changed c5 generation 3 is on its way", "site.deleted c5"},
		{"object.changed c5/x moved start: down → up", "object.changed c5/x moved stop: up → down", "object.changed c5/x moved start: down → up", "object.changed c5/x moved stop: up → down", "site.deleted c5"},
		{"object.changed c5/goes moved start: down → up", "object.changed c5/goes moved restart: outdated → up", "object.changed c5/goes moved stop: up → down"},
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
	if out := m.must("events", "--type", "object.*", "--index", "1", "--limit", "1"); !strings.Contains(out, "c5/") || !strings.Contains(out, "moved") {
		t.Errorf("coopr events says:\n%s", out)
	}
	m.stop()
}

// Figure 1 with real processes as services and a real file, which a person edits.
func TestFigure1OfRealThings(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	conf := filepath.Join(m.dir, "world", "etc", "app.conf")
	// A service shows what it was started with.
	service := func(name, host string) site.Object {
		seen := filepath.Join(m.dir, "world", name+".seen")
		return site.Object{Name: name, Host: "agent:" + host, Type: "service", Content: map[string]any{
			"manager": "process", "command": []string{"/bin/sh", "-c", fmt.Sprintf("cat %s >%s; exec sleep 100000", conf, seen)}, "ready": "test -s " + seen,
		}}
	}
	doc := func(port int) *site.Document {
		d := m.figure1(0)
		for i, o := range []site.Object{service("svcB", "c"), service("svcA", "b"), {Name: "cfgA", Host: "agent:a", Type: "filetree", Content: map[string]any{
			"root": filepath.Dir(conf), "files": map[string]any{"app.conf": map[string]any{"content": fmt.Sprintf("port = %d\n\nname = app\n", port)}},
		}}} {
			o.Requires, o.Holds = d.Objects[i].Requires, d.Objects[i].Holds
			d.Objects[i] = o
		}
		return d
	}
	shows := func(what, want string) {
		t.Helper()
		for _, file := range []string{conf, filepath.Join(m.dir, "world", "svcA.seen"), filepath.Join(m.dir, "world", "svcB.seen")} {
			if b, err := os.ReadFile(file); err != nil || string(b) != want {
				t.Errorf("%s: %s says %q, not %q (%v)", what, file, b, want, err)
			}
		}
	}
	m.apply(doc(80))
	m.settled("figure1", 1)
	shows("deployed", "port = 80\n\nname = app\n")
	if err := os.WriteFile(conf, []byte("port = 80\n\nname = app\n# by hand\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m.apply(doc(81))
	m.agents[1].kill() // svcA's agent; its process goes on without it
	m.agents[1].start()
	m.settled("figure1", 2)
	shows("changed", "port = 81\n\nname = app\n# by hand\n")
	m.must("change", "revert", "figure1", "--wait")
	m.settled("figure1", 3)
	shows("reverted", "port = 80\n\nname = app\n# by hand\n")
	if n := len(machineProcesses(t, m.dir, "sleep 100000")); n != 2 {
		t.Errorf("%d processes serve, not 2", n)
	}
	m.must("change", "delete", "figure1", "--yes")
	m.await("everything to be gone", func() error {
		if all, err := m.api().Sites(context.Background()); err != nil || len(all) > 0 {
			return fmt.Errorf("%v, %v", all, err)
		}
		return nil
	})
	if _, err := os.Stat(conf); !os.IsNotExist(err) {
		t.Error("the file is still there")
	}
	m.stop()
}

// machineProcesses gives the processes of the mesh whose command ends so.
func machineProcesses(t *testing.T, dir, command string) (pids []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		line, _ := os.ReadFile(filepath.Join(p, "cmdline"))
		env, _ := os.ReadFile(filepath.Join(p, "environ"))
		if strings.HasSuffix(strings.TrimSuffix(strings.ReplaceAll(string(line), "\x00", " "), " "), command) && strings.Contains(string(env), dir) {
			pids = append(pids, filepath.Base(p))
		}
	}
	return pids
}

// Case C11: a storage installation of four servers, 200 objects, over three
// agents, with scripts and files.
func TestStorage(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	dir := filepath.Join(m.dir, "world")
	doc := func(base int) *site.Document {
		d := storage.Document(storage.Config{Servers: 4, Version: 1, Base: base, Host: func(s int) string { return "agent:" + m.agents[s%3].name }})
		storage.Real(d, dir)
		return d
	}
	m.apply(doc(1))
	m.settled("storage", 1)
	log := func() map[string]int {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(dir, "log"))
		if err != nil {
			t.Fatal(err)
		}
		at := map[string]int{}
		for i, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
			at[line] = i
		}
		return at
	}
	at := log()
	if len(at) != 4*(storage.ObjectsPerServer-6) {
		t.Errorf("%d notes", len(at))
	}
	before := func(first, then string) {
		t.Helper()
		i, ok := at[first]
		j, also := at[then]
		if !ok || !also || i > j {
			t.Errorf("%s at %d (%t), %s at %d (%t)", first, i, ok, then, j, also)
		}
	}
	for i := range 8 {
		// All that serves metadata before any target of objects, and the cluster
		// stack of both servers of a pair before its first resource.
		before(fmt.Sprintf("s0/resource%d start", i), "s2/target0 start")
		before(fmt.Sprintf("s1/resource%d start", i), "s3/target7 start")
		before("s0/pacemaker0 start", fmt.Sprintf("s1/resource%d start", i))
		before("s3/pacemaker0 start", fmt.Sprintf("s2/resource%d start", i))
	}
	if err := os.Remove(filepath.Join(dir, "log")); err != nil {
		t.Fatal(err)
	}
	// Another configuration of the first array: what stands on it goes down and
	// comes up again, once.
	m.apply(doc(2))
	m.settled("storage", 2)
	b, err := os.ReadFile(filepath.Join(dir, "s0/config0/settings.conf"))
	if err != nil || !strings.Contains(string(b), "version = 1.2") {
		t.Errorf("%s, %v", b, err)
	}
	at = log()
	before("s0/monitor0 stop", "s0/resource0 stop")
	before("s0/resource0 stop", "s0/target0 stop")
	before("s0/target0 stop", "s0/volume0 stop")
	before("s0/volume0 stop", "s0/array0 stop")
	before("s0/array0 stop", "s0/array0 start")
	before("s0/array0 start", "s0/monitor7 start")
	for line := range at {
		if !strings.HasPrefix(line, "s0/") {
			t.Errorf("nothing but the first server has to do anything: %s", line)
		}
	}
	m.stop()
}

// A cluster that a plan has made is held in shape by its services' change
// objects, wherever their homes are.
func TestClusterHeldInShape(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	m.must("import", testdata(t, "changes"))
	op := m.begin(model.CreateCluster{Name: "held", ClusterTemplate: "held", NumMachines: 3})
	m.succeeds(op.ID)
	name := "cluster-" + op.Cluster
	standing := func(what string, objects int) (out site.Standing) {
		t.Helper()
		m.await(what, func() error {
			s, err := m.api().SiteStatus(m.context(), name, 0)
			if err == nil && (!s.Converged || s.Objects != objects) {
				err = fmt.Errorf("%+v", s)
			}
			out = s
			return err
		})
		return out
	}
	s := standing("the site of the cluster", 3)
	// Another home takes over what a dead agent ran.
	i := slices.IndexFunc(m.agents, func(a *agent) bool { return a.name == s.Items[0].Agent })
	m.agents[i].kill()
	m.await("another home", func() error {
		now, err := m.api().SiteStatus(m.context(), name, 0)
		if err == nil && (now.Items[0].Agent == s.Items[0].Agent || now.Settled != 3) {
			err = fmt.Errorf("%+v", now)
		}
		return err
	})
	m.agents[i].start()
	standing("all to be where it should be", 3)
	// What somebody takes away by hand comes back.
	made, err := filepath.Glob(filepath.Join(m.nodes(), "*", "*", "ready"))
	if err != nil || len(made) != 1 {
		t.Fatalf("%q, %v", made, err)
	}
	if err := os.Remove(made[0]); err != nil {
		t.Fatal(err)
	}
	m.await("it to come back", func() error { _, err := os.Stat(made[0]); return err })
	stopped, _, err := m.api().Operate(m.context(), op.Cluster, api.Operate{Type: model.OpStop, Services: []string{"web"}})
	if err != nil {
		t.Fatal(err)
	}
	m.succeeds(stopped.Operation.ID)
	standing("the objects of what was stopped to be gone", 1)
	m.remove("held")
	m.await("the site to be forgotten", func() error {
		all, err := m.api().Sites(m.context())
		if err == nil && len(all) > 0 {
			err = fmt.Errorf("%+v", all)
		}
		return err
	})
	m.stop()
}

// TestTypesOfAutomators: objects whose actions an automator plugin carries out, on an
// agent's machine and on a node, one after the other.
func TestTypesOfAutomators(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	m.must("import", testdata(t, "changes"))
	op := m.begin(model.CreateCluster{Name: "made", ClusterTemplate: "held", NumMachines: 3})
	m.succeeds(op.ID)
	held := m.settled("cluster-"+op.Cluster, 0)
	do := func(script string) map[string]any { return map[string]any{"script": script + "\n"} }
	world := filepath.Join(m.dir, "world")
	tool := func(name, host string) site.Object {
		file := filepath.Join(world, name)
		return site.Object{Name: name, Host: host, Type: "automator:shell", Content: map[string]any{
			"check": do("test -e " + file), "start": do("basename $COOPR_NODE_DIR >" + file), "stop": do("rm " + file),
		}}
	}
	first, second := tool("first", "agent:a"), tool("second", held.Items[0].Host)
	second.Requires, second.Holds = []site.Requirement{{To: "up", Object: "first"}}, []site.Holding{{Object: "first"}}
	first.Requires = []site.Requirement{{From: "up", To: "down", Object: "second", State: "down"}, {From: "outdated", To: "up", Object: "second", State: "down"}}
	d := m.try("tools", first, second)
	d.CheckInterval = 1000
	m.apply(d)
	m.settled("tools", 1)
	where := func(name string) string {
		b, err := os.ReadFile(filepath.Join(world, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if where("first") == where("second") {
		t.Errorf("both were made at %q", where("first"))
	}
	// What is taken away by hand comes back; another content is put in the old one's place.
	if err := os.Remove(filepath.Join(world, "second")); err != nil {
		t.Fatal(err)
	}
	m.await("it to come back", func() error { _, err := os.Stat(filepath.Join(world, "second")); return err })
	d.Objects[0].Content["start"] = do("echo two >" + filepath.Join(world, "first"))
	m.apply(d)
	m.settled("tools", 2)
	if where("first") != "two\n" {
		t.Errorf("the second content made %q", where("first"))
	}
	// Nobody offers this one.
	d.Objects[0].Type = "automator:nobody"
	if s := m.coopr("change", "apply", m.write(d)); s.code == 0 || !strings.Contains(s.out+s.err, `objects[0].type: no agent offers the automator "nobody"`) {
		t.Errorf("%d: %s%s", s.code, s.out, s.err)
	}
	m.must("change", "delete", "tools", "--yes")
	m.await("the site to be forgotten", func() error {
		all, err := m.api().Sites(m.context())
		if err == nil && slices.ContainsFunc(all, func(s site.Overview) bool { return s.Name == "tools" }) {
			err = fmt.Errorf("%+v", all)
		}
		return err
	})
	for _, name := range []string{"first", "second"} {
		if _, err := os.Stat(filepath.Join(world, name)); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", name, err)
		}
	}
	m.remove("made")
	m.stop()
}
