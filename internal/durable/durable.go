// Package durable writes files that are on the disk when a function returns.
package durable

import (
	"errors"
	"os"
	"path/filepath"
)

// WriteFile replaces a file atomically, with mode 0600. The content and the name are on the disk when it returns.
func WriteFile(path string, content []byte) error {
	dir, name := filepath.Split(path)
	f, err := os.CreateTemp(filepath.Clean(dir), name+".*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // gone after the rename
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return SyncFolder(dir)
}

// SyncFolder returns when the names in a folder are on the disk.
func SyncFolder(path string) error {
	f, err := os.Open(filepath.Clean(path))
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
