package host

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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

// track begins to count what a program uses. The processes of a lasting program are not its own, so
// they are not counted.
func (h *Host) track(path, own string, pid int, lasts bool) *tracked {
	t := &tracked{plugin: filepath.Base(path), own: own, pid: pid}
	if h.cfg.Launcher != nil {
		t.limits = h.cfg.Launcher.Limits
	}
	if lasts {
		t.limits.Processes, t.limits.Memory = 0, 0
	}
	h.countMu.Lock()
	defer h.countMu.Unlock()
	h.tracked[pid] = t
	return t
}

// untrack ends the counting.
func (h *Host) untrack(t *tracked) {
	h.countMu.Lock()
	defer h.countMu.Unlock()
	delete(h.tracked, t.pid)
}

// count kills programs over their limits until the host closes.
func (h *Host) count() {
	tick := time.NewTicker(countEvery)
	defer tick.Stop()
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-tick.C:
			h.enforce()
		}
	}
}

// enforce counts once.
func (h *Host) enforce() {
	h.countMu.Lock()
	var now []*tracked
	for _, t := range h.tracked {
		now = append(now, t)
	}
	h.countMu.Unlock()
	for _, t := range now {
		if why := t.exceeds(); why != "" {
			h.end(t, why)
		}
	}
}

// end kills a program and records why.
func (h *Host) end(t *tracked, why string) {
	h.countMu.Lock()
	if h.tracked[t.pid] != t || t.breach.Load() != nil {
		h.countMu.Unlock()
		return // it has ended meanwhile
	}
	text := fmt.Sprintf("plugin %s was killed: %s", t.plugin, why)
	t.breach.Store(&text)
	b := h.breaches[t.plugin]
	if b == nil {
		b = &Breach{Plugin: t.plugin}
		h.breaches[t.plugin] = b
	}
	b.Message, b.Last = why, time.Now()
	b.Count++
	killTree(t.pid)
	h.countMu.Unlock()
	h.cfg.Logger.Error("a plugin was killed because it exceeded a limit", "plugin", t.plugin, "limit", why)
	if folderSize(t.own, t.limits.Disk) > t.limits.Disk && t.limits.Disk > 0 {
		// It has only temporary files, and full as it is the plugin could not be started again.
		if err := empty(t.own); err != nil {
			h.cfg.Logger.Error("the plugin's folder cannot be emptied", "folder", t.own, "error", err)
		}
	}
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
	out := Isolation{Grade: l.Grade(), Warnings: l.Warnings()}
	if l != nil && l.User != nil {
		out.User = l.User.Name
	}
	h.countMu.Lock()
	defer h.countMu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(h.breaches)) {
		out.Breaches = append(out.Breaches, *h.breaches[name])
	}
	return out
}

// exceeds returns which limit the program exceeds, or "".
func (t *tracked) exceeds() string {
	l := t.limits
	if l.Processes > 0 || l.Memory > 0 {
		pids := descendants(t.pid)
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

// resident returns the memory of a process that is in use and not shared with files, in bytes.
func resident(pid int) int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	fields := bytes.Fields(b)
	if len(fields) < 3 {
		return 0
	}
	all, _ := strconv.ParseInt(string(fields[1]), 10, 64)
	shared, _ := strconv.ParseInt(string(fields[2]), 10, 64)
	return (all - shared) * int64(os.Getpagesize())
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
