package keys

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/roster"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
)

// GossipRing returns the keys of gossip of a view. Their version is the index of the entry with which the phase of their rotation began. It
// returns nil in a mesh whose agents share a secret, and fails if the keyring does not open them.
func GossipRing(v *state.View, ring *keyring.Ring) (*pb.GossipRing, error) {
	m := v.MeshIdentity()
	if m == nil || len(m.SealedGossip) == 0 {
		return nil, nil
	}
	value, err := ring.Open(keyring.PurposeGossip(m.Mesh), m.SealedGossip)
	if err != nil {
		return nil, fmt.Errorf("the keys of gossip: %w", err)
	}
	r, _ := v.Rotation(roster.KindGossip)
	out := &pb.GossipRing{Version: r.Index}
	out.Keys, err = keyring.SplitGossip(value)
	return out, err
}

// rotateGossip carries on with the rotation of the key of gossip. The new key goes to all agents, then all use it, and then all forget the
// old one. It begins one if since the last one began an agent was removed, as such an agent has the key, or the CA was replaced without a
// bridge, as until then whoever has the key of the CA could get that of gossip.
func (c *Controller) rotateGossip(ctx context.Context) error {
	for {
		err := c.follow(ctx, roster.KindGossip, func(h heard) uint64 { return h.gossip }, c.nextGossip)
		v := c.cfg.Machine.View()
		r, _ := v.Rotation(roster.KindGossip)
		if err != nil || r.Phase != "" && r.Phase != roster.RotationDone || !exposed(v, r.Begun) {
			return err
		}
		if err := c.commit(ctx, &pb.Command{Actor: "coopr", Change: &pb.Command_Rotate{Rotate: &pb.Rotate{
			Kind: record.RotationKind_ROTATION_KIND_GOSSIP, Number: r.Number + 1, Next: record.RotationPhase_ROTATION_PHASE_BEGUN,
		}}}); err != nil {
			return fmt.Errorf("replace the key of gossip, as an agent was removed or the CA was replaced: %w", err)
		}
	}
}

// exposed reports whether somebody else may have the key of gossip of the rotation that began at a time, in Unix milliseconds: since then
// an agent was removed from the mesh, or a rotation of the CA without a bridge was completed. The state keeps these times in the order of
// its entries.
func exposed(v *state.View, since int64) bool {
	if v.MeshIdentity() == nil || !v.Understands(logformat.RotationLevel) {
		return false
	}
	if ca, ok := v.Rotation(roster.KindCA); ok && ca.NoBridge && ca.Phase == roster.RotationDone && ca.Since >= since {
		return true
	}
	for _, i := range v.Identities() {
		if i.Removed != 0 && i.Removed >= since {
			return true
		}
	}
	return false
}

// nextGossip returns the keys of gossip for the phase after a phase.
func (c *Controller) nextGossip(v *state.View, r roster.Rotation) (*pb.Rotate, error) {
	now, err := GossipRing(v, c.cfg.Ring)
	if err != nil {
		return nil, err
	}
	m, next := v.MeshIdentity(), now.Keys
	switch {
	case r.Phase == roster.RotationBegun:
		key := make([]byte, keyring.GossipKeySize)
		rand.Read(key) // never fails
		next = [][]byte{next[0], key}
	case len(next) < 2:
		return nil, fmt.Errorf("the rotation of the key of gossip is in phase %q, and there is no second key", r.Phase)
	case r.Phase == roster.RotationSpread:
		next = [][]byte{next[1], next[0]}
	default:
		next = next[:1]
	}
	sealed, err := c.cfg.Ring.Seal(keyring.PurposeGossip(m.Mesh), keyring.JoinGossip(next))
	if err != nil {
		return nil, fmt.Errorf("the keys of gossip: %w", err)
	}
	return &pb.Rotate{Gossip: sealed, WasGossip: m.SealedGossip}, nil
}
