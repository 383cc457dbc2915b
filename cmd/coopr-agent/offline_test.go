package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coopr/coopr/consensus/archive"
	"github.com/coopr/coopr/consensus/raftgroup"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/rpc/identity"
)

// run runs a command of the program. It returns the exit code and what was printed.
func run(args ...string) (code int, out, errs string) {
	var stdout, stderr bytes.Buffer
	c := command()
	c.SetArgs(args)
	c.SetIn(strings.NewReader(""))
	c.SetOut(&stdout)
	code = execute(c, &stderr)
	return code, stdout.String(), stderr.String()
}

func TestRecover(t *testing.T) {
	dir := t.TempDir()
	id, err := identity.LoadOrCreateID(dir)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, raftgroup.RecoverFile)
	self, other := id+"=10.0.0.1:55055", "7d0f1b2c-1111-4222-8333-944455566677=10.0.0.2:55055"
	for _, tt := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"no folder", []string{self, "--yes"}, 2, "--data-dir"},
		{"no voters", []string{"--data-dir", dir, "--yes"}, 2, "ID=ADDRESS"},
		{"another folder", []string{"--data-dir", t.TempDir(), self, "--yes"}, 1, "agent-id"},
		{"not itself", []string{"--data-dir", dir, other, "--yes"}, 1, id},
		{"not a peer", []string{"--data-dir", dir, self, "host", "--yes"}, 1, "ID=ADDRESS"},
		{"twice the same", []string{"--data-dir", dir, self, other, other, "--yes"}, 1, "already"},
		{"no answer", []string{"--data-dir", dir, self}, 2, "--yes"},
		{"a survey that writes", []string{"--survey", "--yes", dir}, 2, "writes nothing"},
		{"a survey of nothing", []string{"--survey"}, 2, "DIR"},
		{"a survey in a form that is not known", []string{"--survey", dir, "-o", "xml"}, 2, "json"},
		{"a survey of another folder", []string{"--survey", t.TempDir()}, 1, "agent-id"},
		{"a survey of a file that is none", []string{"--survey", filepath.Join(dir, "agent-id")}, 1, "neither"},
		{"a survey of the same twice", []string{"--survey", dir, dir}, 1, "twice"},
	} {
		code, out, errs := run(append([]string{"recover"}, tt.args...)...)
		if code != tt.code || !strings.Contains(errs, tt.says) {
			t.Errorf("%s: %d %s%s", tt.name, code, out, errs)
		}
		if _, err := os.Stat(file); err == nil {
			t.Fatalf("%s: the file is written", tt.name)
		}
	}
	lock, err := identity.LockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"recover", "--data-dir", dir, self, other, "--yes"}
	if code, _, errs := run(args...); code != 1 || !strings.Contains(errs, "must be stopped first") {
		t.Errorf("while the agent runs: %d %s", code, errs)
	}
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := run(args...); code != 0 {
		t.Fatalf("%s", errs)
	}
	servers, err := raftgroup.ReadRecoverFile(file)
	if err != nil || len(servers) != 2 || servers[0].ID != id || !servers[0].Voter || servers[1].Addr != "10.0.0.2:55055" {
		t.Errorf("%+v %v", servers, err)
	}
}

func TestSnapshotInspect(t *testing.T) {
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
	dir := t.TempDir()
	for name, content := range map[string]string{
		"raw.snap": raw.String(), "packed.snap": packed.String(), "cut.snap": raw.String()[:raw.Len()-3], "junk.snap": "this is not a snapshot",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for file, want := range map[string]int{"raw.snap": 0, "packed.snap": 0, "cut.snap": 1, "junk.snap": 1, "nothing.snap": 1} {
		code, out, errs := run("snapshot", "inspect", filepath.Join(dir, file))
		if code != want || (code == 0) != strings.Contains(out, "is complete") || code != 0 && !strings.Contains(errs, file) {
			t.Errorf("%s: %d %s%s", file, code, out, errs)
		}
	}
	for form, want := range map[string]string{"json": `"index": 7`, "yaml": "index: 7\n"} {
		if _, out, errs := run("snapshot", "inspect", filepath.Join(dir, "packed.snap"), "-o", form); !strings.Contains(out, want) {
			t.Errorf("%s: %s%s", form, out, errs)
		}
	}
	if code, _, errs := run("snapshot", "inspect", filepath.Join(dir, "packed.snap"), "-o", "xml"); code != 2 {
		t.Errorf("%d %s", code, errs)
	}
}
