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
	if info, err := old.Stat(); err == nil {
		_ = Overwrite(old, info.Size())
	}
	return nil
}

// Overwrite overwrites the first bytes of an open file with zeros, after the file was removed or replaced. It leaves a file that still
// has a name: somebody has linked to it on purpose.
func Overwrite(old *os.File, size int64) error {
	info, err := old.Stat()
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Nlink > 0 {
		return nil
	}
	zeros := make([]byte, min(size, 1<<20))
	for at := int64(0); at < size; at += int64(len(zeros)) {
		if _, err := old.WriteAt(zeros[:min(int64(len(zeros)), size-at)], at); err != nil {
			return err
		}
	}
	return old.Sync()
}

// SyncFolder returns when the names in a folder are on the disk.
func SyncFolder(path string) error {
	f, err := os.Open(filepath.Clean(path))
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
