package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/coopr/coopr/engine/change/site"
)

// noted returns a script object that records its actions, and is up while its file exists.
func (m *mesh) noted(name, host string, content map[string]any) site.Object {
	file, log := filepath.Join(m.dir, "world", name), filepath.Join(m.dir, "world", "log")
	// An act holds a lock until its last process ends, so that acts at the same time are detected
	// even if their agent was killed.
	script := func(what, do string) string {
		return fmt.Sprintf("exec 9>>%[5]s; flock -n 9 || echo overlap %[1]s %[2]s >>%[3]s; echo begin %[1]s %[2]s >>%[3]s; sleep 0.05; %[4]s; "+
			"echo end %[1]s %[2]s >>%[3]s", name, what, log, do, file+".lock")
	}
	o := site.Object{Name: name, Host: "agent:" + host, Type: "script", Content: map[string]any{
		"check": "test -e " + file, "start": script("start", "echo >"+file), "stop": script("stop", "rm -f "+file),
		"restart": script("restart", ":"),
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

// did waits until the objects have ended n actions since its last call and, unless name is "",
// until that site has converged. It returns all actions that have ended since its last call.
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
		m.converged(name, 0)
	}
	out := read()
	if err := os.Remove(file); err != nil && n > 0 && !os.IsNotExist(err) {
		m.t.Fatal(err)
	}
	return out
}

// converged waits until a site is in force and all of it where it should be.
func (m *mesh) converged(name string, generation uint64) site.SiteStatus {
	m.t.Helper()
	var last site.SiteStatus
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
			m.t.Fatalf("site %s never converged: generation %d, next %d, %d of %d; %v", name, last.Generation, last.Next, last.ConvergedObjects,
				last.Objects, err)
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

// apply puts a site on its way.
func (m *mesh) apply(d *site.Document) {
	m.t.Helper()
	b, err := os.ReadFile(m.write(d))
	if err != nil {
		m.t.Fatal(err)
	}
	m.await("the site "+d.Name+" to be taken", func() error { _, _, err := m.api().ApplySite(m.context(), d.Name, b); return err })
}

// needs makes an action of an object fail unless another object is in the needed state: no
// transition may run without its locks.
func (m *mesh) needs(o *site.Object, action, other string, up bool) {
	file := filepath.Join(m.dir, "world", other)
	test := "test -e " + file
	if !up {
		test = "! " + test
	}
	o.Content[action] = fmt.Sprintf("flock -n %[1]s.lock true && %[2]s || echo without %[3]s %[4]s >>%[5]s; %[6]s", file, test, o.Name, action,
		filepath.Join(m.dir, "world", "log"), o.Content[action])
}

// try is a site of the world with objects that a test wires itself.
func (m *mesh) try(name string, objects ...site.Object) *site.Document {
	return &site.Document{Name: name, Objects: objects}
}
