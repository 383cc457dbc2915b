package sealed

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/consensus/state/view"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/signing"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Signer is the newest private key of a mesh.
type Signer struct {
	Number uint32
	Seed   []byte
}

// Signer opens the newest private key of the mesh. It fails with problem.NotFound as long as there is none, and with keyring.ErrNoKey
// without the mesh's keys.
func (b *Box) Signer(v view.SealedView) (Signer, error) {
	k, ok := v.SigningKeys().Latest()
	if !ok {
		return Signer{}, problem.New(problem.NotFound, "the mesh has no signing key yet")
	}
	row, ok := v.LatestSealed("", table.PrivateID(k.Number))
	if !ok {
		return Signer{}, fmt.Errorf("the private half of signing key %d is missing", k.Number)
	}
	seed, err := b.Open(v, row)
	if err == nil && (len(seed) != ed25519.SeedSize || string(signing.Public(k.Number, seed).Key) != string(k.Key)) {
		err = errors.New("it does not belong to the public one")
	}
	if err != nil {
		return Signer{}, fmt.Errorf("the private half of signing key %d: %w", k.Number, err)
	}
	return Signer{Number: k.Number, Seed: seed}, nil
}

// NextSigningKey makes the next signing key of the mesh, which the newest one signs. The caller proposes it. Leader only.
func (b *Box) NextSigningKey(ctx context.Context) (*pb.PutSigningKey, error) {
	v := b.machine.View().SealedView
	seed := make([]byte, ed25519.SeedSize)
	rand.Read(seed) // never fails
	number, before := v.NextSigningKey()
	next := signing.Public(number, seed)
	if before.Number > 0 {
		signer, err := b.Signer(v)
		if err != nil {
			return nil, err
		}
		if next, err = next.SignNext(signer.Seed); err != nil {
			return nil, err
		}
	}
	private, err := b.Seal(ctx, "", table.PrivateID(number), 1, seed)
	if err != nil {
		return nil, err
	}
	return &pb.PutSigningKey{Number: next.Number, Public: next.Key, Signature: next.Signature, Private: private}, nil
}

// NextTaskKey makes the next key for tokens of tasks, which signs from a time on, in Unix milliseconds. If it is alone, all others end.
// The caller proposes it. Leader only.
func (b *Box) NextTaskKey(ctx context.Context, signs int64, alone bool) (*pb.PutTaskKey, error) {
	key, err := rsa.GenerateKey(rand.Reader, signing.TaskKeyBits)
	if err != nil {
		return nil, err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	number := b.machine.View().TaskKeys().Latest().Number + 1
	private, err := b.Seal(ctx, "", table.TaskPrivateID(number), 1, der)
	if err != nil {
		return nil, err
	}
	return &pb.PutTaskKey{Number: number, Public: public, SignsMs: signs, Private: private, Alone: alone}, nil
}

// Prove returns an authentication code of data for a purpose, under the active key of the keyring.
func (b *Box) Prove(purpose string, data []byte) ([]byte, error) { return b.ring.MAC(purpose, data) }

// Proven checks what Prove returned on any voter with the same key; see keyring.Ring.Verify.
func (b *Box) Proven(purpose string, data, proof []byte) error {
	return b.ring.Verify(purpose, data, proof)
}
