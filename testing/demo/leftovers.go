package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// marker is an environment variable that all processes of the demo inherit; its value is the demo's
// folder. It identifies the demo's processes, including those of nodes.
const marker = "INSIDE_COOPR_DEMO"

// processes returns the pids of the demo in dir: processes that carry the marker, and those that
// work inside the folder. This process is never included.
func processes(dir string) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	mark := []byte(marker + "=" + dir)
	var out []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		// The files of a process that has ended, or belongs to another user, cannot be read: it is
		// not the demo's.
		env, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		cwd, _ := os.Readlink(filepath.Join("/proc", e.Name(), "cwd"))
		if slices.ContainsFunc(bytes.Split(env, []byte{0}), func(kv []byte) bool { return bytes.Equal(kv, mark) }) ||
			cwd == dir || strings.HasPrefix(cwd, dir+"/") {
			out = append(out, pid)
		}
	}
	return out, nil
}

// endProcesses ends every process of the demo in dir and waits until none is left: first with TERM,
// with KILL after grace. It returns how many there were.
func endProcesses(ctx context.Context, dir string, grace time.Duration) (int, error) {
	force := time.Now().Add(grace)
	seen := map[int]bool{}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		pids, err := processes(dir)
		if err != nil || len(pids) == 0 {
			return len(seen), err
		}
		for _, pid := range pids {
			switch {
			case time.Now().After(force):
				err = syscall.Kill(pid, syscall.SIGKILL)
			case !seen[pid]:
				err = syscall.Kill(pid, syscall.SIGTERM)
			}
			seen[pid] = true
			if err != nil && !errors.Is(err, syscall.ESRCH) {
				return len(seen), fmt.Errorf("end process %d: %w", pid, err)
			}
		}
		select {
		case <-ctx.Done():
			return len(seen), fmt.Errorf("processes %v cannot be ended: %w", pids, ctx.Err())
		case <-tick.C:
		}
	}
}
