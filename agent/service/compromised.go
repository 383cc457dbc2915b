package service

import (
	"context"

	"github.com/coopr/coopr/agent/member"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/roster"
	"github.com/coopr/coopr/rpc/api"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
)

// compromisable returns an error if the keys of the mesh need no replacement because of an agent, or cannot be replaced.
func compromisable(v *state.View, id, name string) error {
	switch i, ok := v.Identity(id); {
	case v.MeshIdentity() == nil:
		return problem.New(problem.Conflict, "the agents of this mesh share a secret, which cannot be replaced: make a new mesh with "+
			"coopr-agent init")
	case !ok:
		return problem.New(problem.NotFound, "the mesh has no record of agent %s", name)
	case i.Role != roster.Voter:
		return problem.New(problem.Conflict, "agent %s is a worker, and has no keys of the mesh but that of gossip, which each removal "+
			"replaces: remove it with --force, and change the secrets of what it worked on", name)
	case !v.Understands(logformat.RotationLevel):
		return problem.New(problem.Conflict, "keys are not rotated yet: some members of the Raft group run an older build")
	}
	return nil
}

// revokeJoinTokens ends all join tokens: they name the CA by its fingerprint, and whoever has its key can pass as the mesh to a newcomer.
func revokeJoinTokens(ctx context.Context, r *member.Member, who model.Caller) error {
	for _, t := range r.Machine.View().JoinTokens() {
		c := &pb.Command{Change: &pb.Command_DeleteJoinToken{DeleteJoinToken: &pb.DeleteJoinToken{Id: t.ID}}}
		if err := proposed(ctx, r, who, c); err != nil && problem.CodeOf(err) != problem.NotFound {
			return err
		}
	}
	return nil
}

// replaceKeys begins to replace what a removed voter has: the CA, without a bridge, and the mesh key with all data keys and the signing
// key. The new mesh key waits for the new CA. The key of gossip is replaced at the removal and once more after the CA, without a request.
// Both orders are committed when it returns. It can be repeated: what began since the removal does not begin again.
func replaceKeys(ctx context.Context, r *member.Member, who model.Caller, id string) error {
	for _, want := range []*pb.Rotate{
		{Kind: record.RotationKind_ROTATION_KIND_CA, NoBridge: true},
		{Kind: record.RotationKind_ROTATION_KIND_KEYRING, Full: true},
	} {
		v := r.Machine.View()
		removed, _ := v.Identity(id)
		kind := logformat.RotationKinds.Word(want.Kind)
		last, begun := v.Rotation(kind)
		switch {
		case begun && last.Begun > removed.Removed && last.NoBridge == want.NoBridge && last.Full == want.Full:
			continue
		case begun && last.Phase != roster.RotationDone:
			return problem.New(problem.Conflict, "the agent is removed, but rotation %d of the %s was under way already: when it is done "+
				"(coopr operator rotations), repeat the command, so that the %s is replaced once more", last.Number, kind, kind)
		}
		want.Number, want.Next = last.Number+1, record.RotationPhase_ROTATION_PHASE_BEGUN
		if err := proposed(ctx, r, who, &pb.Command{Change: &pb.Command_Rotate{Rotate: want}}); err != nil {
			return err
		}
	}
	return nil
}

// proposed commits a command on a caller's behalf. The id of the request belongs to the removal: with it, the state would take the command
// for a repetition.
func proposed(ctx context.Context, r *member.Member, who model.Caller, c *pb.Command) error {
	who.Request = ""
	answers, err := r.Propose(ctx, logformat.By(who, c))
	if err == nil {
		err = answers[0].Err
	}
	return err
}

// exposed returns what has secrets that a voter could decrypt.
func exposed(v *state.View) (out []api.Exposed) {
	for _, x := range v.Exposed() {
		out = append(out, api.Exposed(x))
	}
	return out
}
