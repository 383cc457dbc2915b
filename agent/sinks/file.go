package sinks

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/internal/durable"
)

// File appends records to a file, which it opens for each delivery. So a program that rotates files may rename it at any time.
type File struct {
	Path string
	// busy is true while a delivery is under way, or hangs: a write to a disk of the network cannot be interrupted.
	busy atomic.Bool
	// kept is the file whose name the folder has on its disk. Only the delivery that is under way uses it.
	kept fs.FileInfo
}

// Reasons why a file takes no records.
var (
	errHangs = errors.New("an earlier write hangs")
	errKind  = errors.New("it is no regular file")
)

// Deliver appends records and returns when they are on the disk, or ctx ends. A write that hangs goes on then, and further deliveries
// fail until it has returned. Its records may come again.
func (f *File) Deliver(ctx context.Context, records []audit.Record) error {
	text, err := lines(records)
	if err != nil {
		return err
	}
	return f.begin(ctx, func() error { return f.write(text) })
}

// begin begins a write, unless one is under way, and returns when it has returned, or ctx ends.
func (f *File) begin(ctx context.Context, write func() error) error {
	if !f.busy.CompareAndSwap(false, true) {
		return fmt.Errorf("%s: %w", f.Path, errHangs)
	}
	done := make(chan error, 1)
	go func() {
		err := write()
		f.busy.Store(false)
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("the write to %s has not returned: %w", f.Path, ctx.Err())
	}
}

// write appends a text to a regular file, which may not exist yet. To open any other may hang, or have effects.
func (f *File) write(text []byte) (err error) {
	switch info, err := os.Stat(f.Path); {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case err == nil && !info.Mode().IsRegular():
		return fmt.Errorf("%s: %w", f.Path, errKind)
	}
	file, err := os.OpenFile(f.Path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if n := info.Size(); n > 0 {
		// A delivery that was cut short has left a part of a line, and its records come again.
		var end [1]byte
		if _, err := file.ReadAt(end[:], n-1); err != nil {
			return err
		}
		if end[0] != '\n' {
			text = append([]byte{'\n'}, text...)
		}
	}
	if _, err := file.Write(text); err != nil {
		return err
	}
	if err := file.Sync(); err != nil || f.kept != nil && os.SameFile(f.kept, info) {
		return err
	}
	if err := durable.SyncFolder(filepath.Dir(f.Path)); err != nil {
		return err
	}
	f.kept = info
	return nil
}
