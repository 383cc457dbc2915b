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
	out keyring.Exported
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

// Exported returns what NoteExport has noted.
func (s *Store) Exported() (keyring.Exported, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out, nil
}

// NoteExport notes a backup.
func (s *Store) NoteExport(e keyring.Exported) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out = e
}
