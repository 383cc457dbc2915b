package host

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// startTime returns when a process began, in clock ticks since the machine's start; with the pid
// that identifies a process for good. It returns false if there is no such process.
func startTime(pid int) (uint64, bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	// The name, in parentheses, may hold any character, so the fields begin after the last
	// parenthesis.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" {
		return 0, false
	}
	n, err := strconv.ParseUint(fields[19], 10, 64)
	return n, err == nil
}

// children returns the pids of a process's children.
func children(pid int) []int {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	var pids []int
	for _, f := range files {
		b, _ := os.ReadFile(f)
		for _, s := range strings.Fields(string(b)) {
			if n, err := strconv.Atoi(s); err == nil {
				pids = append(pids, n)
			}
		}
	}
	return pids
}

// killTree kills a process and all its descendants. Each is stopped first, so that it cannot start
// others meanwhile.
func killTree(pid int) {
	stopped := map[int]bool{}
	// A process whose parent ends meanwhile becomes the child of another one of the tree, whose
	// children were already read.
	for found := true; found; {
		found = false
		for _, p := range descendants(pid) {
			if !stopped[p] {
				_ = syscall.Kill(p, syscall.SIGSTOP)
				stopped[p], found = true, true
			}
		}
	}
	for p := range stopped {
		_ = syscall.Kill(p, syscall.SIGKILL)
	}
}

// killTasks ends every process that carries out one of the attempts, identified by the variables
// COOPR_TASK and COOPR_FENCE that automators set. It is for the children of a plugin that has died.
func killTasks(attempts map[attempt]bool) {
	if len(attempts) > 0 {
		killMarked(func(environ []byte) bool { return attempts[attemptOf(environ)] })
	}
}

// killMarked kills every process with these variables and waits until they have ended, as a killed process may still hold its address and
// its files for a while. It returns those that do not end within deathTimeout. It repeats until it finds nothing new: a shell whose command
// is killed may start another one before the shell itself is killed.
func killMarked(with func(environ []byte) bool) (left []int) {
	killed := map[int]uint64{os.Getpid(): 0} // when they began
	for more, doubts := true, 0; more; {
		more = false
		procs, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, f := range procs {
			pid, err := strconv.Atoi(strings.Split(f, "/")[2])
			if err != nil {
				continue
			}
			if _, ok := killed[pid]; ok {
				continue
			}
			b, err := os.ReadFile(f)
			switch {
			case err != nil:
			case len(b) == 0 && doubts < maxDoubts && executes(pid):
				// The process may be between two programs, and without variables for a moment.
				more, doubts = true, doubts+1
			case with(b):
				killed[pid], _ = startTime(pid)
				_ = syscall.Kill(pid, syscall.SIGKILL)
				more = true
			}
		}
	}
	delete(killed, os.Getpid())
	deadline := time.Now().Add(deathTimeout)
	for pid, start := range killed {
		for {
			now, alive := startTime(pid)
			if !alive || now != start {
				break
			}
			if time.Now().After(deadline) {
				left = append(left, pid)
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	slices.Sort(left)
	return left
}

// deathTimeout is how long killed processes have to end. One that waits for a device, such as a network file system, may need longer.
const deathTimeout = 10 * time.Second

// maxDoubts bounds how often killMarked repeats because of processes without variables, as some
// processes never have any.
const maxDoubts = 100

// executes reports whether a process has a program; the kernel's own processes have none.
func executes(pid int) bool {
	_, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return err == nil
}

// hasVariable reports whether an environment has a variable with this value.
func hasVariable(environ []byte, name, value string) bool {
	return bytes.Contains(append([]byte{0}, environ...), []byte("\x00"+name+"="+value+"\x00"))
}

// attemptOf returns the attempt that a process with these variables carries out.
func attemptOf(environ []byte) (a attempt) {
	if !bytes.Contains(environ, []byte("COOPR_FENCE=")) {
		return a
	}
	for kv := range bytes.SplitSeq(environ, []byte{0}) {
		if v, ok := bytes.CutPrefix(kv, []byte("COOPR_TASK=")); ok {
			a.task = string(v)
		} else if v, ok := bytes.CutPrefix(kv, []byte("COOPR_FENCE=")); ok {
			a.fence, _ = strconv.ParseUint(string(v), 10, 64)
		}
	}
	return a
}
