package act

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/coopr/coopr/plugins/remote"
)

// noteVar marks the environment of a script with the path of its note.
const noteVar = "COOPR_CHANGE_NOTE"

func (p *Performer) notes() string { return filepath.Join(p.cfg.Dir, "running") }

// note lets a command write its process id down before it begins, so that the
// next agent on the same data can end it if this one is killed. Done forgets it.
func (p *Performer) note(c *remote.Command) (path string, done func(), err error) {
	path = filepath.Join(p.notes(), rand.Text())
	c.Args = append([]string{"/bin/sh", "-c", `echo $$ >"$0" && exec "$@"`, path}, c.Args...)
	return path, func() { _ = os.Remove(path) }, nil
}

// sweep ends the actions that ran when an earlier agent was killed, as an action must not
// run twice at the same time. Processes that a finished script left running are not touched.
func (p *Performer) sweep() error {
	entries, err := os.ReadDir(p.notes())
	if err != nil {
		return err
	}
	for _, e := range entries {
		note := filepath.Join(p.notes(), e.Name())
		b, err := os.ReadFile(note)
		if err != nil {
			return err
		}
		if group, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && group > 1 {
			if err := endGroup(group, note); err != nil {
				return err
			}
		}
		if err := os.Remove(note); err != nil {
			return err
		}
	}
	return nil
}

// endGroup kills the process group that wrote a note, and waits for its end.
func endGroup(group int, note string) error {
	for range 500 {
		if !groupHas(group, []byte(noteVar+"="+note)) {
			return nil
		}
		if err := syscall.Kill(-group, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
			return fmt.Errorf("end what an earlier agent left running (process group %d): %w", group, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("process group %d, which an earlier agent left running, does not end", group)
}

// groupHas reports whether a live process of a group has a mark in its environment.
func groupHas(group int, mark []byte) bool {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		stat, err := os.ReadFile(filepath.Join(d, "stat"))
		if err != nil {
			continue
		}
		// pid (name) state parent group: the name may hold anything.
		f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(f) < 3 || f[0] == "Z" || f[2] != strconv.Itoa(group) {
			continue
		}
		env, err := os.ReadFile(filepath.Join(d, "environ"))
		if err == nil && bytes.Contains(env, mark) {
			return true
		}
	}
	return false
}
