package raftgroup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coopr/coopr/consensus/logstore"
	"github.com/coopr/coopr/engine/problem"
)

// tracker wraps the FSM and records the last entry that the FSM has applied. The library's own applied
// index counts the entries queued for the FSM, not those that the FSM has applied.
type tracker struct {
	inner     raft.FSM
	log       *logstore.Guard
	snapshots *watchedSnapshots
	index     atomic.Uint64
	conf      atomic.Pointer[committedConfig]
	waiting   atomic.Int64
	applied   atomic.Uint64 // entries that the FSM has applied since the start
	applying  atomic.Int64  // nanoseconds that it took for them
	mu        sync.Mutex
	moved     chan struct{}
	refused   error // why the FSM refused snapshots before the member had started
}

// committedConfig is the group's configuration as of the entry index.
type committedConfig struct {
	index uint64
	raft.Configuration
}

func newTracker(inner raft.FSM, snapshots *watchedSnapshots, log *logstore.Guard) *tracker {
	return &tracker{inner: inner, log: log, snapshots: snapshots, moved: make(chan struct{})}
}

// fsm returns the FSM for the library, which detects a BatchingFSM by its type.
func (t *tracker) fsm() raft.FSM {
	if b, ok := t.inner.(raft.BatchingFSM); ok {
		return &batchTracker{tracker: t, batch: b}
	}
	return t
}

var (
	_ raft.ConfigurationStore = (*tracker)(nil)
	_ raft.BatchingFSM        = (*batchTracker)(nil)
)

func (t *tracker) advance(index uint64) {
	t.index.Store(index)
	if t.waiting.Load() > 0 {
		t.mu.Lock()
		close(t.moved)
		t.moved = make(chan struct{})
		t.mu.Unlock()
	}
}

// wait returns when the FSM has applied every entry up to index.
func (t *tracker) wait(ctx context.Context, stopped <-chan struct{}, index uint64) error {
	if t.index.Load() >= index {
		return nil
	}
	t.waiting.Add(1)
	defer t.waiting.Add(-1)
	for {
		t.mu.Lock()
		moved := t.moved
		t.mu.Unlock()
		if t.index.Load() >= index {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		case <-stopped:
			return ErrShutdown
		}
	}
}

// Apply passes an entry to the FSM. It refuses every entry after a damaged one was read, because the
// damaged one is missing. Such an entry may be committed all the same.
func (t *tracker) Apply(l *raft.Log) any {
	if err := t.log.Damaged(); err != nil {
		return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	}
	began := time.Now()
	r := t.inner.Apply(l)
	t.took(1, began)
	t.advance(l.Index)
	return r
}

// took counts entries that the FSM has applied, and the time since it began with them.
func (t *tracker) took(entries int, began time.Time) {
	t.applied.Add(uint64(entries))
	t.applying.Add(int64(time.Since(began)))
}

// StoreConfiguration passes the group's new configuration to an FSM that is a raft.ConfigurationStore.
func (t *tracker) StoreConfiguration(index uint64, c raft.Configuration) {
	if t.log.Damaged() != nil {
		return
	}
	if s, ok := t.inner.(raft.ConfigurationStore); ok {
		s.StoreConfiguration(index, c)
	}
	t.conf.Store(&committedConfig{index, c})
	t.advance(index)
}

// Snapshot passes the call to the FSM, unless an entry may be missing in its state.
func (t *tracker) Snapshot() (raft.FSMSnapshot, error) {
	if err := t.log.Damaged(); err != nil {
		return nil, fmt.Errorf("the state may lack a log entry, so no snapshot is made: %w", err)
	}
	return t.inner.Snapshot()
}

// Restore passes the call to the FSM. The library does not pass the index of the snapshot; it is the
// index of the newest snapshot that is open during the call.
func (t *tracker) Restore(r io.ReadCloser) error {
	m := t.snapshots.newestOpen() // before the call, because the FSM closes r
	if err := t.inner.Restore(r); err != nil {
		if m != nil {
			err = fmt.Errorf("snapshot %s: %w", m.ID, err)
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		t.refused = errors.Join(t.refused, err)
		return err
	}
	if m != nil {
		t.conf.Store(&committedConfig{m.ConfigurationIndex, m.Configuration})
		t.advance(m.Index)
		// The library notes the snapshot as the end of its log before it answers a request for a vote.
		t.log.Restored(m.Index, m.Term)
	}
	return nil
}

// explain returns the error of a start that failed. If the FSM has refused a snapshot, that is the reason. A snapshot
// of a newer build is not damaged: this build would refuse that of the leader, too.
func (t *tracker) explain(err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.refused == nil:
		return err
	case errors.Is(t.refused, problem.Unsupported):
		return fmt.Errorf("%w: %w", ErrUnusable, t.refused)
	}
	return fmt.Errorf("%w: %w: %w", ErrUnusable, logstore.ErrDamaged, t.refused)
}

type batchTracker struct {
	*tracker
	batch raft.BatchingFSM
}

// ApplyBatch is Apply for several entries. The library includes configuration entries in the batch.
func (t *batchTracker) ApplyBatch(logs []*raft.Log) []any {
	if err := t.log.Damaged(); err != nil {
		out := make([]any, len(logs))
		for i := range out {
			out[i] = fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
		}
		return out
	}
	began := time.Now()
	r := t.batch.ApplyBatch(logs)
	t.took(len(logs), began)
	for _, l := range logs {
		if l.Type == raft.LogConfiguration {
			t.conf.Store(&committedConfig{l.Index, raft.DecodeConfiguration(l.Data)})
		}
	}
	if n := len(logs); n > 0 {
		t.advance(logs[n-1].Index)
	}
	return r
}

// watchedSnapshots is a snapshot store that records which snapshots are open for reading.
type watchedSnapshots struct {
	raft.SnapshotStore
	latest atomic.Int64 // when the newest snapshot was made, in Unix milliseconds; 0: unknown

	mu   sync.Mutex
	open map[*watchedReader]*raft.SnapshotMeta
}

type watchedReader struct {
	io.ReadCloser
	of *watchedSnapshots
}

func (w *watchedSnapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, rc, err := w.SnapshotStore.Open(id)
	if err != nil {
		return meta, rc, err
	}
	r := &watchedReader{ReadCloser: rc, of: w}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open == nil {
		w.open = make(map[*watchedReader]*raft.SnapshotMeta)
	}
	w.open[r] = meta
	return meta, r, nil
}

func (r *watchedReader) Close() error {
	r.of.mu.Lock()
	delete(r.of.open, r)
	r.of.mu.Unlock()
	return r.ReadCloser.Close()
}

func (w *watchedSnapshots) newestOpen() *raft.SnapshotMeta {
	w.mu.Lock()
	defer w.mu.Unlock()
	var newest *raft.SnapshotMeta
	for _, m := range w.open {
		if newest == nil || m.Index > newest.Index {
			newest = m
		}
	}
	return newest
}

// AppliedIndex returns the index of the last entry that this member's FSM has applied. Entries that
// the FSM never receives (a new leader's first entry, barriers) do not advance it.
func (g *Group) AppliedIndex() uint64 { return g.state.index.Load() }

// WaitApplied returns when this member's FSM has applied every entry up to index. The caller must know
// that index is committed.
func (g *Group) WaitApplied(ctx context.Context, index uint64) error {
	if g.state.index.Load() >= index {
		return nil
	}
	// Wait for the library first: then this member knows that the entries are committed.
	if g.raft.AppliedIndex() < index {
		if err := waitQueued(ctx, g.raft, g.done, index); err != nil {
			return fmt.Errorf("wait for index %d: %w", index, err)
		}
	}
	// Skip the last entries if the FSM never receives them.
	want := index
	for ; want > g.state.index.Load(); want-- {
		var l raft.Log
		err := g.cfg.Stores.Log.GetLog(want, &l)
		if damaged := g.cfg.Stores.Guard().Damaged(); damaged != nil {
			return fmt.Errorf("wait for index %d: %w", index, damaged)
		}
		if errors.Is(err, raft.ErrLogNotFound) {
			// A snapshot covers the entry, and the FSM has either made that snapshot or restored it.
			want = 0
			break
		}
		if err != nil {
			return fmt.Errorf("wait for index %d: %w", index, err)
		}
		if l.Type == raft.LogCommand || l.Type == raft.LogConfiguration {
			break
		}
	}
	if err := g.state.wait(ctx, g.done, want); err != nil {
		return fmt.Errorf("wait for index %d: %w", index, err)
	}
	return nil
}
