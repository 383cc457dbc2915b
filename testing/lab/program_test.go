package lab

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestProgram: a machine with a program of this host has a network of its own, the files of the test, and a
// disk that the test makes sick.
func TestProgram(t *testing.T) {
	l := New(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	m, err := l.Start(limit(t), Spec{
		Name: "p", Addr: netip.MustParseAddr("10.77.200.9"), Syncs: true, Env: []string{"PATH=" + os.Getenv("PATH"), "FILE=" + file},
		Program: []string{"/bin/sh", "-c",
			`hostname; >"$FILE"; while sleep 0.02; do if sync "$FILE"; then echo good; else echo sick; fi; done`},
	})
	if err != nil {
		t.Fatal(err)
	}
	said := func(want string) {
		t.Helper()
		from := len(m.Console())
		until(t, want, func() error {
			if log := m.Console()[from:]; !strings.Contains(log, want) {
				return fmt.Errorf("it said %q", log)
			}
			return nil
		})
	}
	said("good")
	m.SetSync(0, syscall.EIO)
	said("sick")
	m.SetSync(time.Millisecond, 0)
	said("good")
	if out := must(t, m, "/bin/sh", "-c", "hostname; cat /proc/net/fib_trie"); !strings.HasPrefix(out, "p\n") ||
		!strings.Contains(out, "10.77.200.9") {
		t.Errorf("the machine is %q", out)
	}
	list, err := m.Processes()
	if err != nil || len(list) < 2 || !m.Running() {
		t.Errorf("its processes are %v, %v; it runs: %t", list, err, m.Running())
	}
	if err := m.Crash(); err != nil || m.Running() {
		t.Errorf("after a crash: %v; it runs: %t", err, m.Running())
	}
	if err := m.Boot(limit(t)); err != nil {
		t.Fatal(err)
	}
	said("good")
}

// TestProgramEnds: the machine ends with its program.
func TestProgramEnds(t *testing.T) {
	m, err := New(t).Start(limit(t), Spec{Name: "p", Program: []string{"/bin/sh", "-c", "echo done"}})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the end of the machine", func() error {
		if m.Running() {
			return fmt.Errorf("it runs, and said %q", m.Console())
		}
		return nil
	})
	if log := m.Console(); !strings.Contains(log, "done") {
		t.Errorf("it said %q", log)
	}
}

func until(t *testing.T, what string, ask func() error) {
	t.Helper()
	ctx := limit(t)
	for {
		err := ask()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("waited for %s: %v", what, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
