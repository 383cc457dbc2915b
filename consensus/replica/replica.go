// Package replica connects a Raft member to the replicated state. It commits commands and returns
// their answers, and it makes sure that a read is as fresh as the caller requires.
package replica

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/logstore"
	"github.com/coopr/coopr/consensus/propose"
	"github.com/coopr/coopr/consensus/raftgroup"
	"github.com/coopr/coopr/consensus/state"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Config configures a Replica. ID, Transport and Stores are required.
type Config struct {
	ID        string
	Transport raft.Transport
	Stores    *logstore.Stores
	Timing    raftgroup.Timing
	Logger    *slog.Logger
	// OnSick is called when the member can no longer work; see raftgroup.Config.
	OnSick func(error)
	// OnHalt is called when the log holds an entry that this build does not understand.
	OnHalt      func(error)
	RecoveryDir string
	// Now is the clock for the time of entries. If it is nil, it is time.Now.
	Now func() time.Time
}

// Replica is one agent's copy of the state and its part in the Raft group.
type Replica struct {
	Machine *state.Machine
	Group   *raftgroup.Group
	propose *propose.Proposer[[]*pb.Command, []state.Answer]
}

// partSize is the largest size of one part of a large command, in bytes.
const partSize = 512 << 10

// New starts the member; see raftgroup.New.
func New(cfg Config) (*Replica, error) {
	m, err := state.New(state.Config{OnHalt: cfg.OnHalt})
	if err != nil {
		return nil, err
	}
	g, err := raftgroup.New(raftgroup.Config{
		ID: cfg.ID, FSM: m, Transport: cfg.Transport, Stores: cfg.Stores, Timing: cfg.Timing,
		Logger: cfg.Logger, OnSick: cfg.OnSick, RecoveryDir: cfg.RecoveryDir,
	})
	if err != nil {
		return nil, err
	}
	now := cfg.Now
	if now == nil {
		now = time.Now
	}
	encode := func(groups [][]*pb.Command) ([]byte, error) { return encode(now(), m.View().FeatureLevel(), groups) }
	p, err := propose.New(propose.Config[[]*pb.Command, []state.Answer]{Encode: encode, Apply: g.Apply, Size: size})
	if err != nil {
		return nil, err
	}
	return &Replica{Machine: m, Group: g, propose: p}, nil
}

func size(cs []*pb.Command) int {
	n := 16
	for _, c := range cs {
		n += proto.Size(c) + 4
	}
	return n
}

// encode encodes groups of commands into one log entry, which carries the time of its proposal and the feature
// level of the mesh. A level of 0 is that of a new mesh, which has no older agents.
func encode(now time.Time, level uint32, groups [][]*pb.Command) ([]byte, error) {
	e := &pb.Entry{Format: state.Format, FeatureLevel: cmp.Or(level, state.FeatureLevel), MustUnderstand: true, NowMs: now.UnixMilli(),
		Bounds: state.Bounds}
	for _, g := range groups {
		e.Commands = append(e.Commands, g...)
		e.Groups = append(e.Groups, uint32(len(g)))
	}
	return logformat.Marshal(e)
}

// Propose commits commands together in one log entry and returns an answer for
// each. It fails as a whole, for example with raftgroup.ErrNotLeader (nothing was done) or
// raftgroup.ErrUnknownOutcome. A single command of more than partSize bytes is sent in
// parts.
func (r *Replica) Propose(ctx context.Context, commands ...*pb.Command) ([]state.Answer, error) {
	if !r.Machine.View().Understands(logformat.AuditLevel) {
		for _, c := range commands {
			c.Source, c.Agent = "", "" // voters of older builds do not write them into the audit log
		}
	}
	if len(commands) == 1 && proto.Size(commands[0]) > partSize {
		return r.inParts(ctx, commands[0])
	}
	return r.propose.Propose(ctx, commands)
}

func (r *Replica) inParts(ctx context.Context, c *pb.Command) ([]state.Answer, error) {
	data, err := logformat.Marshal(c)
	if err != nil {
		return nil, err
	}
	id := rand.Text()
	total := (len(data) + partSize - 1) / partSize
	for i := range total {
		piece := data[i*partSize : min(len(data), (i+1)*partSize)]
		answers, err := r.propose.Propose(ctx, []*pb.Command{{Tenant: c.Tenant,
			Change: &pb.Command_Part{Part: &pb.Part{Id: id, Number: uint32(i), Total: uint32(total), Data: piece}}}})
		if err != nil || answers[0].Err != nil || i == total-1 {
			return answers, err
		}
	}
	return nil, errors.New("an empty command")
}

// Fresh waits until a read from the Machine sees every write that was answered
// before the call. If lease is true and the leader holds its lease, Fresh relies on it; otherwise the
// leader asks a majority. Leader only.
func (r *Replica) Fresh(ctx context.Context, lease bool) error {
	if lease && r.Group.HasLease() {
		return nil
	}
	index, err := r.Group.ReadIndex(ctx)
	if err != nil {
		return err
	}
	return r.Group.WaitApplied(ctx, index)
}

// Restore replaces the whole state with that of a snapshot taken at index. The next entry of the log
// gets an index above both that index and the end of the log. Otherwise a younger mesh would continue
// at its own, lower index, and assign fences that the restored state has used already.
func (r *Replica) Restore(ctx context.Context, index uint64, size int64, in io.Reader) error {
	if err := r.Group.Restore(ctx, &raft.SnapshotMeta{Version: 1, Index: index, Size: size}, in); err != nil {
		return fmt.Errorf("restore a snapshot: %w", err)
	}
	return nil
}
