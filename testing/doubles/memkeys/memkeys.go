// Package memkeys is a keyring in memory, for simulations.
package memkeys

import (
	"sync"

	"github.com/coopr/coopr/consensus/keyring"
)

// Store is a keyring.Store. It is safe for concurrent use.
type Store struct {
	mu  sync.Mutex
	set keyring.Set
}

var _ keyring.Store = (*Store)(nil)

// Load returns the keys.
func (s *Store) Load() (keyring.Set, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.set, nil
}

// Save replaces the keys.
func (s *Store) Save(set keyring.Set) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set = set
	return nil
}
