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

// DropOldest removes the oldest copy of a name from dir and returns where it was, or "" if there are at most keep copies.
func DropOldest(dir, name string, keep int) (was string, err error) {
	copies, err := copiesOf(dir, name)
	if err != nil || len(copies) <= keep {
		return "", err
	}
	return copies[0], drop(copies[0])
}

// dropOldest makes room for one more copy of a name.
func dropOldest(dir, name string) error {
	copies, err := copiesOf(dir, name)
	for ; err == nil && len(copies) >= Keep; copies = copies[1:] {
		err = drop(copies[0])
	}
	return err
}

// copiesOf returns the paths of the copies of a name, the oldest first.
func copiesOf(dir, name string) (copies []string, err error) {
	list, err := os.ReadDir(dir) // sorted by name, so by time
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	for _, e := range list {
		if len(e.Name()) == len(timeFormat)+1+len(name) && strings.HasSuffix(e.Name(), "-"+name) {
			copies = append(copies, filepath.Join(dir, e.Name()))
		}
	}
	return copies, err
}

// drop removes a copy and the note with its reason.
func drop(path string) error {
	note := os.Remove(path + ".reason.txt")
	if errors.Is(note, os.ErrNotExist) {
		note = nil
	}
	return errors.Join(os.RemoveAll(path), note)
}
