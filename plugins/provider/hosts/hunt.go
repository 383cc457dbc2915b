package hosts

import (
	"slices"
	"sync"
	"time"
)

// hunt keeps nodes that look for machines at the same time out of each other's way.
// What it remembers only says what is tried last: the machine's claim is what counts.
type hunt struct {
	mu   sync.Mutex
	busy map[string]time.Time // by address: when it was last tried
}

// memory is how long a machine that was tried counts as somebody's. It may be given
// back sooner by another agent: then it is tried last.
const memory = 10 * time.Minute

// next gives the machine to try next and those that are left.
func (h *hunt) next(list []machine) (machine, []machine) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	i := max(0, slices.IndexFunc(list, func(m machine) bool {
		at, tried := h.busy[m.at()]
		return !tried || now.Sub(at) > memory
	}))
	m := list[i]
	h.busy[m.at()] = now
	return m, slices.Delete(list, i, i+1)
}

// free says that a machine is nobody's any more.
func (h *hunt) free(m *machine) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.busy, m.at())
}
