package hosts

import (
	"slices"
	"sync"
	"time"
)

// hunt keeps concurrent searches for machines apart. It only changes the order in which machines
// are tried; the machine's claim decides.
type hunt struct {
	mu   sync.Mutex
	busy map[string]time.Time // time of the last attempt, by address
}

// memory is how long a machine counts as taken after it was tried. Another agent may release it
// sooner; then it is only tried later than others.
const memory = 10 * time.Minute

// next returns the machine to try next and the remaining ones.
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

// free marks a machine as free again.
func (h *hunt) free(m *machine) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.busy, m.at())
}
