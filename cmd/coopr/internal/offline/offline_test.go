package offline_test

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coopr/coopr/consensus/archive"
	"github.com/coopr/coopr/consensus/raftgroup"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/rpc/identity"

	"github.com/coopr/coopr/cmd/coopr/internal/clitest"
)

func TestRecover(t *testing.T) {
	s := clitest.New(t)
	id, err := identity.LoadOrCreateID(s.Dir)
	if err != nil {
		t.Fatal(err)
	}
	other := "7d0f1b2c-1111-4222-8333-944455566677=10.0.0.2:55055"
	for _, tt := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"no folder", []string{id + "=10.0.0.1:55055", "--yes"}, 2, "--data-dir"},
		{"another folder", []string{"--data-dir", t.TempDir(), id + "=10.0.0.1:55055", "--yes"}, 1, "agent-id"},
		{"not itself", []string{"--data-dir", s.Dir, other, "--yes"}, 1, id},
		{"not a peer", []string{"--data-dir", s.Dir, id + "=10.0.0.1:55055", "host", "--yes"}, 1, "ID=ADDRESS"},
		{"twice the same", []string{"--data-dir", s.Dir, id + "=10.0.0.1:55055", other, other, "--yes"}, 1, "already"},
		{"no answer", []string{"--data-dir", s.Dir, id + "=10.0.0.1:55055"}, 2, "--yes"},
	} {
		code, out, errs := s.Exec(append([]string{"operator", "recover"}, tt.args...)...)
		if code != tt.code || !strings.Contains(errs, tt.says) {
			t.Errorf("%s: %d %s%s", tt.name, code, out, errs)
		}
		if _, err := os.Stat(raftgroup.RecoverFile); err == nil {
			t.Fatalf("%s: the file is written", tt.name)
		}
	}
	lock, err := identity.LockDir(s.Dir)
	if err != nil {
		t.Fatal(err)
	}
	run := []string{"operator", "recover", "--data-dir", s.Dir, id + "=10.0.0.1:55055", other, "--yes"}
	if code, _, errs := s.Exec(run...); code != 1 || !strings.Contains(errs, "must be stopped first") {
		t.Errorf("beside a running agent: %d %s", code, errs)
	}
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := s.Exec(run...); code != 0 {
		t.Fatalf("%s", errs)
	}
	servers, err := raftgroup.ReadRecoverFile(raftgroup.RecoverFile)
	if err != nil || len(servers) != 2 || servers[0].ID != id || !servers[0].Voter || servers[1].Addr != "10.0.0.2:55055" {
		t.Errorf("%+v %v", servers, err)
	}
}

func TestSnapshotInspect(t *testing.T) {
	s := clitest.New(t)
	m, err := state.New(state.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var raw, packed bytes.Buffer
	if err := m.View().Write(&raw); err != nil {
		t.Fatal(err)
	}
	meta := archive.Meta{Index: 7, Size: int64(raw.Len()), Build: "test", TakenAt: time.Unix(0, 0)}
	if err := archive.Write(&packed, meta, bytes.NewReader(raw.Bytes())); err != nil {
		t.Fatal(err)
	}
	s.File("raw.snap", raw.String())
	s.File("packed.snap", packed.String())
	s.File("cut.snap", raw.String()[:raw.Len()-3])
	s.File("junk.snap", "this is not a snapshot")
	for file, want := range map[string]int{"raw.snap": 0, "packed.snap": 0, "cut.snap": 1, "junk.snap": 1, "nothing.snap": 1} {
		code, out, errs := s.Exec("operator", "snapshot", "inspect", file)
		if code != want || (code == 0) != strings.Contains(out, "is whole") || code != 0 && !strings.Contains(errs, file) {
			t.Errorf("%s: %d %s%s", file, code, out, errs)
		}
	}
	if _, out, _ := s.Exec("operator", "snapshot", "inspect", "packed.snap", "-o", "json"); !strings.Contains(out, `"index": 7`) {
		t.Errorf("%s", out)
	}
}
