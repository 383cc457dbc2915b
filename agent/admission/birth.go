package admission

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/replica"
	"github.com/coopr/coopr/engine/roster"
	"github.com/coopr/coopr/rpc/identity"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Birth is the leader's duty that writes the identity of a new mesh.
type Birth struct {
	Replica *replica.Replica
	Store   *identity.Store // nil: there is nothing to write
	Ring    Ring
	ID      string // this agent's
	Logger  *slog.Logger
}

// Name returns the name of the duty in logs.
func (b *Birth) Name() string { return "birth of the mesh" }

// Restore does nothing, because a term must not wait for the mesh's first key.
func (b *Birth) Restore(context.Context) error { return nil }

// birthPause is the time between two tries to write the identity of a new mesh.
const birthPause = 100 * time.Millisecond

// Run writes the mesh's identity if this agent is its first one, and waits for the end of the term. The CA's key and that of
// gossip are sealed with the mesh's first key, which another duty makes.
func (b *Birth) Run(ctx context.Context) error {
	said := false
	for b.Store != nil && b.Store.Membership().Birth != nil && b.Replica.Machine.View().MeshIdentity() == nil {
		err := b.write(ctx)
		if err == nil {
			b.Logger.Info("the mesh has its identity", "mesh", b.Store.Membership().Mesh)
			break
		}
		if !said && !errors.Is(err, keyring.ErrNoKey) {
			said = true
			b.Logger.Warn("the identity of the mesh could not be written yet", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(birthPause):
		}
	}
	<-ctx.Done()
	return nil
}

func (b *Birth) write(ctx context.Context) error {
	if _, ok := b.Replica.Machine.View().DataKey(""); !ok {
		return keyring.ErrNoKey // another duty makes it, and only then the state names the key
	}
	c, err := b.command(b.Store.Membership())
	if err != nil {
		return err
	}
	answers, err := b.Replica.Propose(ctx, &pb.Command{Actor: "coopr", Change: c})
	if err != nil {
		return err
	}
	return answers[0].Err
}

func (b *Birth) command(m *identity.Membership) (*pb.Command_FoundMesh, error) {
	sealedCA, err := b.Ring.Seal(keyring.PurposeCA(m.Mesh), m.Birth.CAKey)
	if err != nil {
		return nil, err
	}
	sealedGossip, err := b.Ring.Seal(keyring.PurposeGossip(m.Mesh), m.Gossip)
	if err != nil {
		return nil, err
	}
	key, err := m.KeyID()
	if err != nil {
		return nil, err
	}
	first, err := logformat.EncodeAgentIdentity(&roster.Identity{Agent: b.ID, Role: roster.Voter, API: true, Keys: []string{key}})
	if err != nil {
		return nil, err
	}
	found := &pb.FoundMesh{
		Mesh: m.Mesh, Ca: m.CAs[0], SealedCa: sealedCA, SealedGossip: sealedGossip, RootHash: m.Birth.RootHash, First: first,
	}
	for _, t := range m.Birth.Tokens {
		token, err := logformat.EncodeJoinToken(&roster.JoinToken{
			ID: t.ID, Hash: t.Hash, Role: string(t.Role), Uses: t.Uses, Expires: t.Expires.UnixMilli(), Creator: "coopr",
		})
		if err != nil {
			return nil, err
		}
		found.Tokens = append(found.Tokens, token)
	}
	return &pb.Command_FoundMesh{FoundMesh: found}, nil
}
