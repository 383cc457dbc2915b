package logstore

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/coopr/coopr/internal/hclogbridge"
)

// Kind names a way to keep the log.
type Kind string

// The kinds of log store.
const (
	// BoltDB keeps log and votes in one bbolt file. It is the default and the most widely used kind.
	BoltDB Kind = "boltdb"
	// WAL keeps the log in append-only segments. It is several times faster than BoltDB, and younger.
	WAL Kind = "wal"
	// Memory keeps all data in memory, for `dev` mode and tests. No data survives a restart.
	Memory Kind = "memory"
)

// ParseKind reads a kind from configuration; the empty string means BoltDB.
func ParseKind(s string) (Kind, error) {
	switch k := Kind(strings.ToLower(strings.TrimSpace(s))); k {
	case "":
		return BoltDB, nil
	case BoltDB, WAL, Memory:
		return k, nil
	}
	return "", fmt.Errorf("log store %q is not known: use %s, %s or %s", s, BoltDB, WAL, Memory)
}

// Names of the files and directories that Open creates inside its directory.
const (
	boltFile = "raft.db"
	walDir   = "wal"
	walMeta  = "wal-meta.db"
	lockFile = "raft.lock"
	// snapshotDir is where raft.FileSnapshotStore keeps its snapshots.
	snapshotDir = "snapshots"
	// watermarkSuffix is appended to the name of the stores' directory for the name of the watermark file;
	// see watermark.
	watermarkSuffix = "-watermark"
)

// Defaults of Options.
const (
	DefaultDeadline        = 3 * time.Second
	DefaultMaxFailures     = 3
	DefaultCacheEntries    = 1024
	DefaultRetainSnapshots = 2
)

// Options tune a store. The zero value is right for production.
type Options struct {
	// Logger receives the stores' own messages; nil discards them.
	Logger *slog.Logger
	// Deadline is how long one write may take before it is abandoned. 0 means
	// DefaultDeadline; a negative value turns the guard off.
	Deadline time.Duration
	// MaxFailures is the number of failed writes in a row after which the store is
	// sick (see Guard). 0 means DefaultMaxFailures.
	MaxFailures int
	// CacheEntries is how many recent entries stay in memory, so that sending and
	// applying them needs no reads from disk. 0 means DefaultCacheEntries.
	CacheEntries int
	// RetainSnapshots is how many snapshots are kept. 0 means DefaultRetainSnapshots.
	RetainSnapshots int
	// NoSync omits fsync with BoltDB. A power cut then loses acknowledged votes and
	// entries, so it is only for measurements and throw-away meshes.
	NoSync bool
	// Wrap, when set, wraps the store below the guard: fault injection
	// hangs, fails or delays writes here.
	Wrap func(raft.LogStore, raft.StableStore) (raft.LogStore, raft.StableStore)
	// Watermark is the file in which FromParts keeps a watermark; nil means none. Open uses a file of its own.
	Watermark MarkFile
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Deadline == 0 {
		o.Deadline = DefaultDeadline
	}
	if o.MaxFailures <= 0 {
		o.MaxFailures = DefaultMaxFailures
	}
	if o.CacheEntries <= 0 {
		o.CacheEntries = DefaultCacheEntries
	}
	if o.RetainSnapshots <= 0 {
		o.RetainSnapshots = DefaultRetainSnapshots
	}
	return o
}

// Stores are the stores of one Raft member. Log and Stable are guarded.
type Stores struct {
	Log       raft.LogStore
	Stable    raft.StableStore
	Snapshots raft.SnapshotStore

	guard  *Guard
	dir    string
	close  func() error
	closed chan struct{}
}

// Open opens or creates the stores in dir. It fails with ErrInUse when another
// process has them open, and with ErrOtherKind when dir holds a log of another
// kind. dir is ignored for Memory.
func Open(dir string, kind Kind, options Options) (*Stores, error) {
	o := options.withDefaults()
	if kind == Memory {
		mem := raft.NewInmemStore()
		return FromParts(mem, mem, NewMemorySnapshots(options.withDefaults().RetainSnapshots), options)
	}
	if dir == "" {
		return nil, fmt.Errorf("log store %s needs a directory", kind)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the log store's directory: %w", explain(err))
	}
	lock, err := lockDir(filepath.Join(dir, lockFile))
	if err != nil {
		return nil, err
	}
	s, err := openDisk(dir, kind, o)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	inner := s.close
	s.close = func() error { return errors.Join(inner(), lock.Close()) }
	return s, nil
}

func openDisk(dir string, kind Kind, o Options) (*Stores, error) {
	if found, err := Detect(dir); err != nil {
		return nil, err
	} else if found != "" && found != kind {
		return nil, fmt.Errorf("%w: %s holds a %s log, the configuration asks for %s", ErrOtherKind, dir, found, kind)
	}
	log, stable, closeLog, err := openLog(dir, kind, o)
	if err != nil {
		return nil, err
	}
	files, err := raft.NewFileSnapshotStoreWithLogger(dir, o.RetainSnapshots, hclogbridge.New(o.Logger).Named("snapshots"))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the snapshots in %s: %w", dir, explain(err)), closeLog())
	}
	if err := dropUnfinished(dir); err != nil {
		o.Logger.Warn("a snapshot that was never finished cannot be removed", "error", err)
	}
	snaps := &fileSnapshots{SnapshotStore: files, dir: dir, logger: o.Logger}
	o.Watermark = nil
	closeAll := closeLog
	if !o.NoSync { // otherwise a power cut loses entries, and that is accepted
		f, err := openMark(dir)
		if err != nil {
			return nil, errors.Join(err, closeLog())
		}
		o.Watermark = f
		closeAll = func() error { return errors.Join(closeLog(), f.Close()) }
	}
	s, err := FromParts(log, stable, snaps, o)
	if err != nil {
		return nil, errors.Join(err, closeAll())
	}
	s.dir, s.close = dir, closeAll
	return s, nil
}

func openLog(dir string, kind Kind, o Options) (log raft.LogStore, stable raft.StableStore, closeLog func() error, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: the log in %s cannot be opened: %v", ErrDamaged, dir, p)
		}
	}()
	switch kind {
	case BoltDB:
		path := filepath.Join(dir, boltFile)
		if err := checkPages(path); err != nil {
			return nil, nil, nil, fmt.Errorf("open the log: %w", err)
		}
		// The free list is kept as a map and not written on each commit. bbolt
		// rebuilds it on opening, and commits stay fast when the file has grown.
		db, err := raftboltdb.New(raftboltdb.Options{
			Path: path,
			BoltOptions: &bbolt.Options{
				Timeout:        time.Second,
				NoFreelistSync: true,
				FreelistType:   bbolt.FreelistMapType,
			},
			NoSync:                  o.NoSync,
			MsgpackUseNewTimeFormat: true,
		})
		if err != nil {
			return nil, nil, nil, fmt.Errorf("open the log %s: %w", path, unopened(err))
		}
		return db, db, db.Close, nil
	case WAL:
		path := filepath.Join(dir, walDir)
		if err := os.MkdirAll(path, 0o700); err != nil {
			return nil, nil, nil, fmt.Errorf("make the log's directory: %w", explain(err))
		}
		if err := errors.Join(checkIndex(path), checkPages(filepath.Join(path, walMeta))); err != nil {
			return nil, nil, nil, fmt.Errorf("open the log: %w", err)
		}
		w, err := openWAL(path, hclogbridge.New(o.Logger).Named("wal"))
		if err != nil {
			return nil, nil, nil, fmt.Errorf("open the log %s: %w", path, unopened(err))
		}
		return w, w, w.Close, nil
	default:
	}
	return nil, nil, nil, fmt.Errorf("log store %q cannot be opened from a directory", kind)
}

// unopened returns the error of a log that cannot be opened, as ErrDamaged if the reason is what the files hold, or that
// one of them is missing.
func unopened(err error) error {
	if errno := syscall.Errno(0); !errors.Is(err, fs.ErrNotExist) && (errors.As(err, &errno) || errors.Is(err, bbolterrors.ErrTimeout)) {
		return explain(err)
	}
	return fmt.Errorf("%w: %w", ErrDamaged, err)
}

// FromParts wraps the given parts with the guard and the cache. Tests that crash and
// restart a member keep the raw parts and build new Stores from them. Close
// leaves the parts open.
func FromParts(log raft.LogStore, stable raft.StableStore, snapshots raft.SnapshotStore, options Options) (*Stores, error) {
	o := options.withDefaults()
	if o.Wrap != nil {
		log, stable = o.Wrap(log, stable)
	}
	summed, err := summedFrom(log, stable)
	if err != nil {
		return nil, err
	}
	recorder := &errorRecorder{LogStore: &checkedLog{LogStore: log, summed: summed}}
	cached, err := raft.NewLogCache(o.CacheEntries, recorder)
	if err != nil {
		return nil, fmt.Errorf("make the log cache: %w", err)
	}
	g := newGuard(cached, recorder, stable, snapshots, o)
	if o.Watermark != nil {
		t, found, err := readMark(o.Watermark, o.Logger)
		if err != nil {
			return nil, err
		}
		if err := t.compare(found, log, stable, snapshots); err != nil {
			return nil, err
		}
		g.watermark = t
	}
	return &Stores{Log: g, Stable: g, Snapshots: snapshots, guard: g, closed: make(chan struct{}),
		close: func() error { return nil }}, nil
}

// Guard returns the guard, which reports the health of the disk and stops a member whose disk is sick.
func (s *Stores) Guard() *Guard { return s.guard }

// Dir returns the directory of the stores. It is empty for stores in memory.
func (s *Stores) Dir() string { return s.dir }

// HasState reports whether the stores hold the state of a member.
func (s *Stores) HasState() (bool, error) {
	ok, err := raft.HasExistingState(s.Log, s.Stable, s.Snapshots)
	if err != nil {
		return false, fmt.Errorf("look for Raft state: %w", err)
	}
	return ok, nil
}

// Close closes the stores after their Raft has been shut down. When a write
// still hangs, Close returns ErrStuck at once, and the stores are closed as soon as that
// write returns; until then the directory stays locked.
func (s *Stores) Close() error {
	return s.guard.close(func() error {
		defer close(s.closed)
		return s.close()
	})
}

// Closed returns a channel that is closed when the stores are closed. A hanging write may delay that
// beyond the return of Close.
func (s *Stores) Closed() <-chan struct{} { return s.closed }

// Detect returns the kind of log that dir holds, or "" when it holds none.
func Detect(dir string) (Kind, error) {
	var found []Kind
	for path, kind := range map[string]Kind{
		filepath.Join(dir, boltFile):        BoltDB,
		filepath.Join(dir, walDir, walMeta): WAL,
	} {
		if _, err := os.Stat(path); err == nil {
			found = append(found, kind)
		} else if !errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("look for a log in %s: %w", dir, err)
		}
	}
	switch len(found) {
	case 0:
		return "", nil
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("%w: %s holds both a %s and a %s log; move the unwanted one away", ErrOtherKind, dir, BoltDB, WAL)
}
