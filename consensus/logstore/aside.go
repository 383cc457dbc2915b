package logstore

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"
)

const (
	asideDir = "quarantine"
	// keepAside is how many damaged stores are kept.
	keepAside = 3
)

// PutAside moves the damaged stores of dir into a directory beside it, so that the member begins with
// empty ones and the leader sends the state again. It returns where they are. The member keeps its term
// and its vote, and does not vote until it has its entries again. Without a whole watermark,
// PutAside does nothing and fails.
func PutAside(dir string, reason error) (to string, err error) {
	dir = filepath.Clean(dir)
	lock, err := lockDir(filepath.Join(dir, lockFile))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	t, found, err := openWatermark(dir+watermarkSuffix, slog.New(slog.DiscardHandler))
	if err != nil {
		return "", err
	}
	if err := t.file.Sync(); err != nil || !found {
		err = errors.Join(err, t.close())
		if err == nil {
			err = fmt.Errorf("%s has no record of the end of the log", dir+watermarkSuffix)
		}
		return "", err
	}
	if err := t.close(); err != nil {
		return "", err
	}
	parent := filepath.Join(filepath.Dir(dir), asideDir)
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return "", err
	}
	if err := dropOldest(parent); err != nil {
		return "", err
	}
	to = filepath.Join(parent, time.Now().UTC().Format("20060102T150405.000000000Z")+"-"+filepath.Base(dir))
	if err := os.WriteFile(filepath.Join(dir, "reason.txt"), []byte(reason.Error()+"\n"), 0o600); err != nil {
		return "", err
	}
	return to, os.Rename(dir, to)
}

// dropOldest makes room for one more directory in parent.
func dropOldest(parent string) error {
	list, err := os.ReadDir(parent) // sorted by name, so by time
	if err != nil {
		return err
	}
	for len(list) >= keepAside {
		if err := os.RemoveAll(filepath.Join(parent, list[0].Name())); err != nil {
			return err
		}
		list = list[1:]
	}
	return nil
}
