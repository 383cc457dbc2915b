package logstore

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/coopr/coopr/internal/quarantine"
)

// asideDir is the name of the directory for damaged stores, next to that of the stores.
const asideDir = "quarantine"

// PutAside moves the damaged stores of dir into a directory next to it, so that the member begins with
// empty ones and the leader sends the state again. It returns their new place. The member keeps its
// term and its vote, and does not vote until it has its entries again. Without a whole watermark,
// PutAside does nothing and fails.
func PutAside(dir string, reason error) (to string, err error) {
	dir = filepath.Clean(dir)
	lock, err := lockDir(filepath.Join(dir, lockFile))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	f, err := openMark(dir)
	if err != nil {
		return "", err
	}
	_, found, err := readMark(f, slog.New(slog.DiscardHandler))
	if err == nil && !found {
		err = fmt.Errorf("%s has no record of the end of the log", f.Name())
	}
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return "", err
	}
	return quarantine.Move(filepath.Join(filepath.Dir(dir), asideDir), dir, reason)
}

// DropAside removes the oldest damaged stores that PutAside has moved away from dir, and returns where they were. It
// returns "" if there are at most keep of them.
func DropAside(dir string, keep int) (was string, err error) {
	dir = filepath.Clean(dir)
	return quarantine.DropOldest(filepath.Join(filepath.Dir(dir), asideDir), filepath.Base(dir), keep)
}
