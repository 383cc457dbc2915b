package grouptest

import (
	"encoding/json"
	"io"
	"sync"

	"github.com/hashicorp/raft"
)

// Journal is a state machine that keeps its entries in order. Apply returns the number of entries so
// far.
type Journal struct {
	mu      sync.Mutex
	entries []string
	set     map[string]bool
}

var _ raft.FSM = (*Journal)(nil)

// Apply adds an entry.
func (j *Journal) Apply(l *raft.Log) any {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, string(l.Data))
	if j.set == nil {
		j.set = make(map[string]bool)
	}
	j.set[string(l.Data)] = true
	return len(j.entries)
}

// Entries returns a copy of the applied entries.
func (j *Journal) Entries() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]string(nil), j.entries...)
}

// Has reports whether an entry has been applied.
func (j *Journal) Has(entry string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.set[entry]
}

// Snapshot copies the entries.
func (j *Journal) Snapshot() (raft.FSMSnapshot, error) { return journalSnapshot(j.Entries()), nil }

// Restore replaces the entries.
func (j *Journal) Restore(r io.ReadCloser) error {
	defer func() { _ = r.Close() }() // required by raft.FSM; r is only read, so the error does not matter
	var entries []string
	if err := json.NewDecoder(r).Decode(&entries); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries, j.set = entries, make(map[string]bool, len(entries))
	for _, e := range entries {
		j.set[e] = true
	}
	return nil
}

type journalSnapshot []string

func (s journalSnapshot) Persist(sink raft.SnapshotSink) error {
	if err := json.NewEncoder(sink).Encode([]string(s)); err != nil {
		_ = sink.Cancel()
		return err
	}
	return sink.Close()
}

func (journalSnapshot) Release() {}
