// Package signing has the public keys of a mesh, and signs and verifies with them.
//
// A mesh signs with one Ed25519 key at a time. Each key but the first is signed by the one before it, so whoever knows one key
// recognises all later ones.
package signing

import (
	"bytes"
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"fmt"
)

// The purposes of signatures. A signature for one of them is none for another.
const (
	purposeKey = "signing key"
	// Head is the purpose of signed heads of the audit log.
	Head = "audit head"
	// Snapshot is the purpose of signed snapshots.
	Snapshot = "snapshot"
)

var (
	// ErrForged means that a signature was not made with the key for this data.
	ErrForged = errors.New("the signature is not by the mesh's key")
	// ErrNoKey means that a public key is not known.
	ErrNoKey = errors.New("the public key is not known")
)

// PublicKey is a numbered public key.
type PublicKey struct {
	Number uint32 `json:"number" doc:"From 1"`
	Key    []byte `json:"key" doc:"Ed25519"`
	// Signature is by the key before; the first key of a chain may have none.
	Signature []byte `json:"signature,omitempty" doc:"By the key before; absent for the first"`
}

// Chain is the public keys of a mesh in the order of their numbers.
type Chain []PublicKey

// message returns the bytes that are signed for a purpose.
func message(purpose string, data []byte) []byte {
	out := binary.AppendUvarint([]byte("coopr signature "), uint64(len(purpose)))
	return append(append(out, purpose...), data...)
}

// Sign signs data for a purpose with the seed of a private key.
func Sign(purpose string, seed, data []byte) ([]byte, error) {
	if len(seed) != ed25519.SeedSize {
		return nil, fmt.Errorf("a private key of %d bytes", len(seed))
	}
	return ed25519.Sign(ed25519.NewKeyFromSeed(seed), message(purpose, data)), nil
}

// Public returns the public key of a seed of ed25519.SeedSize bytes, without a signature.
func Public(number uint32, seed []byte) PublicKey {
	return PublicKey{Number: number, Key: ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey)}
}

// signed returns the bytes of a key that the key before it signs.
func (k PublicKey) signed() []byte {
	return append(binary.BigEndian.AppendUint32(nil, k.Number), k.Key...)
}

// SignNext returns a key with the signature of the one before it, whose seed is given.
func (k PublicKey) SignNext(before []byte) (PublicKey, error) {
	sig, err := Sign(purposeKey, before, k.signed())
	k.Signature = sig
	return k, err
}

// verify checks a signature by this key.
func (k PublicKey) verify(purpose string, data, signature []byte) error {
	if len(k.Key) != ed25519.PublicKeySize || !ed25519.Verify(k.Key, message(purpose, data), signature) {
		return fmt.Errorf("%w %d", ErrForged, k.Number)
	}
	return nil
}

// Latest returns the newest key.
func (c Chain) Latest() (PublicKey, bool) {
	if len(c) == 0 {
		return PublicKey{}, false
	}
	return c[len(c)-1], true
}

// Check returns an error unless each key but the first is the next one of the key before it and has its signature. It proves nothing
// of the first key.
func (c Chain) Check() error {
	for i, k := range c {
		if k.Number == 0 {
			return errors.New("signing keys are numbered from 1")
		}
		if len(k.Key) != ed25519.PublicKeySize {
			return fmt.Errorf("signing key %d has %d bytes, not %d", k.Number, len(k.Key), ed25519.PublicKeySize)
		}
		if i == 0 {
			continue
		}
		if k.Number != c[i-1].Number+1 {
			return fmt.Errorf("signing key %d follows key %d", k.Number, c[i-1].Number)
		}
		if err := c[i-1].verify(purposeKey, k.signed(), k.Signature); err != nil {
			return fmt.Errorf("signing key %d: %w", k.Number, err)
		}
	}
	return nil
}

// Verify checks a signature for a purpose by the key with a number. It fails with ErrNoKey and ErrForged.
func (c Chain) Verify(number uint32, purpose string, data, signature []byte) error {
	for _, k := range c {
		if k.Number == number {
			return k.verify(purpose, data, signature)
		}
	}
	return fmt.Errorf("%w: signing key %d", ErrNoKey, number)
}

// Has reports whether the chain has a key.
func (c Chain) Has(k PublicKey) bool {
	for _, x := range c {
		if x.Number == k.Number && bytes.Equal(x.Key, k.Key) {
			return true
		}
	}
	return false
}
