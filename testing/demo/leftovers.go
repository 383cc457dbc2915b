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

// marker is an environment variable that everything the demo starts inherits;
// its value is the demo's folder. With it the demo finds its processes, those
// of the nodes included, and nobody else's.
const marker = "INSIDE_COOPR_DEMO"

// processes lists the pids of the demo in dir: those that carry the marker,
// and those that work inside the folder. This process is not among them.
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
		// A process that ends, or is someone else's, cannot be read: not ours.
		env, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		cwd, _ := os.Readlink(filepath.Join("/proc", e.Name(), "cwd"))
		if slices.ContainsFunc(bytes.Split(env, []byte{0}), func(kv []byte) bool { return bytes.Equal(kv, mark) }) ||
			cwd == dir || strings.HasPrefix(cwd, dir+"/") {
			out = append(out, pid)
		}
	}
	return out, nil
}

// endProcesses ends every process of the demo in dir and waits until none is
// left: kindly at first, by force after grace. It says how many there were.
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
			return len(seen), fmt.Errorf("processes %v do not end: %w", pids, ctx.Err())
		case <-tick.C:
		}
	}
}
