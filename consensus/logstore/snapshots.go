package logstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/hashicorp/raft"
)

// The library keeps a snapshot in a directory of two files. The checksum in the description covers the data, and nothing
// covers the description, which has the snapshot's index, its term and the group. So a file with the description's
// checksum is added. A snapshot of an older build has none.
const (
	descriptionFile = "meta.json"
	dataFile        = "state.bin"
	sumFile         = "meta.crc"
	unfinished      = ".tmp" // the end of the name of a snapshot that is being written
)

// fileSnapshots are the snapshots on the disk. Those whose description is damaged are left out.
type fileSnapshots struct {
	raft.SnapshotStore
	dir    string
	logger *slog.Logger
	warned sync.Map // ids of snapshots that are left out
}

// dropUnfinished removes the snapshots that a crash has left unfinished. The library leaves them on the disk.
func dropUnfinished(dir string) error {
	paths, err := filepath.Glob(filepath.Join(dir, snapshotDir, "*"+unfinished))
	for _, path := range paths {
		err = errors.Join(err, os.RemoveAll(path))
	}
	return err
}

// List returns the snapshots whose description is whole. It fails if the description of one may not be read, as that
// one may be whole.
func (s *fileSnapshots) List() ([]*raft.SnapshotMeta, error) {
	dirs, err := filepath.Glob(filepath.Join(s.dir, snapshotDir, "*", descriptionFile))
	if err != nil {
		return nil, err
	}
	for _, path := range dirs {
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrPermission) {
			return nil, explain(err)
		}
		if err == nil {
			_ = f.Close() // only opened
		}
	}
	list, err := s.SnapshotStore.List()
	if err != nil {
		return nil, err
	}
	var out []*raft.SnapshotMeta
	for _, m := range list {
		if err := checkDescription(filepath.Join(s.dir, snapshotDir, m.ID)); err != nil {
			if _, warned := s.warned.LoadOrStore(m.ID, true); !warned {
				s.logger.Warn("a snapshot is left out", "snapshot", m.ID, "error", err)
			}
			continue
		}
		out = append(out, m)
	}
	return out, nil
}

// checkDescription compares the description of the snapshot in dir with its checksum, if it has one.
func checkDescription(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, descriptionFile))
	if err != nil {
		return err
	}
	sum, err := os.ReadFile(filepath.Join(dir, sumFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if len(sum) == 0 {
		return nil // a crash came before it was written
	}
	if len(sum) != 4 || binary.BigEndian.Uint32(sum) != crc32.Checksum(text, castagnoli) {
		return fmt.Errorf("%w: the checksum of its description does not match", ErrDamaged)
	}
	return nil
}

// Create begins a snapshot.
func (s *fileSnapshots) Create(version raft.SnapshotVersion, index, term uint64, c raft.Configuration, configIndex uint64,
	t raft.Transport) (raft.SnapshotSink, error) {
	sink, err := s.SnapshotStore.Create(version, index, term, c, configIndex, t)
	if err != nil {
		return nil, err
	}
	return &fileSink{sink, filepath.Join(s.dir, snapshotDir)}, nil
}

type fileSink struct {
	raft.SnapshotSink
	dir string
}

// Close finishes the snapshot and adds the checksum of its description. A crash in between leaves a snapshot without
// one, like that of an older build.
func (s *fileSink) Close() error {
	if err := s.SnapshotSink.Close(); err != nil {
		return err
	}
	dir := filepath.Join(s.dir, s.ID())
	text, err := os.ReadFile(filepath.Join(dir, descriptionFile))
	if err != nil {
		return fmt.Errorf("read the snapshot's description: %w", err)
	}
	sum := binary.BigEndian.AppendUint32(nil, crc32.Checksum(text, castagnoli))
	f, err := os.OpenFile(filepath.Join(dir, sumFile), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("write the checksum of the snapshot's description: %w", explain(err))
	}
	_, err = f.Write(sum)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write the checksum of the snapshot's description: %w", explain(err))
	}
	return nil
}
