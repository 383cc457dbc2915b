// Package memjournal is a worker's journal in memory, for tests that restart a simulated agent with the
// journal that it had.
package memjournal

import (
	"sync"

	"github.com/coopr/coopr/agent/worker"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Journal is a journal in memory.
type Journal struct {
	mu   sync.Mutex
	held map[worker.Key]*pb.Held
	// Full makes every Put fail, as a full disk does.
	Full error
}

// New returns an empty journal.
func New() *Journal { return &Journal{held: map[worker.Key]*pb.Held{}} }

// Load returns what is held.
func (m *Journal) Load() ([]*pb.Held, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []*pb.Held
	for _, h := range m.held {
		out = append(out, h)
	}
	return out, nil
}

// Put stores leases.
func (m *Journal) Put(held ...*pb.Held) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.Full != nil {
		return m.Full
	}
	for _, h := range held {
		m.held[worker.Key{Task: h.Task, Fence: h.Fence}] = h
	}
	return nil
}

// Forget removes leases.
func (m *Journal) Forget(keys ...worker.Key) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range keys {
		delete(m.held, k)
	}
	return nil
}

// SetFull makes Put fail with err, or succeed again if err is nil.
func (m *Journal) SetFull(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.Full = err
}

// Check returns the error that Put would return.
func (m *Journal) Check() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.Full
}

// Close does nothing: the content outlives the agent.
func (m *Journal) Close() error { return nil }
