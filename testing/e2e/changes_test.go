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
	"testing"
	"time"

	"github.com/coopr/coopr/engine/change/site"
)

// noted is a script object that writes down what it does, and is up for as long
// as its file is there.
func (m *mesh) noted(name, host string, content map[string]any) site.Object {
	file, log := filepath.Join(m.dir, "world", name), filepath.Join(m.dir, "world", "log")
	script := func(what, do string) string {
		return fmt.Sprintf("echo begin %[1]s %[2]s >>%[3]s; sleep 0.05; %[4]s; echo end %[1]s %[2]s >>%[3]s", name, what, log, do)
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
	if err := os.Remove(file); err != nil && n > 0 {
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
		case err == nil && s.Next == 0 && s.Generation >= generation && s.Settled == s.Objects:
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
	// What holds svcA is gone with svcB; svcA and cfgA then go as they like.
	if got := m.did("", 3); len(got) != 3 || got[0] != "svcB stop" {
		t.Errorf("deletion: did %q", got)
	}
	m.stop()
}
