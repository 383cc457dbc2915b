package audit

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/coopr/coopr/engine/signing"
)

// TypeSigned is the type of the records that have signed heads.
const TypeSigned = "audit.signed"

// SignedHead is a place of the chain with the signature of the mesh. It covers all records up to this place, because each hash covers
// the one before it.
type SignedHead struct {
	Place
	Key       uint32 `json:"key"` // number of the signing key
	Signature []byte `json:"signature"`
}

// signed returns the bytes of a place that are signed.
func (l Place) signed() []byte {
	return append(binary.BigEndian.AppendUint64(nil, l.Seq), l.Hash[:]...)
}

// Sign signs a place with the seed of the mesh's key with a number.
func (l Place) Sign(key uint32, seed []byte) (SignedHead, error) {
	sig, err := signing.Sign(signing.Head, seed, l.signed())
	return SignedHead{Place: l, Key: key, Signature: sig}, err
}

// Verify checks the signature. It fails with signing.ErrForged and signing.ErrNoKey.
func (h *SignedHead) Verify(keys signing.Chain) error {
	return keys.Verify(h.Key, signing.Head, h.signed(), h.Signature)
}

// Has returns an error unless the chain has a place.
func (t *Trail) Has(l Place) error {
	at, err := t.place(l.Seq)
	if err == nil && at != l {
		err = fmt.Errorf("record %d of the audit log is another one", l.Seq)
	}
	return err
}

// heads compares signed heads with the chain in which they are records.
type heads struct {
	keys   signing.Chain // nil: signatures are not verified
	places []Place       // since the latest signed head, this one included
	gaps   bool
}

// pass notes the next correct place.
func (h *heads) pass(at Place) { h.places = append(h.places, at) }

// record checks a record that has a signed head, and notes in rep what it covers. It returns the reason why it is wrong, or "".
func (h *heads) record(after json.RawMessage, anchor Place, rep *Verification) string {
	var s SignedHead
	if err := strict(after, &s); err != nil {
		return "its signed head cannot be read"
	}
	if h.keys != nil {
		if err := s.Verify(h.keys); err != nil {
			return fmt.Sprintf("its signed head is forged, or of another mesh: %v", err)
		}
	}
	i := slices.IndexFunc(h.places, func(p Place) bool { return p.Seq == s.Seq })
	switch {
	case i >= 0 && h.places[i].Hash != s.Hash:
		return fmt.Sprintf("its signed head does not match the chain: the mesh has signed another record %d", s.Seq)
	case i >= 0:
		h.places = h.places[i:]
		rep.Signed, rep.Heads = s.Seq, rep.Heads+1
	case s.Seq > anchor.Seq && !h.gaps:
		return fmt.Sprintf("its signed head does not match the chain: record %d is not before it", s.Seq)
	}
	return ""
}
