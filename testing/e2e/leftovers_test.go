package e2e

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// process is one that belongs to a mesh.
type process struct {
	pid  int
	what string
}

// processes lists what runs in dir, works below it or has its path in its
// environment: agents, plugins, scripts and what nodes run.
func processes(dir string) ([]process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var out []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		// A process that ends, or is someone else's, cannot be read: not ours.
		at := filepath.Join("/proc", e.Name())
		env, _ := os.ReadFile(filepath.Join(at, "environ"))
		args, _ := os.ReadFile(filepath.Join(at, "cmdline"))
		cwd, _ := os.Readlink(filepath.Join(at, "cwd"))
		if len(args) == 0 {
			continue // dead, and waited for by somebody soon
		}
		if bytes.Contains(env, []byte(dir)) || bytes.Contains(args, []byte(dir)) || cwd == dir || strings.HasPrefix(cwd, dir+"/") {
			out = append(out, process{pid, string(bytes.TrimRight(bytes.ReplaceAll(args, []byte{0}, []byte{' '}), " "))})
		}
	}
	return out, nil
}

// endProcesses kills the remaining processes, whatever the result of the test.
func endProcesses(t *testing.T, dir string) {
	for {
		list, err := processes(dir)
		if err != nil {
			t.Errorf("processes: %v", err)
		}
		if len(list) == 0 {
			return
		}
		for _, p := range list {
			// An error does not matter: the process has ended by itself in the meantime.
			_ = syscall.Kill(p.pid, syscall.SIGKILL)
		}
	}
}

// files lists the files and folders below dir, except those that ok allows.
func files(t *testing.T, dir string, ok func(path string, d fs.DirEntry) bool) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if rel, _ := filepath.Rel(dir, path); rel != "." && !ok(rel, d) {
			out = append(out, rel)
		}
		return nil
	})
	if err != nil && !os.IsNotExist(err) {
		t.Errorf("what is left in %s: %v", dir, err)
	}
	return out
}

// noneLeft waits for the last process to end, and then checks that nothing is left behind:
// processes, nodes, addresses, sockets, records of processes.
func (m *mesh) noneLeft() {
	m.t.Helper()
	var list []process
	m.await("every process to have ended", func() error {
		var err error
		if list, err = processes(m.dir); err == nil && len(list) > 0 {
			err = fmt.Errorf("still there: %v", list)
		}
		return err
	})
	left := files(m.t, m.nodes(), func(path string, _ fs.DirEntry) bool { return path == ".addresses" || path == ".work" })
	if len(left) > 0 {
		m.t.Errorf("left over of nodes: %v", left)
	}
	left = files(m.t, m.tmp(), func(string, fs.DirEntry) bool { return false })
	if len(left) > 0 {
		m.t.Errorf("left over of temporary files: %v", left)
	}
	for _, a := range m.agents {
		left = files(m.t, filepath.Join(a.data, "plugins"), func(path string, d fs.DirEntry) bool { return d.IsDir() || path == "plugins.json" })
		if len(left) > 0 {
			m.t.Errorf("agent %s: left over of plugins: %v", a.name, left)
		}
	}
}
