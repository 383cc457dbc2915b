package service

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/coopr/coopr/agent/member"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/roster"
	"github.com/coopr/coopr/engine/signing"
	"github.com/coopr/coopr/rpc/api"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
)

// Rotate begins the rotation of a key of the mesh. Those of the root token and of the key for tokens of tasks are done with it.
func (r *Raft) Rotate(ctx context.Context, who model.Caller, req api.NewRotation) (out roster.Rotation, w api.Written, err error) {
	m, _, err := leader(r.Supervisor)
	if err != nil {
		return out, w, err
	}
	v := m.Machine.View()
	last, _ := v.Rotation(req.Kind)
	p := &pb.Rotate{Kind: logformat.RotationKinds.Number(req.Kind), Number: last.Number + 1, Full: req.Full, NoBridge: req.NoBridge}
	switch {
	case !v.Understands(logformat.RotationLevel):
		return out, w, problem.New(problem.Conflict, "keys are not rotated yet: some members of the Raft group run an older build")
	case req.Kind == roster.KindKeyring, req.Kind == roster.KindGossip, req.Kind == roster.KindCA:
		p.Next = record.RotationPhase_ROTATION_PHASE_BEGUN
	case req.Kind == roster.KindRoot && !who.Root:
		return out, w, problem.New(problem.Forbidden, "only the root token may replace the root token")
	case req.Kind == roster.KindRoot:
		hash, err := hex.DecodeString(req.RootHash)
		if err != nil || len(hash) != sha256.Size {
			return out, w, model.Faults{{Path: "rootHash", Message: "must be the SHA-256 of the new root token: 64 hexadecimal digits"}}
		}
		p.Next, p.RootHash, p.RootActor = record.RotationPhase_ROTATION_PHASE_DONE, hash, who.Actor
	case req.Kind == roster.KindJWKS:
		p.Next = record.RotationPhase_ROTATION_PHASE_DONE
		if p.TaskKey, err = nextTaskKey(ctx, m, req.Full); err != nil {
			return out, w, err
		}
	default:
		return out, w, model.Faults{{Path: "kind", Message: "the kinds are keyring, gossip, ca, root and jwks"}}
	}
	w, err = write(ctx, r.Supervisor, who, &pb.Command{Change: &pb.Command_Rotate{Rotate: p}})
	if err != nil {
		return out, w, err
	}
	out, _ = m.Machine.View().Rotation(req.Kind)
	return out, w, nil
}

// nextTaskKey makes the next key for tokens of tasks. It signs when it has been published for a day, or at once and alone.
func nextTaskKey(ctx context.Context, m *member.Member, alone bool) (*pb.PutTaskKey, error) {
	latest, now := m.Machine.View().TaskKeys().Latest(), time.Now()
	signs := time.UnixMilli(latest.Signs)
	switch {
	case latest.Number == 0:
		return nil, problem.New(problem.Conflict, "the mesh has no key for tokens of tasks: see the setting issuer")
	case alone:
		return m.Box.NextTaskKey(ctx, now.UnixMilli(), true)
	case signs.After(now):
		return nil, problem.New(problem.Conflict, "the next key for tokens of tasks is published already, and signs from %s on; "+
			"coopr operator jwks rotate --now replaces it, too", signs.UTC().Format(time.RFC3339))
	}
	return m.Box.NextTaskKey(ctx, now.Add(signing.TaskKeyNotice).UnixMilli(), false)
}
