package state

import (
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/signing"
	pb "github.com/coopr/coopr/rpc/proto"
)

// putSigningKey adds a key with which the mesh signs.
func (a sealed) putSigningKey(p *pb.PutSigningKey) Answer {
	next := signing.PublicKey{Number: p.Number, Key: p.Public, Signature: p.Signature}
	chain := a.view().SigningKeys()
	if number, _ := a.view().NextSigningKey(); p.Number != number {
		return refuse(problem.Stale, "signing key %d cannot be the next one, which is %d", p.Number, number)
	}
	if err := append(chain, next).Check(); err != nil {
		return refuse(problem.Invalid, "%v", err)
	}
	if p.Private.GetId() != table.PrivateID(p.Number) {
		return refuse(problem.Invalid, "signing key %d has no private half", p.Number)
	}
	if err := a.follows("", p.Private); err != nil {
		return Answer{Err: err}
	}
	a.putValue("", p.Private)
	a.put(table.SigningKeys, &table.SigningKeyRow{PublicKey: next, Created: a.now})
	return Answer{}
}

// signHead records a signed head of the audit log. A head of a log that was replaced meanwhile is refused.
func (a sealed) signHead(p *pb.SignHead) Answer {
	h := audit.SignedHead{Key: p.Key, Signature: p.Signature}
	if h.Seq = p.Number; copy(h.Hash[:], p.Hash) != len(p.Hash) {
		return refuse(problem.Invalid, "a hash of %d bytes", len(p.Hash))
	}
	if err := h.Verify(a.view().SigningKeys()); err != nil {
		return refuse(problem.Invalid, "%v", err)
	}
	if err := a.audit.Signed(h); err != nil {
		return refuse(problem.Stale, "%v", err)
	}
	return Answer{}
}
