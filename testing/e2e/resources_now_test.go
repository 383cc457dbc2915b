package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/coopr/coopr/engine/change/site"
)

// TestResourcesOfObjects: automators use the scripts in force for change objects, also on an agent
// without the state.
func TestResourcesOfObjects(t *testing.T) {
	t.Parallel()
	m := newMesh(t, "a", "b", "c", "w")
	m.expect = 3
	m.agents[3].flags = []string{"--eligible=false", "--bootstrap-expect", "0"}
	for _, a := range m.agents {
		a.start()
	}
	m.ready()
	file := filepath.Join(m.dir, "world", "thing")
	upload := func(version string) {
		t.Helper()
		script := fmt.Sprintf("#!/bin/sh\ncase $1 in check) test -e %[1]s;; start) echo %[2]s >%[1]s;; stop) rm -f %[1]s;; esac\n", file, version)
		m.must("resource", "upload", "automator/shell/scripts/thing.sh", m.put("thing.sh", script), "--activate")
	}
	do := func(what string) map[string]any { return map[string]any{"script": "thing.sh", "args": what} }
	says := func(want string) {
		t.Helper()
		m.await("the object to be made by version "+want, func() error {
			b, err := os.ReadFile(file)
			if err == nil && string(b) != want+"\n" {
				// It was made by the previous version and has to be made again.
				err = fmt.Errorf("%w: it was made by %q", errNotYet, b)
				_ = os.Remove(file)
			}
			return err
		})
	}
	upload("one")
	d := &site.Document{Name: "things", CheckInterval: 500, Objects: []site.Object{{
		Name: "thing", Host: "agent:w", Type: "automator:shell",
		Content: map[string]any{"check": do("check"), "start": do("start"), "stop": do("stop")},
	}}}
	m.must("change", "apply", m.write(d))
	says("one")
	upload("two")
	says("two")
	m.must("change", "delete", "things", "--yes")
	m.await("the site to be forgotten", func() error {
		all, err := m.api().Sites(m.context())
		if err == nil && slices.ContainsFunc(all, func(s site.Overview) bool { return s.Name == "things" }) {
			err = fmt.Errorf("%+v", all)
		}
		return err
	})
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("it is left: %v", err)
	}
	m.stop()
}
