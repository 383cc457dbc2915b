package main

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestEndProcesses ends a process found by its marker, one found by its folder, and one that
// ignores SIGTERM; another process continues.
func TestEndProcesses(t *testing.T) {
	dir := t.TempDir()
	start := func(script, at string, env ...string) *exec.Cmd {
		t.Helper()
		// The shell reports that its trap is set.
		cmd := exec.Command("sh", "-c", script)
		cmd.Dir, cmd.Env = at, append(env, "PATH="+os.Getenv("PATH"))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	marked := start("echo; exec sleep 1000", "/", marker+"="+dir)
	inside := start("echo; exec sleep 1000", dir)
	stubborn := start("trap '' TERM; echo; exec sleep 1000", dir)
	stranger := start("echo; exec sleep 1000", "/", marker+"="+dir+"-other")
	defer func() {
		_ = stranger.Process.Kill() // the test has shown that it is alive
		_ = stranger.Wait()
	}()
	done := make(chan struct{})
	go func() { // dead processes stay in /proc until they are waited for
		defer close(done)
		for _, c := range []*exec.Cmd{marked, inside, stubborn} {
			_ = c.Wait() // they end by a signal
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if n, err := endProcesses(ctx, dir, 100*time.Millisecond); n != 3 || err != nil {
		t.Errorf("ended %d processes: %v", n, err)
	}
	<-done
	if pids, err := processes(dir + "-other"); err != nil || len(pids) != 1 || pids[0] != stranger.Process.Pid {
		t.Errorf("the stranger: %v, %v", pids, err)
	}
}
