package archive

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/coopr/coopr/engine/signing"
)

// Signature signs an archive.
type Signature struct {
	// Keys are the public keys of the mesh, and Key is the number of the one that signed.
	Keys signing.Chain `json:"keys"`
	Key  uint32        `json:"key"`
	// MeshKeys are the keys that the state needs in the keyring of a mesh that restores it.
	MeshKeys []MeshKey `json:"meshKeys"`
	// Signature is by the signing key, and Proof an authentication code under a key of the keyring, both over what Content returns.
	Signature []byte `json:"signature"`
	Proof     []byte `json:"proof"`

	sums []byte // that were read from the archive
}

// MeshKey names a mesh key by its number and its fingerprint.
type MeshKey struct {
	Number uint32 `json:"number"`
	Print  []byte `json:"fingerprint"`
}

// maxSignature bounds the file of the signature, in bytes.
const maxSignature = 1 << 20

// Content returns the bytes that are signed: the checksums of the archive and the fields of the signature, without Signature and Proof.
func (s Signature) Content(sums []byte) ([]byte, error) {
	s.Signature, s.Proof = nil, nil
	text, err := json.Marshal(s)
	return append(bytes.Clone(sums), text...), err
}

// Verify checks the chain of public keys and the signature of an archive that was read. It does not say whose the keys are. It
// returns the bytes that are signed, for a check of Proof.
func (s *Signature) Verify() ([]byte, error) {
	content, err := s.Content(s.sums)
	if err != nil {
		return nil, err
	}
	if err := s.Keys.Check(); err != nil {
		return nil, err
	}
	return content, s.Keys.Verify(s.Key, signing.Snapshot, content, s.Signature)
}

// Signer returns the public key that signed.
func (s *Signature) Signer() signing.PublicKey {
	for _, k := range s.Keys {
		if k.Number == s.Key {
			return k
		}
	}
	return signing.PublicKey{}
}

// sign writes the signature, if there is one.
func (w *writer) sign(sign func(sums []byte) (*Signature, error)) error {
	if sign == nil {
		return nil
	}
	s, err := sign(bytes.Clone(w.sums.Bytes()))
	if err != nil {
		return err
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return w.file(signName, int64(len(text)), bytes.NewReader(text), false)
}

// signature reads the signature of an archive with checksums. It is not verified.
func (r *reader) signature(sums []byte) (*Signature, error) {
	var text bytes.Buffer
	if err := r.file(signName, &text, maxSignature); err != nil {
		return nil, err
	}
	s := &Signature{sums: bytes.Clone(sums)}
	if err := json.Unmarshal(text.Bytes(), s); err != nil {
		return nil, fmt.Errorf("%w: %s cannot be read: %w", ErrDamaged, signName, err)
	}
	return s, nil
}
