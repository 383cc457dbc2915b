package state

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-memdb"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Sums are the digests of a state.
type Sums = table.Sums

// keepCheckpoints is the number of checkpoints that a machine keeps.
const keepCheckpoints = 3

// Checkpoint is the state as one entry left it.
type Checkpoint struct {
	// Index is the index of the entry.
	Index uint64

	at   time.Time // when this machine applied the entry
	once sync.Once
	txn  *memdb.Txn // nil once the sums are known
	sums Sums
	err  error
}

// Sums returns the digests of the state. The first call computes them, from a state that no later
// entry changes, so that entries are applied meanwhile.
func (c *Checkpoint) Sums() (Sums, error) {
	c.once.Do(func() {
		c.sums, c.err = table.Digest(c.txn)
		c.txn = nil
	})
	return c.sums, c.err
}

// checkpoints holds the latest checkpoints, oldest first. It is not part of the state.
type checkpoints struct {
	mu   sync.Mutex
	list []*Checkpoint
}

func (c *checkpoints) add(index uint64, txn *memdb.Txn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.list) == keepCheckpoints {
		c.list = append([]*Checkpoint(nil), c.list[1:]...)
	}
	c.list = append(c.list, &Checkpoint{Index: index, at: time.Now(), txn: txn})
}

// forget drops all checkpoints. It is called after a restore, because they are not of the new state.
func (c *checkpoints) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = nil
}

// Checkpoint returns the state as the entry at this index left it. It returns nil if the entry is not one
// of the last keepCheckpoints checkpoints that this machine has applied.
func (m *Machine) Checkpoint(index uint64) *Checkpoint {
	m.checkpoints.mu.Lock()
	defer m.checkpoints.mu.Unlock()
	for _, c := range m.checkpoints.list {
		if c.Index == index {
			return c
		}
	}
	return nil
}

// LastCheckpoint returns the index of the latest checkpoint, and when this machine applied it. Both are
// zero if there was none since the machine was made or restored.
func (m *Machine) LastCheckpoint() (index uint64, at time.Time) {
	m.checkpoints.mu.Lock()
	defer m.checkpoints.mu.Unlock()
	if n := len(m.checkpoints.list); n > 0 {
		return m.checkpoints.list[n-1].Index, m.checkpoints.list[n-1].at
	}
	return 0, time.Time{}
}

// diverged records a member whose state differs from that of the others, or does not any more, and adds an event.
func (a agents) diverged(d *pb.ReportDivergence) Answer {
	if a.view().Understands(logformat.DivergenceLevel) {
		a.differs(d.Server, !d.Agrees)
	}
	e := model.Event{Type: "voters.differ", Message: fmt.Sprintf("no majority of the voters has the same state at entry %d", d.Index)}
	if d.Server != "" {
		e.Type, e.Subject = "voter.differs", d.Server
		if n := table.Get[model.Agent](a.txn, table.Agents, "id", d.Server); n != nil {
			e.Subject = n.Name
		}
		e.Message = fmt.Sprintf("its state at entry %d is not that of a majority of the voters", d.Index)
	}
	if d.Agrees {
		e.Type, e.Message = "voter.agrees", fmt.Sprintf("its state at entry %d is that of a majority of the voters again", d.Index)
	}
	if len(d.Tables) > 0 {
		e.Message += "; tables that differ: " + strings.Join(d.Tables, ", ")
	}
	if d.Quarantine {
		e.Type = "voter.quarantined"
	}
	a.event(e)
	return Answer{Subject: d.Server}
}

// differs records whether an agent's copy of the state differs.
func (a agents) differs(id string, differs bool) {
	m := table.Mesh(a.txn)
	at, known := slices.BinarySearch(m.Differing, id)
	switch {
	case id == "" || known == differs:
		return
	case differs:
		m.Differing = slices.Insert(slices.Clone(m.Differing), at, id)
	default:
		m.Differing = slices.Delete(slices.Clone(m.Differing), at, at+1)
	}
	m.ID = table.TheMeta
	a.put(table.Meta, &m)
}
