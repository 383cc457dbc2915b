package e2e

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/coopr/coopr/engine/model"
)

// TestKillPlugin: kill -9 of the plugin that runs the scripts, on every agent.
func TestKillPlugin(t *testing.T) {
	t.Parallel()
	m := ledgerMesh(t)
	op := m.create("c", nodes)
	m.half(op.ID, .4)
	var pids []int
	m.await("the plugin to run", func() error {
		if pids = m.plugins("coopr-automator-shell", nil); len(pids) == 0 {
			return errNotYet
		}
		return nil
	})
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Errorf("kill plugin %d: %v", pid, err)
		}
	}
	m.survives(op)
}

// TestHangPlugin: the plugin that runs one agent's scripts stops answering.
func TestHangPlugin(t *testing.T) {
	t.Parallel()
	m := ledgerMesh(t)
	op := m.create("c", nodes)
	m.half(op.ID, .4)
	at := m.follower()
	var pids []int
	m.await("the plugin to run", func() error {
		if pids = m.plugins("coopr-automator-shell", at); len(pids) == 0 {
			return errNotYet
		}
		return nil
	})
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Errorf("stop plugin %d: %v", pid, err)
		}
	}
	m.survives(op)
}

// TestGarbagePlugin: the provider prints garbage instead of its answer, after it has made a node.
// Other plugins in the folder print garbage, exit, or hang when they are started.
func TestGarbagePlugin(t *testing.T) {
	t.Parallel()
	m := newMesh(t, "a", "b", "c")
	dir := filepath.Join(m.dir, "p")
	if err := os.CopyFS(dir, os.DirFS(testdata(t, "ledger/plugins"))); err != nil {
		t.Fatal(err)
	}
	for name, script := range map[string]string{
		"coopr-provider-garbage": "echo Welcome to my plugin!; echo and more >&2",
		"coopr-automator-ends":   "exit 7",
		"coopr-plugin-hangs":     "exec sleep 1000",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(m.dir, "garbage"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m.flags = []string{"--plugin-dir", dir}
	for _, a := range m.agents {
		a.start()
	}
	m.ready()
	op := m.create("c", nodes)
	m.succeeds(op.ID)
	adopted := 0
	for _, task := range m.tasks(op.ID) {
		if task.Action == model.Create && task.Adopted && len(task.Attempts) > 1 && task.Attempts[0].Outcome == "unknown" {
			adopted++
		}
	}
	if adopted == 0 {
		t.Error("no node was adopted after its plugin had printed garbage")
	}
	m.survives(op)
}

// TestUnrulyPlugin has tasks that kill their plugin's process, freeze it, ignore their time-out and
// print on its output, before they succeed.
func TestUnrulyPlugin(t *testing.T) {
	t.Parallel()
	m := startMesh(t, "--plugin-dir", filepath.Join(bin, "more"))
	m.must("import", testdata(t, "unruly"))
	op := m.begin(model.CreateCluster{Name: "c", ClusterTemplate: "unruly", NumMachines: nodes})
	m.succeeds(op.ID)
	again := map[string]int{}
	for _, task := range m.tasks(op.ID) {
		m.attempts(&task)
		again[task.Service] += len(task.Attempts) - 1
	}
	for _, service := range []string{"crash", "deaf"} {
		if again[service] < nodes {
			t.Errorf("service %s: %d attempts failed, not one on each of %d nodes", service, again[service], nodes)
		}
	}
	m.remove(op.Cluster)
	m.stop()
}
