package identity

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
)

// Sealer encrypts with a key of a keyring, and binds what it encrypts to additional data.
type Sealer interface {
	Seal(aad, plaintext []byte) []byte
}

// Opener decrypts what a Sealer has encrypted with one of its keys.
type Opener interface {
	Open(aad, sealed []byte) ([]byte, error)
}

// ErrSealed means that an agent's keyring does not open its identity.
var ErrSealed = errors.New("the keyring does not have the key that encrypts the identity of this agent: put its own keyring or a copy of " +
	"another voter's back into keyring.dir, or remove data_dir and join with a new token")

// secrets are what a voter encrypts of its membership.
type secrets struct {
	Key     []byte `json:"key"`
	NextKey []byte `json:"next_key,omitempty"`
	Gossip  []byte `json:"gossip,omitempty"`
	Ring    *Ring  `json:"ring,omitempty"`
	Birth   *Birth `json:"birth,omitempty"`
}

// purpose is the additional data of a membership's secrets.
func (m *Membership) purpose() []byte { return []byte("coopr identity of mesh " + m.Mesh) }

// seal returns the membership as it is written: a voter's secrets are encrypted for each key. A worker has no keyring.
func (m *Membership) seal(with []Sealer) (*Membership, error) {
	if len(with) == 0 || m.Role != Voter {
		return m, nil
	}
	plain, err := json.Marshal(secrets{Key: m.Key, NextKey: m.NextKey, Gossip: m.Gossip, Ring: m.Ring, Birth: m.Birth})
	if err != nil {
		return nil, err
	}
	out := *m
	out.Key, out.NextKey, out.Gossip, out.Ring, out.Birth, out.Sealed = nil, nil, nil, nil, nil, nil
	for _, s := range with {
		out.Sealed = append(out.Sealed, s.Seal(m.purpose(), plain))
	}
	return &out, nil
}

// Unseal decrypts what is secret of a membership that was read from a disk. It does nothing if that is not encrypted. It fails with
// ErrSealed if the keyring lacks the key.
func (m *Membership) Unseal(keyring Opener) error {
	if len(m.Sealed) == 0 {
		return nil
	}
	var why error
	for _, sealed := range m.Sealed {
		plain, err := keyring.Open(m.purpose(), sealed)
		if err != nil {
			why = errors.Join(why, err)
			continue
		}
		var s secrets
		if json.Unmarshal(plain, &s) != nil {
			return errors.New("identity: what is encrypted of it is of another version of coopr-agent")
		}
		next := *m
		next.Key, next.NextKey, next.Gossip, next.Birth, next.Sealed = s.Key, s.NextKey, s.Gossip, s.Birth, nil
		next.unsealed = true
		if s.Ring != nil { // builds before the first release did not encrypt it
			next.Ring = s.Ring
		}
		if !next.hasKeys() || next.Ring != nil && next.Ring.check() != nil {
			return errors.New("identity: what is encrypted of it has no whole key")
		}
		*m = next
		return nil
	}
	return fmt.Errorf("identity: %w: %w", ErrSealed, why)
}

// hasKeys reports whether the agent's keys are whole.
func (m *Membership) hasKeys() bool {
	return len(m.Key) == ed25519.SeedSize && (m.NextKey == nil || len(m.NextKey) == ed25519.SeedSize)
}
