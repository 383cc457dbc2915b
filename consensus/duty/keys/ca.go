package keys

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"slices"
	"time"

	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/roster"
	pb "github.com/coopr/coopr/rpc/proto"
)

// bridgeTime is how long the certificate of a bridge is valid. The state keeps a bridge for as long.
const bridgeTime = 90 * 24 * time.Hour

// rotateCA carries on with the rotation of the CA. All agents trust the new one too, then all get certificates from it, and then all stop
// trusting the old one.
func (c *Controller) rotateCA(ctx context.Context) error {
	return c.follow(ctx, roster.KindCA, func(h heard) uint64 { return h.cas }, c.nextCA)
}

// nextCA returns the CAs for the phase after that of a rotation. The key of the old one is forgotten once the new one signs.
func (c *Controller) nextCA(v *state.View, r roster.Rotation) (*pb.Rotate, error) {
	m := v.MeshIdentity()
	key, err := c.cfg.Ring.Open(keyring.PurposeCA(m.Mesh), m.SealedCA)
	if err != nil {
		return nil, fmt.Errorf("the key of the CA: %w", err)
	}
	const size = ed25519.SeedSize
	p := &pb.Rotate{WasCa: m.SealedCA}
	switch {
	case r.Phase == roster.RotationBegun && len(key) == size:
		cert, next, err := c.cfg.CA.New()
		if err != nil {
			return nil, err
		}
		p.Cas, key = [][]byte{m.CAs[0], cert}, slices.Concat(key, next)
	case r.Phase == roster.RotationSpread && len(key) == 2*size && len(m.CAs) == 2:
		if !r.NoBridge {
			if p.Bridge, err = c.cfg.CA.Bridge(m.CAs[0], key[:size], m.CAs[1], key[size:], time.Now().Add(bridgeTime)); err != nil {
				return nil, err
			}
		}
		p.Cas, key = [][]byte{m.CAs[1], m.CAs[0]}, key[size:]
	case r.Phase == roster.RotationActive && len(key) == size:
		p.Cas = m.CAs[:1]
	default:
		return nil, fmt.Errorf("the rotation of the CA is in phase %q with %d CAs and keys of %d bytes", r.Phase, len(m.CAs), len(key))
	}
	p.SealedCa, err = c.cfg.Ring.Seal(keyring.PurposeCA(m.Mesh), key)
	if err != nil {
		return nil, fmt.Errorf("the key of the CA: %w", err)
	}
	return p, nil
}
