package keys

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

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

// heard is what an agent has reported in a session.
type heard struct {
	agent  string
	gossip uint64 // the version of the keys of gossip that it uses
}

// Hear notes which version of the keys of gossip an agent uses.
func (c *Controller) Hear(session, agent string, gossip uint64) {
	c.hearing.Lock()
	defer c.hearing.Unlock()
	if c.sessions == nil {
		c.sessions = map[string]heard{}
	}
	c.sessions[session] = heard{agent, gossip}
}

// Leave forgets a session that has ended.
func (c *Controller) Leave(session string) {
	c.hearing.Lock()
	defer c.hearing.Unlock()
	delete(c.sessions, session)
}

// behind returns the agents that are alive and do not use a version of the keys of gossip, or a later one. An agent that is away asks for
// the keys before its gossip starts, and nobody waits for it.
func (c *Controller) behind(v *state.View, version uint64) (ids []string) {
	follow := map[string]bool{}
	c.hearing.Lock()
	for _, h := range c.sessions {
		if h.gossip >= version {
			follow[h.agent] = true
		}
	}
	c.hearing.Unlock()
	for _, id := range v.RemovedAgents() {
		follow[id] = true
	}
	for _, a := range v.Agents() {
		if a.Alive && !follow[a.ID] {
			ids = append(ids, a.ID)
		}
	}
	return ids
}

// rotateGossip carries on with the rotation of the key of gossip. The new key goes to all agents, then all use it, and then all forget the
// old one. It begins one if an agent was removed since the last one began, as such an agent has the key.
func (c *Controller) rotateGossip(ctx context.Context) error {
	for {
		v := c.cfg.Machine.View()
		r, _ := v.Rotation(roster.KindGossip)
		if r.Phase == "" || r.Phase == roster.RotationDone {
			if !exposed(v, r.Begun) {
				return nil
			}
			if err := c.commit(ctx, &pb.Command{Actor: "coopr", Change: &pb.Command_Rotate{Rotate: &pb.Rotate{
				Kind: record.RotationKind_ROTATION_KIND_GOSSIP, Number: r.Number + 1, Next: record.RotationPhase_ROTATION_PHASE_BEGUN,
			}}}); err != nil {
				return fmt.Errorf("replace the key of gossip, which an agent has that was removed: %w", err)
			}
			continue
		}
		var behind []string
		if r.Phase != roster.RotationBegun {
			behind = c.behind(v, r.Index)
		}
		if len(behind) > 0 && time.Now().UnixMilli() < r.Since+rotateEvery.Milliseconds() {
			return nil // they are about to report
		}
		p := &pb.Rotate{}
		if len(behind) == 0 && r.Phase != roster.RotationRetire {
			var err error
			if p, err = c.nextGossip(v, r.Phase); err != nil {
				return err
			}
		}
		if err := c.move(ctx, r, p, behind); err != nil || len(behind) > 0 {
			return err
		}
	}
}

// exposed reports whether an agent was removed from the mesh since a time, in Unix milliseconds.
func exposed(v *state.View, since int64) bool {
	if v.MeshIdentity() == nil || !v.Understands(logformat.RotationLevel) {
		return false
	}
	for _, i := range v.Identities() {
		if i.Removed != 0 && i.Removed >= since {
			return true
		}
	}
	return false
}

// nextGossip returns the keys of gossip for the phase after a phase.
func (c *Controller) nextGossip(v *state.View, phase string) (*pb.Rotate, error) {
	now, err := GossipRing(v, c.cfg.Ring)
	if err != nil {
		return nil, err
	}
	m, next := v.MeshIdentity(), now.Keys
	switch {
	case phase == roster.RotationBegun:
		key := make([]byte, keyring.GossipKeySize)
		rand.Read(key) // never fails
		next = [][]byte{next[0], key}
	case len(next) < 2:
		return nil, fmt.Errorf("the rotation of the key of gossip is in phase %q, and there is no second key", phase)
	case phase == roster.RotationSpread:
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
