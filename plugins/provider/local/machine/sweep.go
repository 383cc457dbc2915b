package machine

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Processes returns the pids of all processes of a node: those with its folder in COOPR_NODE_DIR,
// those that work in the folder without a terminal, and the descendants of both. The caller and its
// ancestors are never included.
func Processes(dir string) []int {
	type proc struct {
		parent int
		mine   bool
	}
	mark := []byte(NodeDirVar + "=" + dir + "\x00")
	procs := map[int]*proc{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		parent, tty, ok := stat(pid)
		if !ok {
			continue
		}
		p := &proc{parent: parent}
		procs[pid] = p
		if env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)); err == nil &&
			bytes.Contains(append([]byte{0}, env...), append([]byte{0}, mark...)) {
			p.mine = true
		} else if cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)); err == nil && tty == 0 {
			cwd = strings.TrimSuffix(cwd, " (deleted)")
			p.mine = cwd == dir || strings.HasPrefix(cwd, dir+"/")
		}
	}
	var pids []int
	ancestors := map[int]bool{}
	for pid := os.Getpid(); pid > 0 && !ancestors[pid]; {
		ancestors[pid] = true
		if p := procs[pid]; p != nil {
			pid = p.parent
		}
	}
	for pid := range procs {
		for at := pid; at > 1; {
			p := procs[at]
			if p == nil || ancestors[pid] {
				break
			}
			if p.mine {
				pids = append(pids, pid)
				break
			}
			if ancestors[at] {
				break // the caller's ancestors do not belong to the node
			}
			at = p.parent
		}
	}
	return pids
}

// stat returns a process's parent and terminal. It returns false for zombies.
func stat(pid int) (parent, tty int, ok bool) {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, 0, false
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 5 || f[0] == "Z" || f[0] == "X" {
		return 0, 0, false
	}
	parent, _ = strconv.Atoi(f[1])
	tty, _ = strconv.Atoi(f[4])
	return parent, tty, true
}

// Sweep kills all processes of a node until none is left.
func Sweep(ctx context.Context, dir string) error {
	for {
		pids := Processes(dir)
		if len(pids) == 0 {
			return nil
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("processes %v of node %s cannot be killed: %w", pids, dir, context.Cause(ctx))
		case <-time.After(5 * time.Millisecond):
		}
	}
}
