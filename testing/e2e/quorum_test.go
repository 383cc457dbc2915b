package e2e

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/coopr/coopr/rpc/api"
)

// readyz asks an agent whether it can serve.
func (a *agent) readyz() (api.Readiness, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return a.mesh.api(a).Ready(ctx)
}

// at runs a command against one agent.
func (a *agent) at(args ...string) said {
	a.mesh.t.Helper()
	return a.mesh.coopr(append([]string{"--addr", (&url.URL{Scheme: "http", Host: a.addr(httpPort)}).String()}, args...)...)
}

// well waits until agents are ready, and find nothing wrong.
func (m *mesh) well(agents ...*agent) {
	m.t.Helper()
	for _, a := range agents {
		m.await("agent "+a.name+" to find all well", func() error {
			r, err := a.readyz()
			s := a.at("status")
			if err == nil && (!r.Ready || s.code != 0 || strings.Contains(s.out, "none")) {
				err = fmt.Errorf("%+v, exit code %d:\n%s%s", r, s.code, s.out, s.err)
			}
			return err
		})
	}
}

// TestWithoutQuorum kills two of three voters. The third, and an agent without a vote, say what is wrong, and show what
// they know. Then the voters are back.
func TestWithoutQuorum(t *testing.T) {
	t.Parallel()
	m := newMesh(t, "a", "b", "c")
	worker := m.add("worker")
	worker.flags = []string{"--eligible=false", "--bootstrap-expect", "0"}
	for _, a := range m.agents {
		a.start()
	}
	m.ready()
	m.must("tenant", "put", "kept")
	m.well(m.agents...)

	survivor := m.follower()
	m.await("agent "+survivor.name+" to have heard of the last change", func() error {
		if s := survivor.at("--stale", "tenant", "list"); !strings.Contains(s.out, "kept") {
			return fmt.Errorf("%s%s", s.out, s.err)
		}
		return nil
	})
	var lost []*agent
	for _, a := range m.agents {
		if a != survivor && a != worker {
			a.kill()
			lost = append(lost, a)
		}
	}
	for _, a := range []*agent{survivor, worker} {
		m.await("agent "+a.name+" to miss the voters", func() error {
			s := a.at("status")
			for _, want := range []string{"Leader:      none", "1 alive of 3, 3 wanted; 1 more must be back", "voter " + lost[0].name + ", since",
				"voter " + lost[1].name + ", since"} {
				if !strings.Contains(s.out, want) {
					return fmt.Errorf("exit code %d, and no %q:\n%s%s", s.code, want, s.out, s.err)
				}
			}
			if s.code != 6 {
				return fmt.Errorf("exit code %d:\n%s%s", s.code, s.out, s.err)
			}
			return nil
		})
		r, err := a.readyz()
		if err != nil || r.Ready || len(r.Reasons) != 1 || r.Reasons[0] != "no leader can be reached" {
			t.Errorf("agent %s: %+v %v", a.name, r, err)
		}
		if err := m.api(a).Health(m.context()); err != nil {
			t.Errorf("agent %s: %v", a.name, err)
		}
		s := a.at("tenant", "list")
		if s.code != 5 || !strings.Contains(s.err, lost[0].name+" for ") || !strings.Contains(s.err, lost[1].name+" for ") ||
			!strings.Contains(s.err, "--stale") {
			t.Errorf("agent %s: exit code %d\n%s", a.name, s.code, s.err)
		}
		if s := a.at("tenant", "put", "refused"); s.code != 5 || !strings.Contains(s.err, lost[0].name+" for ") {
			t.Errorf("agent %s: exit code %d\n%s", a.name, s.code, s.err)
		}
		if s := a.at("--stale", "tenant", "list"); s.code != 0 || !strings.Contains(s.out, "kept") || !strings.Contains(s.err, "ago") {
			t.Errorf("agent %s: exit code %d\n%s%s", a.name, s.code, s.out, s.err)
		}
	}
	// The worker remembers who the voters are.
	survivor.kill()
	lost = append(lost, survivor)
	m.await("the worker to miss all voters", func() error {
		if s := worker.at("status"); s.code != 6 || !strings.Contains(s.out, "0 alive of 3, 3 wanted; 2 more must be back") {
			return fmt.Errorf("exit code %d:\n%s%s", s.code, s.out, s.err)
		}
		return nil
	})
	if s := worker.at("--stale", "tenant", "list"); s.code != 5 || !strings.Contains(s.err, survivor.name+" for ") {
		t.Errorf("exit code %d\n%s%s", s.code, s.out, s.err)
	}
	for _, a := range lost {
		a.start()
	}
	m.ready()
	m.well(m.agents...)
	if out := m.must("tenant", "list"); strings.Contains(out, "refused") {
		t.Errorf("a refused change was carried out:\n%s", out)
	}
	m.stop()
}
