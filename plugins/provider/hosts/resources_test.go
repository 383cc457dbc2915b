package hosts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coopr/coopr/plugins/sdk"
	"github.com/coopr/coopr/rpc/proto"
)

// TestResetOfResources checks that an uploaded reset script is run for deleted nodes and for
// orphans; while it is missing, no machine is released.
func TestResetOfResources(t *testing.T) {
	s := newSite(t, 1, nil)
	s.fields["reset"] = "clean.sh"
	dir := t.TempDir()
	script := filepath.Join(dir, "scripts", "clean.sh")
	write := func(text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(script), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	n := s.node("n0")
	n.Must("CREATE", s.Create)
	if err := n.Do("DELETE", s.Delete); sdk.OutcomeOf(err) != proto.Outcome_OUTCOME_NOTHING_DONE ||
		!strings.Contains(err.Error(), `script "clean.sh"`) {
		t.Errorf("no resources at all: %v", err)
	}
	n.Resources = dir
	write("rm -rf /srv/data\n")
	if err := n.Do("DELETE", s.Delete); sdk.OutcomeOf(err) != proto.Outcome_OUTCOME_FATAL {
		t.Errorf("no script: %v", err)
	}
	write("#!/bin/sh -e\necho cleaning for $COOPR_NODE >>/root/cleaned\n")
	if got := s.listed(); len(got) != 1 {
		t.Errorf("listed %v", got)
	}
	n.Must("DELETE", s.Delete)
	n = s.node("n1")
	n.Must("CREATE", s.Create)
	req := sdk.ListRequest{Fields: s.fields, Tenant: "t"}
	lost := sdk.Resource{}
	if err := s.List(t.Context(), req, func(r sdk.Resource) error { lost = r; return nil }); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(t.Context(), req, lost); err == nil {
		t.Error("removed without its reset")
	}
	req.Resources = dir
	if err := s.Remove(t.Context(), req, lost); err != nil {
		t.Error(err)
	}
	for _, m := range s.machines {
		if out, err := m.Run(t.Context(), "cat", "/root/cleaned"); err != nil ||
			strings.Join(strings.Fields(out), " ") != "cleaning for n0 cleaning for n1" {
			t.Errorf("%q, %v", out, err)
		}
	}
	if got := s.listed(); len(got) != 0 {
		t.Errorf("listed %v", got)
	}
}
