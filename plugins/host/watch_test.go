package host

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/proto"
)

// A plugin that is put into the folder is offered without a restart and without a task
// that asks for it; a new version replaces the old one; a removed plugin is withdrawn.
func TestFilesComeAndGo(t *testing.T) {
	var dir string
	var changes atomic.Int32
	h := newHost(t, func(c *Config) {
		dir, c.ScanEvery, c.OnChange = c.Dirs[0], 10*time.Millisecond, func() { changes.Add(1) }
	})
	if err := h.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	offers := func(kind model.Kind, name, version string) func() bool {
		return func() bool {
			return slices.ContainsFunc(h.Types(), func(x Type) bool { return x.Kind == kind && x.Name == name && x.Plugin == version })
		}
	}
	late := filepath.Join(dir, "late.yaml")
	write := func(version string) {
		t.Helper()
		if err := os.WriteFile(late, []byte("name: late\nkind: automator\nplugin: "+version+"\nprotocol: exec\ncommand: [/bin/true]\n"),
			0o644); err != nil {
			t.Fatal(err)
		}
	}
	before := changes.Load()
	write("1.0.0")
	eventually(t, "the new plugin to be on offer", offers(model.KindAutomatorType, "late", "1.0.0"))
	eventually(t, "the agent to be told", func() bool { return changes.Load() > before })
	write("1.0.1")
	eventually(t, "the new version to be on offer", offers(model.KindAutomatorType, "late", "1.0.1"))
	install(t, built.chaos2, filepath.Join(dir, "coopr-plugin-chaos"))
	eventually(t, "the new binary to be on offer", offers(model.KindProviderType, "chaos", "2.0.0"))
	if err := os.Remove(late); err != nil {
		t.Fatal(err)
	}
	eventually(t, "what is gone to be off", func() bool { return !offers(model.KindAutomatorType, "late", "1.0.1")() })
}

// A process that runs has the grants of the types that its file served when it started. When another file serves one of them, it ends, and
// a new process with the grants of the others takes its place.
func TestTypeMovesToAnotherFile(t *testing.T) {
	h := newHost(t, func(c *Config) {
		c.ScanEvery, c.IdleTimeout, c.Resources = 10*time.Millisecond, time.Hour, filepath.Join(t.TempDir(), "resources")
	})
	provider := task("create", nil)
	provider.Automator, provider.Service, provider.Action = false, "", model.Create.String()
	run := func() (*process, []string) {
		t.Helper()
		if r := h.Execute(t.Context(), provider, nil); r.Outcome == proto.Outcome_OUTCOME_NOTHING_DONE {
			t.Fatal(r)
		}
		h.mu.RLock()
		p := h.plugs[typeKey{false, "chaos"}]
		h.mu.RUnlock()
		p.sup.mu.Lock()
		defer p.sup.mu.Unlock()
		if p.sup.cur == nil {
			t.Fatal("no process runs")
		}
		profile, _, err := h.profile(p.file.path, nil, "")
		if err != nil {
			t.Fatal(err)
		}
		return p.sup.cur, profile.Reads
	}
	resources := filepath.Join(h.cfg.Resources, "automatortypes", "chaos")
	granted := func(reads []string) bool {
		return slices.ContainsFunc(reads, func(dir string) bool { return strings.HasPrefix(dir, resources) })
	}
	before, reads := run()
	if !granted(reads) {
		t.Fatalf("%s is not among %q", resources, reads)
	}
	other := filepath.Join(h.cfg.Dirs[0], "other.yaml")
	if err := os.WriteFile(other, []byte("name: chaos\nkind: automator\nplugin: 99.0.0\nprotocol: exec\ncommand: [/bin/true]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the process with the old grants to end", func() bool { return !before.alive() })
	between, reads := run()
	if between == before || granted(reads) {
		t.Errorf("the plugin has the resources of a type that another file serves: %q", reads)
	}
	if err := os.Remove(other); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the process without the new grants to end", func() bool { return !between.alive() })
	if _, reads := run(); !granted(reads) {
		t.Error("the plugin has not the resources of its own type")
	}
}

// A descriptor whose program is missing or not executable is offered as soon as the program
// can be run.
func TestProgramOfDescriptor(t *testing.T) {
	var program string
	h := newHost(t, func(c *Config) {
		c.ScanEvery, program = 10*time.Millisecond, filepath.Join(c.Dirs[0], "mine.run")
		writeExec(t, c.Dirs[0], "mine", "automator", "#!/bin/sh\n", "")
		if err := os.Chmod(filepath.Join(c.Dirs[0], "mine.run"), 0o644); err != nil {
			t.Fatal(err)
		}
	})
	if err := h.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	offered := func() bool {
		return slices.ContainsFunc(h.Types(), func(x Type) bool { return x.Name == "mine" })
	}
	if err := h.Faults(); offered() || err == nil || !strings.Contains(err.Error(), program) {
		t.Errorf("offered: %v, faults: %v", offered(), err)
	}
	if err := os.Chmod(program, 0o755); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the complete plugin to be on offer", offered)
}
