package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/examples/storage/installation"
	"github.com/coopr/coopr/rpc/api"
)

// TestFigure1OfRealThings runs case C1 with real processes as services and a real file, which is
// edited by hand.
func TestFigure1OfRealThings(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	conf := filepath.Join(m.dir, "world", "etc", "app.conf")
	// A service shows what it was started with.
	service := func(name, host string) site.Object {
		seen := filepath.Join(m.dir, "world", name+".seen")
		return site.Object{Name: name, Host: "agent:" + host, Type: "service", Content: map[string]any{
			"manager": "process", "command": []string{"/bin/sh", "-c", fmt.Sprintf("cat %s >%s; exec sleep 100000", conf, seen)},
			"ready": "test -s " + seen,
		}}
	}
	doc := func(port int) *site.Document {
		d := m.figure1(0)
		for i, o := range []site.Object{service("svcB", "c"), service("svcA", "b"),
			{Name: "cfgA", Host: "agent:a", Type: "filetree", Content: map[string]any{
				"root": filepath.Dir(conf), "files": map[string]any{"app.conf": map[string]any{"content": fmt.Sprintf("port = %d\n\nname = app\n",
					port)}},
			}}} {
			o.Requires, o.Holds = d.Objects[i].Requires, d.Objects[i].Holds
			d.Objects[i] = o
		}
		return d
	}
	// A service is ready by what it saw before, too, so it may not have read the file anew yet.
	shows := func(what, want string) {
		t.Helper()
		m.await(what, func() error {
			for _, file := range []string{conf, filepath.Join(m.dir, "world", "svcA.seen"), filepath.Join(m.dir, "world", "svcB.seen")} {
				b, err := os.ReadFile(file)
				if err != nil {
					return err
				}
				if string(b) != want {
					return fmt.Errorf("%s says %q, not %q", file, b, want)
				}
			}
			return nil
		})
	}
	m.apply(doc(80))
	m.converged("figure1", 1)
	shows("deployed", "port = 80\n\nname = app\n")
	if err := os.WriteFile(conf, []byte("port = 80\n\nname = app\n# by hand\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m.apply(doc(81))
	m.agents[1].kill() // svcA's agent; its process goes on without it
	m.agents[1].start()
	m.converged("figure1", 2)
	shows("changed", "port = 81\n\nname = app\n# by hand\n")
	m.must("change", "revert", "figure1", "--wait")
	m.converged("figure1", 3)
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

// machineProcesses returns the processes of the mesh whose command ends so.
func machineProcesses(t *testing.T, dir, command string) (pids []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		line, _ := os.ReadFile(filepath.Join(p, "cmdline"))
		env, _ := os.ReadFile(filepath.Join(p, "environ"))
		if strings.HasSuffix(strings.TrimSuffix(strings.ReplaceAll(string(line), "\x00", " "), " "), command) &&
			strings.Contains(string(env), dir) {
			pids = append(pids, filepath.Base(p))
		}
	}
	return pids
}

// TestStorage is case C11: a storage installation of four servers, 200 objects, over three agents,
// with scripts and files.
func TestStorage(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	dir := filepath.Join(m.dir, "world")
	doc := func(base int) *site.Document {
		d := installation.Document(installation.Config{Servers: 4, Version: 1, Base: base,
			Host: func(s int) string { return "agent:" + m.agents[s%3].name }})
		installation.Real(d, dir)
		return d
	}
	m.apply(doc(1))
	m.converged("storage", 1)
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
	if len(at) != 4*(installation.ObjectsPerServer-6) {
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
	// Another configuration of the first array: the objects that rely on it go down and come up
	// again, once.
	m.apply(doc(2))
	m.converged("storage", 2)
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

// TestClusterHeldInShape: the change objects of services keep a cluster as described, whichever
// agents run them.
func TestClusterHeldInShape(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	m.must("import", testdata(t, "changes"))
	op := m.begin(model.CreateCluster{Name: "held", ClusterTemplate: "held", NumMachines: 3})
	m.succeeds(op.ID)
	name := "cluster-" + op.Cluster
	await := func(what string, objects int) (out site.SiteStatus) {
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
	s := await("the site of the cluster", 3)
	// Another agent takes over the objects of a dead one.
	i := slices.IndexFunc(m.agents, func(a *agent) bool { return a.name == s.Items[0].Agent })
	m.agents[i].kill()
	m.await("another agent", func() error {
		now, err := m.api().SiteStatus(m.context(), name, 0)
		if err == nil && (now.Items[0].Agent == s.Items[0].Agent || now.ConvergedObjects != 3) {
			err = fmt.Errorf("%+v", now)
		}
		return err
	})
	m.agents[i].start()
	await("all to be where it should be", 3)
	// A file that is removed by hand is restored.
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
	await("the objects of what was stopped to be gone", 1)
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
	held := m.converged("cluster-"+op.Cluster, 0)
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
	first.Requires = []site.Requirement{{From: "up", To: "down", Object: "second", State: "down"},
		{From: "outdated", To: "up", Object: "second", State: "down"}}
	d := m.try("tools", first, second)
	d.CheckInterval = 1000
	m.apply(d)
	m.converged("tools", 1)
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
	// A file that is removed by hand is restored; a new content replaces the old one.
	if err := os.Remove(filepath.Join(world, "second")); err != nil {
		t.Fatal(err)
	}
	m.await("it to come back", func() error { _, err := os.Stat(filepath.Join(world, "second")); return err })
	d.Objects[0].Content["start"] = do("echo two >" + filepath.Join(world, "first"))
	m.apply(d)
	m.converged("tools", 2)
	if where("first") != "two\n" {
		t.Errorf("the second content made %q", where("first"))
	}
	// No agent offers this type.
	d.Objects[0].Type = "automator:nobody"
	if s := m.coopr("change", "apply", m.write(d)); s.code == 0 ||
		!strings.Contains(s.out+s.err, `objects[0].type: no agent offers the automator "nobody"`) {
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
