package logstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
)

// Place is an entry of the log, or the end of a log.
type Place struct {
	Index uint64 `json:"index"`
	Term  uint64 `json:"term"` // 0: not known
}

// Survey is what the stores of a stopped member hold.
type Survey struct {
	Kind Kind `json:"kind,omitempty"` // "" if there is no log
	// First is the log's first entry, 0 if the log is empty. Last is the last entry of log and snapshots.
	First uint64 `json:"first"`
	Last  Place  `json:"last"`
	// Snapshot is the last entry in the newest snapshot that is whole.
	Snapshot Place `json:"snapshot"`
	// Members are the group as the newest entry about it has it.
	Members []raft.Server `json:"-"`
	// Damage has every fault that was found. If it is not empty, Last may be wrong.
	Damage []string `json:"damage,omitempty"`

	membersAt uint64 // the entry that Members are from
}

// member takes the members of an entry, unless those of a later one are known.
func (s *Survey) member(index uint64, c raft.Configuration) {
	if index >= s.membersAt {
		s.membersAt, s.Members = index, c.Servers
	}
}

// Watermark is what a member has acknowledged, as the file next to its stores has it.
type Watermark struct {
	Last    Place     `json:"last"` // the last entry
	Term    uint64    `json:"term"` // of the member
	Written time.Time `json:"written"`
}

// ReadSurvey reads the stores of a stopped member, each entry and snapshot, and changes nothing in them. A WAL can only
// be opened for writing, so a copy of it is read.
func ReadSurvey(ctx context.Context, dir string) (s Survey, err error) {
	fault := func(err error) { s.Damage = append(s.Damage, err.Error()) }
	kind, err := Detect(dir)
	if err != nil {
		return s, err
	}
	if err := checkIndex(filepath.Join(dir, walDir)); err != nil {
		fault(err)
		kind = ""
	}
	list, err := os.ReadDir(filepath.Join(dir, snapshotDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	for _, e := range list {
		if filepath.Ext(e.Name()) == unfinished {
			continue
		}
		meta, err := readSnapshot(ctx, filepath.Join(dir, snapshotDir, e.Name()))
		switch {
		case ctx.Err() != nil:
			return s, ctx.Err()
		case err != nil:
			fault(fmt.Errorf("snapshot %s: %w", e.Name(), err))
		case meta.Index > s.Snapshot.Index:
			s.Snapshot = Place{meta.Index, meta.Term}
			s.member(meta.ConfigurationIndex, meta.Configuration)
		}
	}
	if s.Kind = kind; kind != "" {
		log, closeLog, err := openForReading(dir, kind)
		if err == nil {
			err = errors.Join(s.readLog(ctx, log), closeLog())
		}
		if err := ctx.Err(); err != nil {
			return s, err
		}
		if err != nil {
			fault(err)
		}
	}
	if s.First > s.Snapshot.Index+1 {
		fault(fmt.Errorf("the snapshots end at entry %d and the log begins at %d", s.Snapshot.Index, s.First))
	}
	if s.Snapshot.Index >= s.Last.Index {
		s.Last = s.Snapshot
	}
	return s, nil
}

// readLog reads all entries of a log. The snapshots were read before.
func (s *Survey) readLog(ctx context.Context, log raft.LogStore) (err error) {
	defer func() {
		if p := recover(); p != nil { // DecodeConfiguration panics
			err = fmt.Errorf("%w: %v", ErrDamaged, p)
		}
	}()
	first, err := log.FirstIndex()
	if err != nil {
		return err
	}
	last, err := log.LastIndex()
	if err != nil || last == 0 {
		return err
	}
	s.First = first
	for index := first; index <= last; index++ {
		var l raft.Log
		if err := log.GetLog(index, &l); err != nil {
			if errors.Is(err, raft.ErrLogNotFound) {
				if index <= s.Snapshot.Index { // a snapshot that another voter sent leaves earlier entries, with a gap
					continue
				}
				err = fmt.Errorf("%w: entry %d is missing", ErrDamaged, index)
			}
			return err
		}
		s.Last = Place{index, l.Term}
		if l.Type == raft.LogConfiguration {
			s.member(index, raft.DecodeConfiguration(l.Data))
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// openForReading opens a log so that its files stay as they are.
func openForReading(dir string, kind Kind) (log raft.LogStore, closeLog func() error, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: the log in %s cannot be opened: %v", ErrDamaged, dir, p)
		}
	}()
	if kind == BoltDB {
		path := filepath.Join(dir, boltFile)
		if err := checkPages(path); err != nil {
			return nil, nil, err
		}
		db, err := raftboltdb.New(raftboltdb.Options{
			Path: path, MsgpackUseNewTimeFormat: true,
			BoltOptions: &bbolt.Options{ReadOnly: true, Timeout: time.Second, FreelistType: bbolt.FreelistMapType},
		})
		if err != nil {
			return nil, nil, fmt.Errorf("open the log %s: %w", path, explain(err))
		}
		return checked(db, db), db.Close, nil
	}
	tmp, err := os.MkdirTemp("", "coopr-survey-")
	if err != nil {
		return nil, nil, err
	}
	remove := func() error { return os.RemoveAll(tmp) }
	if err := os.CopyFS(tmp, os.DirFS(filepath.Join(dir, walDir))); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("copy the log: %w", err), remove())
	}
	if err := checkPages(filepath.Join(tmp, walMeta)); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%s: %w", filepath.Join(dir, walDir), err), remove())
	}
	w, err := openWAL(tmp, hclog.NewNullLogger())
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("open the log %s: %w", filepath.Join(dir, walDir), err), remove())
	}
	closeLog = func() error { return errors.Join(w.Close(), remove()) }
	return checked(w, w), closeLog, nil
}

// checked returns the log with checks of its entries. If it is not known from where on they have checksums, those
// that have one are checked.
func checked(log raft.LogStore, stable raft.StableStore) raft.LogStore {
	from, err := number(stable, keySummed)
	if err != nil || from == 0 {
		from = 1<<64 - 1
	}
	return &checkedLog{LogStore: log, summed: from}
}

// readSnapshot checks a snapshot and returns its description.
func readSnapshot(ctx context.Context, dir string) (m raft.SnapshotMeta, err error) {
	text, err := os.ReadFile(filepath.Join(dir, descriptionFile))
	if err != nil {
		return m, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("%w: its description: %w", ErrDamaged, err)
	}
	return m, scrubSnapshot(ctx, dir, nil)
}

// ReadWatermark reads the watermark of the stores in dir. Its error wraps fs.ErrNotExist if there is none.
func ReadWatermark(dir string) (w Watermark, err error) {
	f, err := os.Open(filepath.Clean(dir) + watermarkSuffix)
	if err != nil {
		return w, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	t, found, err := readMark(f, slog.New(slog.DiscardHandler))
	if err != nil {
		return w, err
	}
	if !found {
		return w, fmt.Errorf("%s: %w: it has no record of the end of the log", f.Name(), ErrDamaged)
	}
	info, err := f.Stat()
	if err != nil {
		return w, err
	}
	return Watermark{Last: Place{t.now.last, t.now.lastTerm}, Term: t.now.term, Written: info.ModTime()}, nil
}
