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
