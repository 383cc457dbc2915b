package mesh

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/memberlist"
)

// newKeyring returns the keys with which gossip starts, or nil without a key.
func newKeyring(keys [][]byte) (*memberlist.Keyring, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	return memberlist.NewKeyring(keys, keys[0])
}

// SetKeys replaces the keys of gossip (16, 24 or 32 bytes): the first one encrypts, and all decrypt. Gossip goes on meanwhile. It fails
// in a simulated mesh whose gossip is not encrypted.
//
// A rotation adds a key on all agents, uses it on all, and removes the old one on all, each only after the previous step is done
// everywhere. So at all times every agent can read what every other sends.
func (m *Mesh) SetKeys(keys [][]byte) error {
	if m.keyring == nil {
		return errors.New("gossip keys: gossip is not encrypted in this simulated mesh")
	}
	if len(keys) == 0 {
		return errors.New("gossip keys: there is none")
	}
	for _, key := range keys {
		if err := memberlist.ValidateKey(key); err != nil {
			return fmt.Errorf("gossip keys: %w", err)
		}
	}
	m.mu.Lock()
	changed, err := setKeys(m.keyring, keys)
	m.mu.Unlock()
	if err != nil {
		return fmt.Errorf("gossip keys: %w", err)
	}
	if changed {
		signal(m.rejoin) // others may be able to read this agent now
	}
	return nil
}

// setKeys replaces the keys of a ring in use. memberlist v0.7.0 shifts keys in place when it removes one that is not the last, while others
// read the same list; so unwanted keys come last before they are removed.
func setKeys(ring *memberlist.Keyring, keys [][]byte) (changed bool, err error) {
	wanted := func(key []byte) bool {
		return slices.ContainsFunc(keys, func(k []byte) bool { return bytes.Equal(k, key) })
	}
	if slices.EqualFunc(ring.GetKeys(), keys, bytes.Equal) {
		return false, nil
	}
	for _, key := range keys {
		if err := ring.AddKey(key); err != nil {
			return false, err
		}
	}
	if err := ring.UseKey(keys[0]); err != nil {
		return false, err
	}
	for {
		have := ring.GetKeys()
		unwanted := slices.IndexFunc(have, func(k []byte) bool { return !wanted(k) })
		last := have[len(have)-1]
		switch {
		case unwanted < 0:
			return true, nil
		case wanted(last): // this moves it to the front, for a moment
			err = errors.Join(ring.UseKey(last), ring.UseKey(keys[0]))
		default:
			err = ring.RemoveKey(last)
		}
		if err != nil {
			return true, err
		}
	}
}
