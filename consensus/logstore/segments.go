package logstore

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/metadb"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
)

// segmentFiles are the files of a WAL's segments. If a disk has no room for a new segment, its file is removed again.
// The library leaves an empty file there, and every later attempt fails because the file exists.
type segmentFiles struct {
	*fs.FS
	opening bool
	opened  []io.Closer           // while opening
	failed  atomic.Pointer[error] // of the last attempt to begin a segment; nil if it succeeded
}

// segmentIndex is the index of a WAL's segments. It notes for the files why a new segment could not be recorded.
type segmentIndex struct {
	*metadb.BoltMetaDB
	files *segmentFiles
}

// CommitState records the segments.
func (s segmentIndex) CommitState(state types.PersistentState) error {
	err := s.BoltMetaDB.CommitState(state)
	if err != nil {
		s.files.failed.Store(&err)
	}
	return err
}

// segmentedLog is a WAL whose writes fail for the right reason after the next segment could not be begun. The library
// begins it in the background, only logs why that fails, and then refuses every entry as if the segment were damaged.
type segmentedLog struct {
	*wal.WAL
	files *segmentFiles
}

// StoreLog stores an entry.
func (l segmentedLog) StoreLog(entry *raft.Log) error { return l.explain(l.WAL.StoreLog(entry)) }

// StoreLogs stores entries.
func (l segmentedLog) StoreLogs(entries []*raft.Log) error {
	return l.explain(l.WAL.StoreLogs(entries))
}

func (l segmentedLog) explain(err error) error {
	if failed := l.files.failed.Load(); failed != nil && errors.Is(err, wal.ErrSealed) {
		return fmt.Errorf("the last segment of the log is complete, and the next one cannot be begun: %w", *failed)
	}
	return err
}

// OpenReader opens the file of a complete segment.
func (s *segmentFiles) OpenReader(dir, name string) (types.ReadableFile, error) {
	f, err := s.FS.OpenReader(dir, name)
	return f, s.note(f, err)
}

// OpenWriter opens the file of the last segment.
func (s *segmentFiles) OpenWriter(dir, name string) (types.WritableFile, error) {
	f, err := s.FS.OpenWriter(dir, name)
	return f, s.note(f, err)
}

func (s *segmentFiles) note(f io.Closer, err error) error {
	if err == nil && s.opening {
		s.opened = append(s.opened, f)
	}
	return err
}

// Create creates the file of a segment.
func (s *segmentFiles) Create(dir, name string, size uint64) (types.WritableFile, error) {
	f, err := s.FS.Create(dir, name, size)
	if err == nil {
		s.failed.Store(nil)
	} else {
		s.failed.Store(&err)
	}
	if err != nil && !errors.Is(err, os.ErrExist) {
		if gone := os.Remove(filepath.Join(dir, name)); !errors.Is(gone, os.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}
	return f, s.note(f, err)
}

// openWAL opens the WAL in dir. If it fails, nothing of it stays open: the library would keep the lock on the index of
// segments, and the next attempt would wait for that lock for ever. It would also keep the files of the segments, and a
// file that is open takes its room on the disk after its removal, too.
func openWAL(dir string, logger hclog.Logger) (*segmentedLog, error) {
	files := &segmentFiles{FS: fs.New(), opening: true}
	index := segmentIndex{&metadb.BoltMetaDB{}, files}
	w, err := wal.Open(dir, wal.WithLogger(logger), wal.WithMetaStore(index), wal.WithSegmentFiler(segment.NewFiler(dir, files)))
	if err != nil {
		for _, f := range files.opened {
			_ = f.Close() // only read
		}
		return nil, errors.Join(err, index.Close())
	}
	files.opening, files.opened = false, nil // before the first write, which may create a file
	if err := checkOrder(w); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return &segmentedLog{w, files}, nil
}

// checkIndex returns an error if a WAL has segments, but no index of them. The library would begin a new log and delete
// the segments.
func checkIndex(dir string) error {
	segments, err := filepath.Glob(filepath.Join(dir, "*.wal"))
	if err != nil || len(segments) == 0 {
		return err
	}
	switch info, err := os.Stat(filepath.Join(dir, walMeta)); {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%w: %s has segments, but %s is missing", ErrDamaged, dir, walMeta)
	case err != nil:
		return explain(err)
	case info.Size() == 0:
		return fmt.Errorf("%w: %s has segments, but %s is empty", ErrDamaged, dir, walMeta)
	}
	return nil
}

// checkOrder returns an error if a log ends before it begins. raft-wal ends a log before the first frame that it
// cannot read, also if that frame belongs to an entry that was deleted.
func checkOrder(w *wal.WAL) error {
	first, err := w.FirstIndex()
	if err != nil {
		return err
	}
	last, err := w.LastIndex()
	if err != nil {
		return err
	}
	if last > 0 && last < first {
		return fmt.Errorf("%w: its last entry, %d, is before its first entry, %d", ErrDamaged, last, first)
	}
	return nil
}
