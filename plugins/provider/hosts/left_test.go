package hosts

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/coopr/coopr/plugins/remote/ssh"
	"github.com/coopr/coopr/plugins/sdk"
	"github.com/coopr/coopr/rpc/proto"
)

// TestLeftBehind checks that a machine that could not be taken back stays claimed by its old node.
// Once it responds it is reset before it is handed out again, even to a node with the same name.
func TestLeftBehind(t *testing.T) {
	s := newSite(t, 1, nil)
	s.fields["reset"] = "#!/bin/sh -e\necho cleaning\nrm -rf /srv/data"
	n := s.node("n0")
	n.Operation = "first"
	n.Must("CREATE", s.Create)
	m := s.machines[n.ProviderID()]
	run := func(args ...string) string {
		t.Helper()
		out, err := m.Run(t.Context(), args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	run("mkdir", "-p", "/srv/data", "/var/lib/coopr/x")
	if err := m.Crash(); err != nil {
		t.Fatal(err)
	}
	// Only the unreachable machine gets a short timeout.
	patient := s.pool
	s.pool = ssh.New(ssh.Config{DialTimeout: time.Second, Answer: time.Second})
	n.Attempt = 2
	n.Must("DELETE", s.Delete)
	s.pool.Close()
	s.pool = patient
	if !strings.Contains(n.Log(), "left behind") {
		t.Fatal(n.Log())
	}
	if err := m.Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.WaitSSH(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The node's replacement has not claimed a machine yet.
	n.Operation, n.Attempt = "second", 1
	if err := n.Do("CREATE", s.Observe); !errors.Is(err, sdk.ErrNotFound) {
		t.Errorf("observed what was left behind: %v", err)
	}
	listed := sdk.Resource{}
	if err := s.List(t.Context(), sdk.ListRequest{Fields: s.fields, Tenant: "t"},
		func(r sdk.Resource) error { listed = r; return nil }); err != nil {
		t.Fatal(err)
	}
	n.Must("CREATE", s.Create)
	if out := run("sh", "-c", "ls -d /srv/data /var/lib/coopr/x 2>/dev/null; true"); out != "" || !strings.Contains(n.Log(), "cleaning") {
		t.Errorf("handed out with %q: %s", out, n.Log())
	}
	// A removal that was decided before the new claim does not take the machine away.
	if err := s.Remove(t.Context(), sdk.ListRequest{Fields: s.fields, Tenant: "t"}, listed); err != nil {
		t.Error(err)
	}
	n.Must("CONFIRM", s.Confirm)
	n.Must("CHECK", s.Observe)
	// Another attempt at the same task finds the machine unchanged.
	run("mkdir", "-p", "/srv/data")
	n.Must("CREATE", s.Observe)
	n.Must("CREATE", s.Create)
	run("ls", "-d", "/srv/data")
	// A failing reset sets the machine aside.
	s.fields["reset"] = "#!/bin/sh\nexit 4"
	n.Operation = "third"
	if err := n.Do("CREATE", s.Create); sdk.OutcomeOf(err) != proto.Outcome_OUTCOME_NOTHING_DONE ||
		!strings.Contains(err.Error(), "1 are in use or set aside") {
		t.Errorf("a machine that was refused: %v", err)
	}
	if got := s.listed(); len(got) != 0 {
		t.Errorf("listed %v", got)
	}
}

// TestZones checks that a node gets a machine of its zone, or none.
func TestZones(t *testing.T) {
	s := newSite(t, 2, func(i int) string { return "zone=" + []string{"north", "south"}[i] })
	s.fields["zones"] = "north,south"
	for _, zone := range []string{"south", "north"} {
		n := s.node("n-" + zone)
		n.Zone = zone
		n.Must("CREATE", s.Create)
		if n.Results["zone"] != zone {
			t.Errorf("node of %s: %v", zone, n.Results)
		}
		n = s.node("more-" + zone)
		n.Zone = zone
		if err := n.Do("CREATE", s.Create); err == nil ||
			!strings.Contains(err.Error(), "of 2, 1 are in use or set aside, 1 have another flavor, image or zone") {
			t.Errorf("one too many in %s: %v", zone, err)
		}
	}
	s.fields["zones"] = "north,west"
	if faults := s.Validate(t.Context(), sdk.ScopeAdmin, s.fields); len(faults) != 1 || faults[0].Path != "zones" ||
		!strings.Contains(faults[0].Message, "zone west") {
		t.Error(faults)
	}
}
