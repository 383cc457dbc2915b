package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coopr/coopr/plugins/confine"
)

// countEvery is how often the host counts what plugins use.
const countEvery = time.Second

// Breach is a plugin that was killed because it used more than its limits allow.
type Breach struct {
	Plugin  string    // name of its file
	Message string    // what it used
	Last    time.Time // when it was killed last
	Count   int       // how often, since the agent started
}

// tracked is a running program of a plugin.
type tracked struct {
	plugin, own string
	pid         int
	limits      confine.Limits
	breach      atomic.Pointer[string] // why the host killed it
}

// over returns why the host killed the program, or "".
func (t *tracked) over() string {
	if t == nil {
		return ""
	}
	if s := t.breach.Load(); s != nil {
		return *s
	}
	return ""
}

// meter counts what running programs use, and kills those that exceed their limits.
type meter struct {
	limits confine.Limits
	renew  func(own string) error // creates what an emptied folder of a plugin needs
	log    *slog.Logger

	mu       sync.Mutex
	tracked  map[int]*tracked   // by process id
	breaches map[string]*Breach // by plugin
}

func newMeter(l *confine.Launcher, log *slog.Logger) *meter {
	renew := func(own string) error { return l.Own(filepath.Join(own, "tmp")) }
	m := &meter{log: log, renew: renew, tracked: map[int]*tracked{}, breaches: map[string]*Breach{}}
	if l != nil {
		m.limits = l.Limits
	}
	return m
}

// track begins to count what a program uses. The processes of a lasting program are not its own, so
// they are not counted.
func (m *meter) track(path, own string, pid int, lasts bool) *tracked {
	t := &tracked{plugin: filepath.Base(path), own: own, pid: pid, limits: m.limits}
	if lasts {
		t.limits.Processes, t.limits.Memory = 0, 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tracked[pid] = t
	return t
}

// untrack ends the counting.
func (m *meter) untrack(t *tracked) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.tracked[t.pid] == t { // the number of the process may be another one's by now
		delete(m.tracked, t.pid)
	}
}

// run kills programs over their limits until ctx ends.
func (m *meter) run(ctx context.Context) {
	tick := time.NewTicker(countEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			m.enforce()
		}
	}
}

// running returns the programs that run now.
func (m *meter) running() []*tracked {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.tracked))
}

// enforce counts once.
func (m *meter) enforce() {
	for _, t := range m.running() {
		if why := t.exceeds(); why != "" {
			m.end(t, why)
		}
	}
}

// end kills a program and records why.
func (m *meter) end(t *tracked, why string) {
	if !m.kill(t, why) {
		return // it has ended meanwhile
	}
	m.log.Error("a plugin was killed because it exceeded a limit", "plugin", t.plugin, "limit", why)
	if t.limits.Disk > 0 && folderSize(t.own, t.limits.Disk) > t.limits.Disk {
		for _, other := range m.running() {
			if other.own == t.own {
				m.kill(other, why)
			}
		}
		// It has only temporary files, and full as it is the plugin could not be started again.
		if err := errors.Join(empty(t.own), m.renew(t.own)); err != nil {
			m.log.Error("the plugin's folder cannot be emptied", "folder", t.own, "error", err)
		}
	}
}

// kill kills a program and records why. It returns false if the program has ended, or was killed before.
func (m *meter) kill(t *tracked, why string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.tracked[t.pid] != t || t.breach.Load() != nil {
		return false
	}
	text := fmt.Sprintf("plugin %s was killed: %s", t.plugin, why)
	t.breach.Store(&text)
	b := m.breaches[t.plugin]
	if b == nil {
		b = &Breach{Plugin: t.plugin}
		m.breaches[t.plugin] = b
	}
	b.Message, b.Last = why, time.Now()
	b.Count++
	killTree(t.pid)
	return true
}

// list returns the plugins that exceeded their limits, by name.
func (m *meter) list() (out []Breach) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(m.breaches)) {
		out = append(out, *m.breaches[name])
	}
	return out
}

// Isolation is what keeps plugins away from the agent.
type Isolation struct {
	Grade    confine.Grade
	User     string   // whom plugins run as; "" is the agent's user
	Warnings []string // what an operator should know
	Breaches []Breach // by name of the plugin
}

// Isolation returns what keeps plugins away from the agent now, and which of them exceeded their limits
// since the agent started.
func (h *Host) Isolation() Isolation {
	l := h.cfg.Launcher
	out := Isolation{Grade: l.Grade(), Warnings: l.Warnings(), Breaches: h.meter.list()}
	if l != nil && l.User != nil {
		out.User = l.User.Name
	}
	return out
}

// exceeds returns which limit the program exceeds, or "".
func (t *tracked) exceeds() string {
	l := t.limits
	if l.Processes > 0 || l.Memory > 0 {
		pids := living(descendants(t.pid))
		if l.Processes > 0 && len(pids) > l.Processes {
			return fmt.Sprintf("it had %d processes, and isolation.processes is %d", len(pids), l.Processes)
		}
		var memory int64
		for _, pid := range pids {
			memory += resident(pid)
		}
		if l.Memory > 0 && memory > l.Memory {
			return fmt.Sprintf("it used %d bytes of memory, and isolation.memory is %d", memory, l.Memory)
		}
	}
	if l.Disk > 0 {
		if size := folderSize(t.own, l.Disk); size > l.Disk {
			return fmt.Sprintf("its folder had more than the %d bytes of isolation.disk", l.Disk)
		}
	}
	return ""
}

// descendants returns a process and all that descend from it.
func descendants(pid int) []int {
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		all = append(all, children(all[i])...)
	}
	return all
}

// living returns the processes that are not dead. A dead one stays in the tree until its parent waits for it.
func living(pids []int) []int {
	return slices.DeleteFunc(pids, func(pid int) bool {
		_, lives := startTime(pid)
		return !lives
	})
}

// resident returns the memory of a process that is in use and does not have the content of files, in bytes.
func resident(pid int) (bytes int64) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(line, ":")
		if fields := strings.Fields(value); (name == "RssAnon" || name == "RssShmem") && len(fields) == 2 {
			kilobytes, _ := strconv.ParseInt(fields[0], 10, 64)
			bytes += kilobytes << 10
		}
	}
	return bytes
}

// folderSize returns the bytes of the files in a folder, or of some of them if they are more than
// enough.
func folderSize(dir string, enough int64) (size int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was removed meanwhile
		}
		if err != nil {
			size = enough + 1 // nobody may hide files by names that are too long
			return fs.SkipAll
		}
		if fi, err := e.Info(); err == nil {
			size += max(fi.Size(), fi.Sys().(*syscall.Stat_t).Blocks*512, 512)
		}
		if size > enough {
			return fs.SkipAll
		}
		return nil
	})
	return size
}

// empty removes what is in a folder.
func empty(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := root.RemoveAll(e.Name()); err != nil {
			return err
		}
	}
	return nil
}
