package logstore

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/hashicorp/raft"
)

// MemorySnapshots keeps snapshots in memory by the same rules as a file store: a snapshot exists once
// its sink is closed, the newest is the one with the highest term and index,
// and the newest few are retained. The library's own in-memory store holds only the snapshot that was
// created last, even if an older one is complete and the last one is not. A member that restarts on it
// finds a gap between snapshot and log.
type MemorySnapshots struct {
	mu     sync.Mutex
	retain int
	kept   []*memorySnapshot // newest first
	number int
}

type memorySnapshot struct {
	meta raft.SnapshotMeta
	data []byte
}

// NewMemorySnapshots returns a store that keeps the newest retain snapshots.
func NewMemorySnapshots(retain int) *MemorySnapshots {
	return &MemorySnapshots{retain: max(retain, 1)}
}

var _ raft.SnapshotStore = (*MemorySnapshots)(nil)

// Create begins a snapshot.
func (m *MemorySnapshots) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration,
	configurationIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	if version != raft.SnapshotVersionMax {
		return nil, fmt.Errorf("snapshots of version %d are not supported", version)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.number++
	return &memorySink{to: m, meta: raft.SnapshotMeta{
		Version: version, ID: fmt.Sprintf("%d-%d-%d", term, index, m.number),
		Index: index, Term: term,
		Configuration: configuration.Clone(), ConfigurationIndex: configurationIndex,
	}}, nil
}

// List returns the snapshots, the newest first.
func (m *MemorySnapshots) List() ([]*raft.SnapshotMeta, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []*raft.SnapshotMeta
	for _, s := range m.kept {
		meta := s.meta
		out = append(out, &meta)
	}
	return out, nil
}

// Open opens a snapshot for reading.
func (m *MemorySnapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.kept {
		if s.meta.ID == id {
			meta := s.meta
			return &meta, io.NopCloser(bytes.NewReader(s.data)), nil
		}
	}
	return nil, nil, fmt.Errorf("there is no snapshot %s", id)
}

func (m *MemorySnapshots) keep(s *memorySnapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept = append(m.kept, s)
	slices.SortStableFunc(m.kept, func(a, b *memorySnapshot) int {
		return cmp.Or(cmp.Compare(b.meta.Term, a.meta.Term), cmp.Compare(b.meta.Index, a.meta.Index))
	})
	m.kept = m.kept[:min(len(m.kept), m.retain)]
}

// memorySink is a snapshot that is being written.
type memorySink struct {
	to   *MemorySnapshots
	meta raft.SnapshotMeta
	buf  bytes.Buffer
	over bool
}

func (s *memorySink) ID() string                  { return s.meta.ID }
func (s *memorySink) Write(p []byte) (int, error) { return s.buf.Write(p) }

func (s *memorySink) Close() error {
	if s.over {
		return nil
	}
	s.over = true
	s.meta.Size = int64(s.buf.Len())
	s.to.keep(&memorySnapshot{meta: s.meta, data: s.buf.Bytes()})
	return nil
}

func (s *memorySink) Cancel() error {
	s.over = true
	return nil
}
