package sinks

import (
	"context"
	"errors"
	"os"

	"github.com/coopr/coopr/engine/audit"
)

// File appends records to a file, which it opens for each delivery. So a program that rotates files may rename it at any time.
type File struct{ Path string }

// Deliver appends records and returns when they are on the disk.
func (f *File) Deliver(_ context.Context, records []audit.Record) (err error) {
	text, err := lines(records)
	if err != nil {
		return err
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
	if n := info.Size(); n > 0 && info.Mode().IsRegular() {
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
	return file.Sync()
}
