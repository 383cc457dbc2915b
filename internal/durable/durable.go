// Package durable writes files that are on the disk when a function returns.
package durable

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
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

// Replace is WriteFile for secrets: it also overwrites the old content with zeros. That is worth as much as the file system: on one that
// copies when it writes, and on many flash disks, the old bytes stay until their blocks are used again. The new content counts even if
// the old one could not be overwritten.
func Replace(path string, content []byte) error {
	old, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return WriteFile(path, content)
	}
	defer old.Close()
	if err := WriteFile(path, content); err != nil {
		return err
	}
	info, err := old.Stat()
	if err != nil {
		return nil
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Nlink > 0 {
		return nil // somebody has a link to it on purpose
	}
	if _, err := old.Write(make([]byte, info.Size())); err == nil {
		_ = old.Sync()
	}
	return nil
}

// SyncFolder returns when the names in a folder are on the disk.
func SyncFolder(path string) error {
	f, err := os.Open(filepath.Clean(path))
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
