package state

import (
	"errors"
	"fmt"
	"io"

	"github.com/hashicorp/raft"

	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/consensus/state/view"
)

// Snapshot returns the current state. It copies nothing, because writers copy tables and plans
// before they change them.
func (m *Machine) Snapshot() (raft.FSMSnapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.Halted(); err != nil {
		return nil, fmt.Errorf("the state machine has halted and makes no snapshot: %w", err)
	}
	return snapshot{m.View()}, nil
}

// View returns the current state.
func (m *Machine) View() *View {
	// The index is read first: a view may be newer than its index, never older.
	index, _ := m.events.wait()
	return view.Of(m.db.Load().Txn(false), index).Counting(m.Counts)
}

type snapshot struct{ view *View }

func (s snapshot) Release() {}

// Persist writes the snapshot.
func (s snapshot) Persist(sink raft.SnapshotSink) error {
	if err := s.view.Write(sink); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

// Restore replaces the whole state with a snapshot's. Nothing changes when the
// snapshot is damaged.
func (m *Machine) Restore(in io.ReadCloser) error {
	defer in.Close()
	db, index, err := table.Read(in)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.db.Store(db)
	m.nodes.Clear()
	m.census.reset()
	m.counts.Count(db.Txn(false))
	m.terms.forget()
	m.checkpoints.forget()
	m.events.reset(index)
	m.tell(Batch{Index: index, Restored: true, Agents: true})
	return nil
}

// Check reads a whole snapshot. It returns the snapshot's index and the number of
// records in each table.
func Check(in io.Reader) (index uint64, records map[string]int, err error) {
	db, index, err := table.Read(in)
	if err != nil {
		return 0, nil, err
	}
	records = map[string]int{}
	txn := db.Txn(false)
	for name := range table.Schema().Tables {
		it, err := txn.Get(name, "id")
		if err != nil {
			return 0, nil, err
		}
		for raw := it.Next(); raw != nil; raw = it.Next() {
			records[name]++
			if log, ok := raw.(*table.AuditRow); ok {
				records[name] = int(log.Trail.Stats().Records)
			}
		}
	}
	return index, records, nil
}
