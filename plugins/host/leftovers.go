package host

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// leftovers remembers the running plugin processes in files, so that the next
// agent on the same data can end what a killed one left behind.
type leftovers struct {
	dir  string
	boot string // names this run of the machine: pids mean nothing in another
	log  *slog.Logger
}

// pidRecord is the content of a file named <pid>.json.
type pidRecord struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // startTime
	Boot  string `json:"boot"`
	Path  string `json:"path"`
	// Sockets is the folder of its sockets, which its agent would have removed.
	Sockets string `json:"sockets,omitempty"`
}

func newLeftovers(dir string, log *slog.Logger) (*leftovers, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return &leftovers{dir: dir, boot: strings.TrimSpace(string(b)), log: log}, nil
}

// reap kills the processes of an earlier agent, removes their sockets and
// forgets them.
func (l *leftovers) reap() {
	files, _ := filepath.Glob(filepath.Join(l.dir, "*.json"))
	for _, f := range files {
		var r pidRecord
		b, err := os.ReadFile(f)
		if err == nil {
			err = json.Unmarshal(b, &r)
		}
		if start, alive := startTime(r.PID); err == nil && r.PID > 1 && alive && start == r.Start && r.Boot == l.boot {
			l.log.Warn("killing a plugin that an earlier agent left behind", "pid", r.PID, "plugin", r.Path)
			killTree(r.PID)
		}
		if err == nil && r.Sockets != "" {
			if err := os.RemoveAll(r.Sockets); err != nil {
				l.log.Warn("sockets of an earlier agent's plugin stay", "folder", r.Sockets, "error", err)
			}
		}
		_ = os.Remove(f)
	}
}

// write remembers a process and gives the file's path. Failing only costs the
// reaping: the other guards against orphans stand.
func (l *leftovers) write(pid int, path, sockets string) string {
	start, alive := startTime(pid)
	if !alive {
		return ""
	}
	b, err := json.Marshal(pidRecord{PID: pid, Start: start, Boot: l.boot, Path: path, Sockets: sockets})
	file := filepath.Join(l.dir, strconv.Itoa(pid)+".json")
	if err == nil {
		err = os.WriteFile(file, b, 0o600)
	}
	if err != nil {
		l.log.Warn("cannot remember a plugin's process", "pid", pid, "error", err)
	}
	return file
}

func (l *leftovers) remove(file string) {
	if file != "" {
		_ = os.Remove(file)
	}
}
