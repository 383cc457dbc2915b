package service

import (
	"context"
	"crypto/rand"
	"crypto/sha256"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/roster"
	"github.com/coopr/coopr/rpc/api"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
)

// Rotate begins the rotation of a key of the mesh. That of the root token is done with it.
func (r *Raft) Rotate(ctx context.Context, who model.Caller, req api.NewRotation) (out api.BegunRotation, w api.Written, err error) {
	m, _, err := leader(r.Supervisor)
	if err != nil {
		return out, w, err
	}
	v := m.Machine.View()
	last, _ := v.Rotation(req.Kind)
	p := &pb.Rotate{Kind: logformat.RotationKinds.Number(req.Kind), Number: last.Number + 1, Full: req.Full}
	secret := ""
	switch {
	case !v.Understands(logformat.RotationLevel):
		return out, w, problem.New(problem.Conflict, "keys are not rotated yet: some members of the Raft group run an older build")
	case req.Kind == roster.KindKeyring:
		p.Next = record.RotationPhase_ROTATION_PHASE_BEGUN
	case req.Kind == roster.KindRoot && !who.Root:
		return out, w, problem.New(problem.Forbidden, "only the root token may replace the root token")
	case req.Kind == roster.KindRoot:
		secret = "coopr-" + rand.Text()
		hash := sha256.Sum256([]byte(secret))
		p.Next, p.RootHash, p.RootActor = record.RotationPhase_ROTATION_PHASE_DONE, hash[:], who.Actor
	default:
		return out, w, model.Faults{{Path: "kind", Message: "the kinds are keyring and root"}}
	}
	w, err = write(ctx, r.Supervisor, who, &pb.Command{Change: &pb.Command_Rotate{Rotate: p}})
	if err != nil {
		return out, w, err
	}
	if w.Repeated && secret != "" {
		return out, w, problem.New(problem.Conflict, "this request was carried out before, and the root token is shown only once")
	}
	out.Rotation, _ = m.Machine.View().Rotation(req.Kind)
	out.Secret = secret
	return out, w, nil
}
