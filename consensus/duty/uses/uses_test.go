package uses_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/coopr/coopr/consensus/duty/uses"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
)

const hour = 3_600_000

// mesh is a state without a Raft group, and the number of its entries.
type mesh struct {
	*state.Machine
	t     *testing.T
	index uint64
	now   int64
	fails error // of the next entry
	wrote chan struct{}
}

func newMesh(t *testing.T, tokens int) *mesh {
	machine, err := state.New(state.Config{})
	if err != nil {
		t.Fatal(err)
	}
	m := &mesh{Machine: machine, t: t, now: 500_000*hour + 1234, wrote: make(chan struct{}, 10)}
	commands := []*pb.Command{{Change: &pb.Command_PutTenant{PutTenant: &pb.PutTenant{Tenant: &record.Tenant{Name: "t", MaxTokens: 10_000}}}}}
	for i := range tokens {
		id := fmt.Sprintf("t%04d", i)
		commands = append(commands, &pb.Command{Change: &pb.Command_PutToken{PutToken: &pb.PutToken{
			Id: id, Hash: []byte(id), Actor: "ann", Tenant: "t", Role: "user",
		}}})
	}
	m.apply(commands...)
	return m
}

func (m *mesh) apply(commands ...*pb.Command) {
	m.t.Helper()
	m.index++
	b, err := proto.Marshal(&pb.Entry{Format: state.Format, FeatureLevel: state.FeatureLevel, MustUnderstand: true, NowMs: m.now, Commands: commands})
	if err != nil {
		m.t.Fatal(err)
	}
	m.Apply(&raft.Log{Type: raft.LogCommand, Index: m.index, Data: b})
}

func (m *mesh) recorder() *uses.Recorder {
	return uses.New(uses.Config{Machine: m.Machine, Logger: slog.New(slog.DiscardHandler),
		Propose: func(_ context.Context, commands ...*pb.Command) ([]state.Answer, error) {
			if err := m.fails; err != nil {
				m.fails = nil
				return nil, err
			}
			m.apply(commands...)
			m.wrote <- struct{}{}
			return make([]state.Answer, len(commands)), nil
		}})
}

func (m *mesh) used(id string, want int64) {
	m.t.Helper()
	if t, ok := m.View().Token(id); !ok || t.Used != want {
		m.t.Errorf("token %s: %+v, not used at %d", id, t, want)
	}
}

// Many uses of many tokens make one entry, and uses that are on record make none.
func TestUsesAreGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 2500)
		r := m.recorder()
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()
		this := model.Hour(m.now)
		for range 3 {
			for i := range 2500 {
				r.Note(this, fmt.Sprintf("t%04d", i))
			}
		}
		r.Note(this-hour, "t0007", "t0008", "unknown")
		<-m.wrote
		if m.index != 2 {
			t.Errorf("%d entries", m.index)
		}
		m.used("t0000", this)
		m.used("t0007", this)
		m.used("t2499", this)
		r.Note(this, "t0001", "t0002")
		r.Note(this-hour, "t0003")
		if err := r.Flush(ctx); err != nil || m.index != 2 {
			t.Errorf("%v, %d entries", err, m.index)
		}
		m.now += hour
		r.Note(this, "t0001") // an agent reported it late
		r.Note(this+hour, "t0002")
		<-m.wrote
		m.used("t0001", this)
		m.used("t0002", this+hour)
		stop()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// A use that could not be written is noted again with the next one.
func TestUsesAreLost(t *testing.T) {
	m := newMesh(t, 1)
	r := m.recorder()
	this := model.Hour(m.now)
	m.fails = errors.New("no longer the leader")
	r.Note(this, "t0000")
	if err := r.Flush(t.Context()); err == nil {
		t.Error("no error")
	}
	m.used("t0000", 0)
	if err := r.Flush(t.Context()); err != nil || m.index != 1 {
		t.Errorf("%v, %d entries", err, m.index)
	}
	r.Note(this, "t0000")
	if err := r.Flush(t.Context()); err != nil {
		t.Error(err)
	}
	m.used("t0000", this)
}
