package state

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// maxTerms is the number of terms whose beginnings a machine keeps.
const maxTerms = 64

// terms records when this machine applied the first entry of each new term. It is not part of the state:
// each machine uses its own clock.
type terms struct {
	mu     sync.Mutex
	last   uint64 // the latest term, 0 before the first entry
	begins []begin
}

// begin is the first entry of a term that this machine applied, and when.
type begin struct {
	index uint64
	at    time.Time
}

func (t *terms) note(l *raft.Log) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l.Term <= t.last {
		return
	}
	// The first entry that a machine applies may be of the same term as the sessions in its
	// snapshot.
	if t.last > 0 {
		if t.begins = append(t.begins, begin{l.Index, time.Now()}); len(t.begins) > maxTerms {
			t.begins = t.begins[1:] // those before count from a later term
		}
	}
	t.last = l.Term
}

// forget drops the recorded beginnings of all Raft terms. It is called after a restore, because the
// snapshot may come from another machine.
func (t *terms) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last, t.begins = 0, nil
}

// TermEnded returns the time at which this machine applied the first entry after index that belongs
// to a later term: then the term of the entry at index was over. It reports false if there was no
// such entry.
func (m *Machine) TermEnded(index uint64) (time.Time, bool) {
	m.terms.mu.Lock()
	defer m.terms.mu.Unlock()
	for _, b := range m.terms.begins {
		if b.index > index {
			return b.at, true
		}
	}
	return time.Time{}, false
}
