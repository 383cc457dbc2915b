package sealed

import (
	"context"
	"errors"
	"fmt"

	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/consensus/state/table"
	pb "github.com/coopr/coopr/rpc/proto"
)

// NewDataKey adds a data key of a tenant, or of the mesh if tenant is "", which follows the latest one. Values are encrypted with it
// from then on. Leader only.
func (b *Box) NewDataKey(ctx context.Context, tenant string) error {
	if err := b.making.Acquire(ctx, 1); err != nil {
		return err
	}
	defer b.making.Release(1)
	return b.add(ctx, tenant)
}

// Rewrap encrypts a data key with another mesh key.
func (b *Box) Rewrap(v *state.View, k table.DataKeyRow, meshKey uint32) (*pb.RewrappedKey, error) {
	key, err := b.unwrap(v.Mesh(), k)
	if err != nil {
		return nil, err
	}
	put, err := b.wrap(v, k.Tenant, key, meshKey)
	return &pb.RewrappedKey{Key: put, Was: k.Wrapped}, err
}

// RewrapMesh encrypts the keys of the CA and of gossip with another mesh key. It returns nil if they already are.
func (b *Box) RewrapMesh(v *state.View, meshKey uint32) (*pb.ResealedMesh, error) {
	m := v.MeshIdentity()
	if m == nil {
		return nil, nil
	}
	out := &pb.ResealedMesh{WasCa: m.SealedCA, WasGossip: m.SealedGossip}
	var err error
	if out.Ca, err = b.reencrypt(keyring.PurposeCA(m.Mesh), m.SealedCA, meshKey); err != nil {
		return nil, fmt.Errorf("the key of the CA: %w", err)
	}
	if out.Gossip, err = b.reencrypt(keyring.PurposeGossip(m.Mesh), m.SealedGossip, meshKey); err != nil {
		return nil, fmt.Errorf("the key of gossip: %w", err)
	}
	if string(out.Ca) == string(m.SealedCA) && string(out.Gossip) == string(m.SealedGossip) {
		return nil, nil
	}
	return out, nil
}

// reencrypt encrypts data with another mesh key, unless it is.
func (b *Box) reencrypt(aad, sealed []byte, meshKey uint32) ([]byte, error) {
	if len(sealed) == 0 || table.KeyNumber(sealed) == meshKey {
		return sealed, nil
	}
	plain, err := b.ring.Open(aad, sealed)
	if err != nil {
		return nil, err
	}
	return b.ring.SealWith(meshKey, aad, plain)
}

// ErrUnreadable means that a value cannot be decrypted.
var ErrUnreadable = errors.New("the value cannot be decrypted")

// Again encrypts a value of a view with the latest data key of its tenant. It returns ErrUnreadable for one that cannot be decrypted.
func (b *Box) Again(v *state.View, r table.SealedRow) (*pb.ResealedValue, error) {
	k, ok := v.DataKey(r.Tenant)
	if !ok {
		return nil, fmt.Errorf("tenant %q has no data key", r.Tenant)
	}
	value, err := b.open(v.SealedView, r)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	c, err := b.cipher(v.Mesh(), k)
	if err != nil {
		return nil, err
	}
	return &pb.ResealedValue{Tenant: r.Tenant, Value: &pb.SealedValue{
		Id: r.ID, Version: r.Version, Sealed: c.Seal(place(v.Mesh(), r.Tenant, r.ID, r.Version), value),
	}}, nil
}
