package state

import (
	"bytes"
	"crypto/sha256"
	"slices"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/roster"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
)

// rotations changes the rotations of the keys of the mesh.
type rotations struct{ *writer }

// rotate moves a rotation to its next phase, or begins it.
func (a rotations) rotate(c *pb.Command, p *pb.Rotate) Answer {
	kind, phase, next := logformat.RotationKinds.Word(p.Kind), logformat.RotationPhases.Word(p.Phase), logformat.RotationPhases.Word(p.Next)
	switch {
	case !a.view().Understands(logformat.RotationLevel):
		return refuse(problem.Conflict, "keys are not rotated yet: some members of the Raft group run an older build")
	case kind == "":
		return refuse(problem.Invalid, "a mesh has no keys of kind %d", p.Kind)
	}
	old := table.Get[roster.Rotation](a.txn, table.Rotations, "id", kind)
	if phase == "" {
		return a.begin(c, p, kind, old)
	}
	if old == nil || old.Number != p.Number || old.Phase != phase {
		return refuse(problem.Stale, "the rotation of the %s is not at number %d in phase %q any more", kind, p.Number, phase)
	}
	row := *old
	row.Behind = slices.Sorted(slices.Values(p.Behind))
	if next == phase {
		a.sealed().rewrite(table.Rotations, &row)
		return Answer{Subject: kind}
	}
	if p.Next != p.Phase+1 || next == "" {
		return refuse(problem.Invalid, "phase %q does not follow phase %q", next, phase)
	}
	switch {
	case kind == roster.KindGossip:
		if err := a.newGossip(p, next); err != nil {
			return Answer{Err: err}
		}
	case kind == roster.KindCA:
		if err := a.newCA(p, next, row.NoBridge); err != nil {
			return Answer{Err: err}
		}
	case next == roster.RotationSpread:
		if len(p.Print) == 0 {
			return refuse(problem.Invalid, "the new key has no fingerprint")
		}
		row.Print = p.Print
	case next == roster.RotationRetire:
		if tenant, ok := a.outdated(row.MeshKey); ok {
			return refuse(problem.Stale, "a key of tenant %q is still encrypted with another mesh key than %d", tenant, row.MeshKey)
		}
	}
	row.Phase, row.Since, row.Index = next, a.now, a.index
	if gossip, ok := a.view().Rotation(roster.KindGossip); ok && kind == roster.KindCA {
		row.Since = max(row.Since, gossip.Begun) // whoever ends this rotation begins one of gossip
	}
	a.putRotation(&row)
	return Answer{Subject: kind}
}

// begin begins a rotation. Those of the root token and of the key for tokens of tasks are done with it.
func (a rotations) begin(c *pb.Command, p *pb.Rotate, kind string, old *roster.Rotation) Answer {
	row := &roster.Rotation{Kind: kind, Number: 1, Phase: roster.RotationBegun, Full: p.Full, Actor: c.Actor, Begun: a.now, Since: a.now,
		Index: a.index}
	if old != nil {
		row.Number = old.Number + 1
	}
	for _, i := range a.view().Identities() { // a removal from before comes before, whatever the clocks of leaders say
		row.Begun = max(row.Begun, i.Removed+1)
	}
	switch {
	case old != nil && old.Phase != roster.RotationDone:
		return refuse(problem.Conflict, "rotation %d of the %s is under way: see coopr operator rotations", old.Number, kind)
	case p.Number != row.Number:
		return refuse(problem.Stale, "rotation %d of the %s cannot follow rotation %d", p.Number, kind, row.Number-1)
	case kind == roster.KindRoot:
		if p.Next != record.RotationPhase_ROTATION_PHASE_DONE || len(p.RootHash) != sha256.Size {
			return refuse(problem.Invalid, "the new root token has no hash")
		}
		if err := a.newRoot(c, p); err != nil {
			return Answer{Err: err}
		}
		row.Phase, row.Full = roster.RotationDone, false
	case kind == roster.KindJWKS:
		switch {
		case p.Next != record.RotationPhase_ROTATION_PHASE_DONE || p.TaskKey == nil:
			return refuse(problem.Invalid, "there is no new key for tokens of tasks")
		case a.view().TaskKeys().Latest().Number == 0:
			return refuse(problem.Conflict, "the mesh has no key for tokens of tasks: see the setting issuer")
		}
		if ans := a.sealed().putTaskKey(p.TaskKey); ans.Err != nil {
			return ans
		}
		row.Phase, row.Full = roster.RotationDone, p.TaskKey.Alone
	case p.Next != record.RotationPhase_ROTATION_PHASE_BEGUN:
		return refuse(problem.Invalid, "a rotation does not begin with phase %d", p.Next)
	case kind == roster.KindGossip:
		if m := table.Mesh(a.txn).Identity; m == nil || len(m.SealedGossip) == 0 {
			return refuse(problem.Conflict, "the agents of this mesh share a secret, of which the key of gossip is made: it cannot be replaced")
		}
		row.Full = false
		if ca, ok := a.view().Rotation(roster.KindCA); ok && ca.Phase == roster.RotationDone {
			row.Begun = max(row.Begun, ca.Since+1)
		}
	case kind == roster.KindCA:
		if m := table.Mesh(a.txn).Identity; m == nil || len(m.SealedCA) == 0 {
			return refuse(problem.Conflict, "the agents of this mesh share a secret, of which the key of the CA is made: it cannot be replaced")
		}
		row.Full, row.NoBridge = false, p.NoBridge
	default:
		if _, ok := a.view().DataKey(""); !ok {
			return refuse(problem.Conflict, "the mesh has no key yet: try again in a moment")
		}
		// The number of a key is never used again, so the last rotation counts even if a restored state names only older keys.
		if old != nil {
			row.MeshKey = old.MeshKey
		}
		for number := range a.view().MeshKeys() {
			row.MeshKey = max(row.MeshKey, number)
		}
		row.MeshKey++
	}
	a.putRotation(row)
	return Answer{Subject: kind}
}

// newRoot replaces the root token. The old one and the tokens that belong to it end.
func (a rotations) newRoot(c *pb.Command, p *pb.Rotate) error {
	m := table.Mesh(a.txn)
	if m.Identity == nil {
		return problem.New(problem.Conflict, "the root token of this mesh is in its configuration, and is replaced there")
	}
	identity := *m.Identity
	identity.RootHash = p.RootHash
	m.Identity = &identity
	a.put(table.Meta, &m)
	for _, t := range a.users().tokensOf(model.FirstTenant, p.RootActor) {
		a.users().end(c, t)
	}
	return nil
}

// newGossip replaces the keys of gossip by those of a phase. They are sealed with the mesh key in use, as nobody would do that afterwards.
func (a rotations) newGossip(p *pb.Rotate, phase string) error {
	if phase == roster.RotationDone {
		return nil
	}
	m := table.Mesh(a.txn)
	active, _ := a.view().ActiveMeshKey()
	switch {
	case m.Identity == nil || !bytes.Equal(m.Identity.SealedGossip, p.WasGossip):
		return problem.New(problem.Stale, "the keys of gossip have changed meanwhile")
	case len(p.Gossip) == 0 || table.KeyNumber(p.Gossip) != active:
		return problem.New(problem.Stale, "the keys of gossip are not encrypted with mesh key %d, which is in use", active)
	}
	identity := *m.Identity
	identity.SealedGossip = p.Gossip
	m.Identity = &identity
	a.put(table.Meta, &m)
	a.batch.Agents = true // all agents get them
	return nil
}

// bridgeTime is how long a bridge serves agents that were away, and clients, in milliseconds. An agent's certificate can be renewed for as
// long after its end.
const bridgeTime = 90 * 24 * 60 * 60 * 1000

// newCA replaces the CAs by those of a phase, and their keys. The old CA is known by its bridge once it is not trusted any more.
func (a rotations) newCA(p *pb.Rotate, phase string, noBridge bool) error {
	if phase == roster.RotationDone {
		return nil
	}
	m := table.Mesh(a.txn)
	active, _ := a.view().ActiveMeshKey()
	switch {
	case m.Identity == nil || !bytes.Equal(m.Identity.SealedCA, p.WasCa):
		return problem.New(problem.Stale, "the key of the CA has changed meanwhile")
	case len(p.Cas) == 0 || len(p.SealedCa) == 0 || table.KeyNumber(p.SealedCa) != active:
		return problem.New(problem.Stale, "there is no CA, or its key is not encrypted with mesh key %d, which is in use", active)
	case phase == roster.RotationActive && noBridge != (len(p.Bridge) == 0):
		return problem.New(problem.Invalid, "a bridge is missing, or there must not be one")
	}
	identity := *m.Identity
	if phase == roster.RotationActive {
		identity.Bridges = nil
		if !noBridge {
			for _, b := range m.Identity.Bridges {
				if b.Until > a.now {
					identity.Bridges = append(identity.Bridges, b)
				}
			}
			identity.Bridges = append(identity.Bridges, table.Bridge{Certificate: p.Bridge, Old: m.Identity.CAs[0], Until: a.now + bridgeTime})
		}
	}
	identity.CAs, identity.SealedCA = p.Cas, p.SealedCa
	m.Identity = &identity
	a.put(table.Meta, &m)
	a.batch.Agents = true // all agents get them
	return nil
}

// outdated returns a tenant whose data key is encrypted with another mesh key than the one with a number. Tenant "" is the mesh,
// whose keys of the CA and of gossip count too.
func (a rotations) outdated(number uint32) (tenant string, ok bool) {
	if m := table.Mesh(a.txn).Identity; m != nil {
		for _, sealed := range [][]byte{m.SealedCA, m.SealedGossip} {
			if len(sealed) > 0 && table.KeyNumber(sealed) != number {
				return "", true
			}
		}
	}
	for _, k := range a.view().DataKeys() {
		if k.MeshKey != number {
			return k.Tenant, true
		}
	}
	return "", false
}

func (a rotations) putRotation(r *roster.Rotation) {
	a.put(table.Rotations, r)
	a.batch.Rotations = true
	a.event(model.Event{Type: "rotation." + r.Phase, Subject: r.Kind, Actor: r.Actor})
}

// restored keeps the rotations of a mesh whose state is replaced by that of an archive. Keys of the archive may be encrypted with a key
// that was retired: the rotation goes on then, and replaces them.
func (a rotations) restored(own *View) {
	for _, r := range table.List[roster.Rotation](a.txn, table.Rotations, "id") {
		a.remove(table.Rotations, r)
	}
	for _, r := range own.Rotations() {
		if _, ok := a.outdated(r.MeshKey); ok && r.Kind == roster.KindKeyring && r.InUse() {
			r.Phase, r.Since, r.Index = roster.RotationActive, a.now, a.index
		}
		a.put(table.Rotations, &r)
	}
}
