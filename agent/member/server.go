package member

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coopr/coopr/consensus/state"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/wire"
)

// Server answers other agents' questions about this agent's part in the Raft group.
type Server struct {
	Supervisor *Supervisor
	Build      string // version of this agent's binary
}

// Status returns what this agent knows of the Raft group. It fails with
// codes.Unavailable while the member of an eligible agent is down: the contents of
// its disk are not known then, and the caller would trust the answer "no state".
func (s Server) Status(ctx context.Context, r *pb.StatusRequest) (*pb.StatusResponse, error) {
	cfg := &s.Supervisor.cfg
	out := &pb.StatusResponse{Id: cfg.ID, BootstrapExpect: uint32(cfg.BootstrapExpect), Build: s.Build, FeatureLevel: state.FeatureLevel}
	for _, k := range cfg.Keyring.Set().Keys {
		out.Keys = append(out.Keys, &pb.MeshKeyPrint{Number: k.Number, Print: k.Print()})
	}
	if e, err := cfg.Keyring.Exported(); err != nil {
		cfg.Logger.Warn("it is not known whether this keyring was exported", "error", err)
	} else if e.Number > 0 {
		out.Exported, out.ExportedMs = &pb.MeshKeyPrint{Number: e.Number, Print: e.Print}, e.At.UnixMilli()
	}
	m := s.Supervisor.Member()
	if m == nil {
		if cfg.Eligible {
			return nil, status.Error(codes.Unavailable, "this agent's Raft member is not running")
		}
		return out, nil
	}
	st := m.Group.Stats()
	out.HasState = st.LastIndex > 0
	out.Mesh = m.Machine.View().Mesh()
	out.AppliedIndex, out.LastLogIndex = st.AppliedIndex, st.LastIndex
	if m.Group.Member() {
		out.Term = m.Group.Term() // first: the leader may change, and the answer then counts for too little
		out.LeaderId, out.LeaderAddr = m.Group.Leader()
	}
	_, out.LeaderReady = m.terms.Ready()
	for _, s := range m.Group.Servers() {
		out.Servers = append(out.Servers, &pb.Server{Id: s.ID, Addr: s.Addr, Voter: s.Voter})
	}
	if s.Supervisor.foreign(r.Mesh) {
		caller, _ := wire.CallerID(ctx)
		cfg.Logger.Error("the leader of another mesh found this agent, which holds the state of its own mesh: the two meshes stay separate. "+
			"To discard this agent's state, stop it, delete its data_dir and start it with a join token",
			"mesh", out.Mesh, "other_mesh", r.Mesh, "leader", caller)
	}
	return out, nil
}
