package host

import (
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/coopr/coopr/plugins/confine"
)

// leftovers records the running plugin processes in files, so that the next agent with the same
// data folder can end them if this one is killed.
type leftovers struct {
	dir  string
	boot string // identifies this run of the machine: pids have no meaning in another
	log  *slog.Logger
	// sockets is the folder of all plugins' sockets. Its name is recorded before it is created, so
	// that the next agent can remove it in any case.
	sockets string
}

// socketsFile, in leftovers.dir, holds the path of the folder of sockets.
const socketsFile = "sockets"

// pidRecord is the content of a file named <pid>.json.
type pidRecord struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // startTime
	Boot  string `json:"boot"`
	Path  string `json:"path"`
}

func newLeftovers(dir string, log *slog.Logger) (*leftovers, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return &leftovers{dir: dir, boot: strings.TrimSpace(string(b)), log: log}, nil
}

// reap kills the processes of an earlier agent, removes their sockets and deletes the records.
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
		_ = os.Remove(f)
	}
	if b, err := os.ReadFile(filepath.Join(l.dir, socketsFile)); err == nil {
		l.removeSockets(string(b))
	}
}

// makeSockets creates the folder of sockets within a folder that may be shared. That its path cannot be recorded, as on
// a read-only file system, is only logged: it costs the removal by the next agent after a crash.
func (l *leftovers) makeSockets(in string, launcher *confine.Launcher) error {
	dir := filepath.Join(in, "coopr-"+rand.Text()[:8])
	if err := os.WriteFile(filepath.Join(l.dir, socketsFile), []byte(dir), 0o600); err != nil {
		l.log.Warn("the folder of plugins' sockets cannot be recorded", "error", err)
	}
	if err := launcher.Pass(dir); err != nil {
		return err
	}
	l.sockets = dir
	return nil
}

// removeSockets removes a folder of sockets. It ignores a path of another form, as from a truncated
// record.
func (l *leftovers) removeSockets(dir string) {
	if name := filepath.Base(dir); !strings.HasPrefix(name, "coopr-") || len(name) != len("coopr-")+8 {
		return
	}
	if err := os.RemoveAll(dir); err != nil {
		l.log.Warn("the folder of plugins' sockets cannot be removed", "folder", dir, "error", err)
		return
	}
	_ = os.Remove(filepath.Join(l.dir, socketsFile))
}

// write records a process and returns the record's path. A failure is only logged: it costs the
// reaping at the next start, while the other guards against orphans remain.
func (l *leftovers) write(pid int, path string) string {
	start, alive := startTime(pid)
	if !alive {
		return ""
	}
	b, err := json.Marshal(pidRecord{PID: pid, Start: start, Boot: l.boot, Path: path})
	file := filepath.Join(l.dir, strconv.Itoa(pid)+".json")
	if err == nil {
		err = os.WriteFile(file, b, 0o600)
	}
	if err != nil {
		l.log.Warn("a plugin's process cannot be recorded", "pid", pid, "error", err)
	}
	return file
}

func (l *leftovers) remove(file string) {
	if file != "" {
		_ = os.Remove(file)
	}
}
