package keyring

import (
	"crypto/hmac"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// Set is the content of a keyring: its keys in the order of their numbers, and the number of the active one.
// In an empty set, Active is 0.
type Set struct {
	Active uint32
	Keys   []Key
}

// find returns the key with a number.
func (s Set) find(number uint32) (Key, bool) {
	i := slices.IndexFunc(s.Keys, func(k Key) bool { return k.Number == number })
	if i < 0 {
		return Key{}, false
	}
	return s.Keys[i], true
}

// with returns the set with the keys of another one, which replace those of the same number. The other's
// active key becomes active.
func (s Set) with(other Set) Set {
	keys := map[uint32]Key{}
	for _, k := range append(slices.Clone(s.Keys), other.Keys...) {
		keys[k.Number] = k
	}
	out := Set{Active: other.Active}
	for _, n := range slices.Sorted(maps.Keys(keys)) {
		out.Keys = append(out.Keys, keys[n])
	}
	return out
}

// check returns an error for a set that no keyring can have.
func (s Set) check() error {
	if len(s.Keys) == 0 && s.Active == 0 {
		return nil
	}
	last := uint32(0)
	for _, k := range s.Keys {
		if k.Number <= last {
			return fmt.Errorf("key %d comes after key %d", k.Number, last)
		}
		last = k.Number
	}
	if _, ok := s.find(s.Active); !ok {
		return fmt.Errorf("key %d is active, and there is no such key", s.Active)
	}
	return nil
}

// Store keeps the keys of a keyring. It is the kind of the keyring.
type Store interface {
	// Load returns what Save saved last, or an empty set.
	Load() (Set, error)
	// Save replaces everything. The keys are safe when it returns.
	Save(Set) error
	// Exported returns the latest backup of the keyring.
	Exported() (Exported, error)
}

// Ring is a keyring in use. It is safe for concurrent use.
type Ring struct {
	store Store

	changes   sync.Mutex // one at a time
	protected func(with []*Cipher) error
	begun     atomic.Bool // see Begin

	mu      sync.RWMutex // of what follows, which only the holder of changes replaces
	set     Set
	ciphers map[uint32]*Cipher
}

// Open returns the keyring that a store has.
func Open(store Store) (*Ring, error) {
	set, err := store.Load()
	if err != nil {
		return nil, fmt.Errorf("keyring: %w", err)
	}
	r := &Ring{store: store}
	r.use(set)
	return r, nil
}

func (r *Ring) use(s Set) {
	ciphers := map[uint32]*Cipher{}
	for _, k := range s.Keys {
		ciphers[k.Number] = NewCipher(k)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.set, r.ciphers = s, ciphers
}

// Protect has a function encrypt what this agent keeps outside of the keyring, and returns its error. The function is called at once with
// the cipher of the active key, or with none if there is no key or Begin was not called yet. Whenever another key is to become active, it
// is called with both before the keyring is saved, and with the new one afterwards: whichever keyring the disk has after a crash opens what
// there is.
func (r *Ring) Protect(encrypt func(with []*Cipher) error) error {
	r.changes.Lock()
	defer r.changes.Unlock()
	r.protected = encrypt
	return r.protect(r.set.cipher())
}

// protect calls the function of Protect with ciphers, if it may encrypt by now. The caller holds changes.
func (r *Ring) protect(with []*Cipher) error {
	if r.protected == nil || !r.begun.Load() {
		return nil
	}
	return r.protected(with)
}

// Begin has this agent encrypt what it keeps outside of the keyring, from now on: every build that may read its disk understands that. It
// returns the error of the function of Protect, whose owner tries again. After the first call it does nothing.
func (r *Ring) Begin() error {
	r.changes.Lock()
	defer r.changes.Unlock()
	if r.begun.Swap(true) {
		return nil
	}
	return r.protect(r.set.cipher())
}

// Begun reports whether Begin was called.
func (r *Ring) Begun() bool { return r.begun.Load() }

// cipher returns the cipher of the active key, if there is one.
func (s Set) cipher() []*Cipher {
	k, ok := s.find(s.Active)
	if !ok {
		return nil
	}
	return []*Cipher{NewCipher(k)}
}

// change makes another set the content of the keyring. The caller holds changes.
func (r *Ring) change(next Set) error {
	if err := next.check(); err != nil {
		return fmt.Errorf("keyring: %w", err)
	}
	if slices.EqualFunc(next.Keys, r.set.Keys, Key.Same) && next.Active == r.set.Active {
		return nil
	}
	was, will := r.set.cipher(), next.cipher()
	old, _ := r.set.find(r.set.Active)
	active, _ := next.find(next.Active)
	protect := !active.Same(old)
	if protect && len(was) > 0 {
		if err := r.protect(slices.Concat(was, will)); err != nil {
			return fmt.Errorf("keyring: %w", err)
		}
	}
	if err := r.store.Save(next); err != nil {
		return fmt.Errorf("keyring: %w", err)
	}
	r.use(next)
	if protect {
		_ = r.protect(will) // what there is opens with this keyring, or is not encrypted yet: the owner tries again
	}
	return nil
}

// Set returns the keys.
func (r *Ring) Set() Set {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return Set{Active: r.set.Active, Keys: slices.Clone(r.set.Keys)}
}

// Key returns the key with a number. It fails with ErrNoKey.
func (r *Ring) Key(number uint32) (Key, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	k, ok := r.set.find(number)
	if !ok {
		return Key{}, r.missing(number)
	}
	return k, nil
}

// missing returns the error for a key that is not there. The caller holds mu.
func (r *Ring) missing(number uint32) error {
	if len(r.set.Keys) == 0 {
		return fmt.Errorf("%w %d: it is empty", ErrNoKey, number)
	}
	var have []uint32
	for _, k := range r.set.Keys {
		have = append(have, k.Number)
	}
	return fmt.Errorf("%w %d: it has %v", ErrNoKey, number, have)
}

// Put adds the keys of a set and makes its active key the active one. A key of the same number is replaced.
func (r *Ring) Put(s Set) error {
	if len(s.Keys) == 0 {
		return nil
	}
	r.changes.Lock()
	defer r.changes.Unlock()
	return r.change(r.set.with(s))
}

// Seal encrypts with the active key; see Cipher.Seal. It fails with ErrNoKey if the keyring is empty.
func (r *Ring) Seal(aad, plaintext []byte) ([]byte, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	c := r.ciphers[r.set.Active]
	if c == nil {
		return nil, fmt.Errorf("%w: it is empty", ErrNoKey)
	}
	return c.Seal(aad, plaintext), nil
}

// SealWith encrypts with the key with a number; see Cipher.Seal. It fails with ErrNoKey.
func (r *Ring) SealWith(number uint32, aad, plaintext []byte) ([]byte, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	c := r.ciphers[number]
	if c == nil {
		return nil, r.missing(number)
	}
	return c.Seal(aad, plaintext), nil
}

// Drop erases keys, and makes another key the active one, which must be there and stays.
func (r *Ring) Drop(active uint32, numbers ...uint32) error {
	r.changes.Lock()
	defer r.changes.Unlock()
	next := Set{Active: active}
	for _, k := range r.set.Keys {
		if !slices.Contains(numbers, k.Number) {
			next.Keys = append(next.Keys, k)
		}
	}
	return r.change(next)
}

// MAC returns an authentication code of data for a purpose, from the active key. The result begins with the
// key's number. It fails with ErrNoKey if the keyring is empty.
func (r *Ring) MAC(purpose string, data []byte) ([]byte, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	k, ok := r.set.find(r.set.Active)
	if !ok {
		return nil, fmt.Errorf("%w: it is empty", ErrNoKey)
	}
	return append(binary.BigEndian.AppendUint32(nil, k.Number), k.mac(purpose, data)...), nil
}

// Verify checks what MAC returned for the same purpose and data, on any keyring with the same key. It fails with
// ErrNoKey for another key's number and with ErrForged for everything else.
func (r *Ring) Verify(purpose string, data, mac []byte) error {
	number, err := NumberOf(mac)
	if err != nil {
		return ErrForged
	}
	k, err := r.Key(number)
	if err != nil {
		return err
	}
	if !hmac.Equal(k.mac(purpose, data), mac[numberSize:]) {
		return ErrForged
	}
	return nil
}

// Open decrypts with the key whose number the data has; see Cipher.Open.
func (r *Ring) Open(aad, sealed []byte) ([]byte, error) {
	number, err := NumberOf(sealed)
	if err != nil {
		return nil, err
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	c := r.ciphers[number]
	if c == nil {
		return nil, r.missing(number)
	}
	return c.Open(aad, sealed)
}
