package member

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coopr/coopr/consensus/duty/integrity"
	"github.com/coopr/coopr/consensus/logstore"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/audit"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/wire"
)

// integrity returns the duty that compares the voters' copies of the state.
func (m *Member) integrity() *integrity.Controller {
	return integrity.New(integrity.Config{
		Self: m.cfg.ID, Machine: m.Machine, Propose: m.Propose, Logger: m.cfg.Logger, Every: m.cfg.Leader.CheckpointEvery,
		Members: func() (out []integrity.Member) {
			for _, s := range m.Group.Servers() {
				out = append(out, integrity.Member{ID: s.ID, Voter: s.Voter})
			}
			return out
		},
		Sums: m.askSums, Quarantine: m.askQuarantine,
	})
}

// Trusted reports whether this member may answer reads: its state was not found to be wrong.
func (m *Member) Trusted() bool { return !m.distrusted.Load() }

// sums returns the digests of this member's state at a checkpoint. It waits until the checkpoint is applied.
func (m *Member) sums(ctx context.Context, index uint64) (integrity.Answer, error) {
	if err := m.Group.WaitApplied(ctx, index); err != nil {
		return integrity.Answer{}, err
	}
	c := m.Machine.Checkpoint(index)
	if c == nil {
		return integrity.Answer{}, fmt.Errorf("this agent has not kept its state at entry %d", index)
	}
	sums, err := c.Sums()
	return integrity.Answer{Encoder: m.cfg.Build, Sums: sums}, err
}

// askSums asks a member, which may be this one, for the digests of its state at a checkpoint.
func (m *Member) askSums(ctx context.Context, id string, index uint64) (integrity.Answer, error) {
	if id == m.cfg.ID {
		return m.sums(ctx, index)
	}
	c, err := m.peer(id)
	if err != nil {
		return integrity.Answer{}, err
	}
	r, err := c.Sums(ctx, &pb.SumsRequest{Index: index})
	if err != nil {
		return integrity.Answer{}, err
	}
	a := integrity.Answer{Encoder: r.Encoder, Sums: state.Sums{Tables: map[string][32]byte{}, Audit: audit.Place{Seq: r.AuditSeq}}}
	if copy(a.Audit.Hash[:], r.AuditHead) != len(r.AuditHead) {
		return integrity.Answer{}, fmt.Errorf("agent %s answered an audit head of %d bytes", id, len(r.AuditHead))
	}
	for name, sum := range r.Tables {
		if len(sum) != 32 {
			return integrity.Answer{}, fmt.Errorf("agent %s answered a digest of %d bytes", id, len(sum))
		}
		a.Tables[name] = [32]byte(sum)
	}
	return a, nil
}

// askQuarantine informs a member, which may be this one, that its state is wrong.
func (m *Member) askQuarantine(ctx context.Context, id string, index uint64, tables []string) error {
	if id == m.cfg.ID {
		return m.quarantine(index, tables)
	}
	c, err := m.peer(id)
	if err != nil {
		return err
	}
	_, err = c.Quarantine(ctx, &pb.QuarantineRequest{Index: index, Tables: tables})
	return err
}

// peer returns a client of another voter.
func (m *Member) peer(id string) (pb.PeerClient, error) {
	addr, err := PeerAddr(m.cfg.Mesh, id)
	if err != nil {
		return nil, err
	}
	return m.cfg.Peers.Client(wire.Leader(addr, id).String())
}

// quarantine has the supervisor put this member's stores aside, because its state at a checkpoint is not
// that of a majority. It fails if the member no longer has the checkpoint, because the member has
// restarted or got another state since.
func (m *Member) quarantine(index uint64, tables []string) error {
	if m.Machine.Checkpoint(index) == nil {
		return fmt.Errorf("this agent no longer has its state at entry %d", index)
	}
	m.distrusted.Store(true)
	m.fault(fmt.Errorf("%w: the state at entry %d differs from that of a majority of the voters; tables that differ: %s",
		logstore.ErrDamaged, index, strings.Join(tables, ", ")))
	return nil
}

// fault has the supervisor put this member's stores aside if others can do without it.
func (m *Member) fault(reason error) {
	select {
	case m.faults <- reason:
	default: // an earlier fault has the same consequence
	}
}

const (
	// replaceTimeout is how long a member with a fault waits until others lead without it.
	replaceTimeout = 10 * time.Second
	// replacePause is the time between two queries for the leader.
	replacePause = 200 * time.Millisecond
)

// retire waits until another agent leads a group that has a majority without the faulty member. Then
// it ends the member, so that its stores are put aside. Until then the member continues, because the
// group may need it.
func (s *Supervisor) retire(ctx context.Context, m *Member, end context.CancelCauseFunc) {
	for {
		select {
		case <-ctx.Done():
			return
		case reason := <-m.faults:
			s.cfg.Logger.Error("the Raft member has a fault; its stores are put aside once others can do without it", "error", reason)
			if s.replaceable(ctx) {
				end(reason)
				return
			}
			s.cfg.Logger.Warn("the faulty Raft member goes on, because no majority of other voters has a leader", "error", reason)
		}
	}
}

// replaceable hands over the leadership and reports whether others lead without this agent.
func (s *Supervisor) replaceable(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, replaceTimeout)
	defer cancel()
	for {
		s.HandOver()
		if s.othersLead(ctx) {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(replacePause):
		}
	}
}

// Sums answers the leader with the digests of this agent's state at a checkpoint.
func (s Server) Sums(ctx context.Context, r *pb.SumsRequest) (*pb.SumsResponse, error) {
	m := s.Supervisor.Member()
	if m == nil {
		return nil, status.Error(codes.Unavailable, "this agent's Raft member is not running")
	}
	a, err := m.sums(ctx, r.Index)
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	out := &pb.SumsResponse{Encoder: a.Encoder, Tables: map[string][]byte{}, AuditSeq: a.Audit.Seq, AuditHead: a.Audit.Hash[:]}
	for name, sum := range a.Tables {
		out.Tables[name] = sum[:]
	}
	return out, nil
}

// Quarantine puts this agent's state aside at the request of the leader.
func (s Server) Quarantine(ctx context.Context, r *pb.QuarantineRequest) (*pb.QuarantineResponse, error) {
	m := s.Supervisor.Member()
	if m == nil {
		return nil, status.Error(codes.Unavailable, "this agent's Raft member is not running")
	}
	leader, _ := m.Group.Leader()
	if caller, ok := wire.CallerID(ctx); ok && caller != leader {
		return nil, status.Error(codes.PermissionDenied, "only the leader may ask for this")
	}
	if err := m.quarantine(r.Index, r.Tables); err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	return &pb.QuarantineResponse{}, nil
}
