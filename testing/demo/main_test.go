package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestTake checks that one demo at a time has the folder, that the leftovers of a killed one are
// removed, and that other folders stay.
func TestTake(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "demo")
	lock, err := take(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := take(dir); !errors.Is(err, errBusy) {
		t.Errorf("taken twice: %v", err)
	}

	// A demo that is killed leaves its folder and a process.
	left := exec.Command("sleep", "1000")
	left.Dir = filepath.Join(dir, "node")
	if err := os.Mkdir(left.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := left.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- left.Wait() }()
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if lock, err = take(dir); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("the process that was left over ended by itself")
	}
	if _, err := os.Stat(left.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder that was left over: %v", err)
	}
	if err := errors.Join(clean(dir), lock.Close()); err != nil {
		t.Fatal(err)
	}

	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := take(dir); err == nil || errors.Is(err, errBusy) {
		t.Errorf("somebody else's folder: %v", err)
	}
}
