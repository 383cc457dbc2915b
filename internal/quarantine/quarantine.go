// Package quarantine moves damaged files of an agent aside, so that the agent can begin with new ones and a
// person can look at the old ones.
package quarantine

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Keep is how many damaged copies of the same name are kept.
const Keep = 3

const timeFormat = "20060102T150405.000000000Z"

// Move moves a file or directory to a new place in dir, which is created if needed, and writes the reason
// into a file next to it or, for a directory, in it. It returns the new place. Of several copies with the
// same name, the newest are kept.
func Move(dir, path string, reason error) (to string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	name := filepath.Base(path)
	if err := dropOldest(dir, name); err != nil {
		return "", err
	}
	to = filepath.Join(dir, time.Now().UTC().Format(timeFormat)+"-"+name)
	if err := os.Rename(path, to); err != nil {
		return "", err
	}
	note := to + ".reason.txt"
	if info, err := os.Lstat(to); err == nil && info.IsDir() {
		note = filepath.Join(to, "reason.txt")
	}
	// The move counts. On a full disk the reason stands in the log only.
	_ = os.WriteFile(note, []byte(reason.Error()+"\n"), 0o600)
	return to, nil
}

// dropOldest makes room for one more copy of a name.
func dropOldest(dir, name string) error {
	list, err := os.ReadDir(dir) // sorted by name, so by time
	if err != nil {
		return err
	}
	var copies []string
	for _, e := range list {
		if len(e.Name()) == len(timeFormat)+1+len(name) && strings.HasSuffix(e.Name(), "-"+name) {
			copies = append(copies, filepath.Join(dir, e.Name()))
		}
	}
	for len(copies) >= Keep {
		note := os.Remove(copies[0] + ".reason.txt")
		if errors.Is(note, os.ErrNotExist) {
			note = nil
		}
		if err := errors.Join(os.RemoveAll(copies[0]), note); err != nil {
			return err
		}
		copies = copies[1:]
	}
	return nil
}
