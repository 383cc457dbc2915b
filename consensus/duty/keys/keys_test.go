package keys

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/sealed"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
	"github.com/coopr/coopr/testing/doubles/memkeys"
)

// group is a group of voters of which the first one leads, and has the only copy of the state.
type group struct {
	*state.Machine
	ahead time.Duration // how far the leader's clock is ahead
	t     *testing.T
	index uint64
	rings map[string]*keyring.Ring // of the voters that answer
	level map[string]uint32
	led   string // the voter that was handed the leadership
	c     *Controller

	keeps   map[string]bool // the voters whose logs reach back too far, so that they erase no keys
	written []string        // values
}

// copied returns a store with the keys of a ring.
func copied(r *keyring.Ring) keyring.Store {
	s := &memkeys.Store{}
	_ = s.Save(r.Set()) // it never fails
	return s
}

func newGroup(t *testing.T, level uint32) *group {
	m, err := state.New(state.Config{})
	if err != nil {
		t.Fatal(err)
	}
	g := &group{Machine: m, t: t, rings: map[string]*keyring.Ring{}, level: map[string]uint32{}, keeps: map[string]bool{}}
	for _, id := range []string{"a", "b", "c"} {
		g.rings[id], g.level[id] = newRing(t), state.FeatureLevel
	}
	g.term("a")
	if _, err := g.propose(t.Context(),
		&pb.Command{Change: &pb.Command_RaiseFeatureLevel{RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: level, Mesh: "m"}}},
		&pb.Command{Change: &pb.Command_PutTenant{PutTenant: &pb.PutTenant{Tenant: &record.Tenant{Name: "t"}}}}); err != nil {
		t.Fatal(err)
	}
	return g
}

func newRing(t *testing.T) *keyring.Ring {
	r, err := keyring.Open(&memkeys.Store{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var errSilent = errors.New("no answer")

// term begins a term of a voter.
func (g *group) term(leader string) {
	ring := g.rings[leader]
	answer := func(id string) (*keyring.Ring, error) {
		if r := g.rings[id]; r != nil {
			return r, nil
		}
		return nil, errSilent
	}
	g.c = New(Config{
		Machine: g.Machine, Propose: g.propose, Box: sealed.NewBox(g.Machine, g.propose, ring), Ring: ring, ID: leader,
		Members: func() []Member { return []Member{{"a", true}, {"b", true}, {"c", true}} },
		Ask: func(_ context.Context, id string) (Status, error) {
			r, err := answer(id)
			if err != nil {
				return Status{}, err
			}
			e, err := r.Exported()
			return Status{FeatureLevel: g.level[id], Prints: prints(r.Set()), Exported: e}, err
		},
		Put: func(_ context.Context, id string, s keyring.Set) error {
			r, err := answer(id)
			if err != nil {
				return err
			}
			return r.Put(s)
		},
		Retire: func(_ context.Context, id string, active uint32, numbers []uint32, _ uint64) (bool, error) {
			r, err := answer(id)
			if err != nil || g.keeps[id] {
				return false, err
			}
			for _, n := range numbers {
				if Needs(g.View(), n) {
					return false, errors.New("the key is needed")
				}
			}
			return true, r.Drop(active, numbers...)
		},
		CA:       fakeCA{},
		HandOver: func(_ context.Context, id string) error { g.led = id; return nil },
		Logger:   slog.New(slog.DiscardHandler),
	})
}

func (g *group) propose(_ context.Context, commands ...*pb.Command) ([]state.Answer, error) {
	b, err := proto.Marshal(&pb.Entry{Format: state.Format, FeatureLevel: state.FeatureLevel, MustUnderstand: true, Commands: commands,
		NowMs: time.Now().Add(g.ahead).UnixMilli()}) // the leader removes old values that nothing names

	if err != nil {
		return nil, err
	}
	g.index++
	var out []state.Answer
	for _, a := range g.Apply(&raft.Log{Type: raft.LogCommand, Index: g.index, Data: b}).([][]state.Answer) {
		out = append(out, a...)
	}
	return out, nil
}

// have returns the voters that have the keys which the state names.
func (g *group) have() (out []string) {
	for _, id := range slices.Sorted(maps.Keys(g.rings)) {
		if named := g.View().MeshKeys(); len(named) > 0 && len(lacking(named, prints(g.rings[id].Set()))) == 0 {
			out = append(out, id)
		}
	}
	return out
}

func TestFirstKey(t *testing.T) {
	g := newGroup(t, state.FeatureLevel)
	c := g.rings["c"]
	delete(g.rings, "b")
	delete(g.rings, "c")
	if err := g.c.round(t.Context()); err == nil || len(g.View().MeshKeys()) > 0 {
		t.Fatal("a key that a minority has is in use:", err)
	}
	if _, err := g.c.Sealer.Seal(t.Context(), "t", "v", 1, []byte("x")); !errors.Is(err, problem.NoMajority) {
		t.Error("sealed:", err)
	}
	g.rings["c"] = c
	if _, err := g.c.Sealer.Seal(t.Context(), "t", "v", 1, []byte("x")); err != nil {
		t.Error(err)
	}
	if got := g.have(); !slices.Equal(got, []string{"a", "c"}) {
		t.Error("the keys are with", got)
	}
	g.rings["b"] = newRing(t)
	if err := g.c.round(t.Context()); err != nil {
		t.Error(err)
	}
	if got := g.have(); len(got) != 3 {
		t.Error("the keys are with", got)
	}
}

// TestFirstKeyTwice has the first leader die before the state names its key. The key of the second one takes its place.
func TestFirstKeyTwice(t *testing.T) {
	g := newGroup(t, state.FeatureLevel)
	if err := g.rings["a"].Put(keyring.Set{Active: 1, Keys: []keyring.Key{keyring.NewKey(1)}}); err != nil {
		t.Fatal(err)
	}
	g.term("b")
	if err := g.c.round(t.Context()); err != nil || len(g.have()) != 3 {
		t.Error(g.have(), err)
	}
}

func TestHandsOver(t *testing.T) {
	g := newGroup(t, state.FeatureLevel)
	if err := g.c.round(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.rings["a"], g.rings["b"] = newRing(t), newRing(t)
	g.term("a")
	if err := g.c.round(t.Context()); err != nil || g.led != "c" {
		t.Errorf("handed to %q: %v", g.led, err)
	}
	delete(g.rings, "c")
	g.led = ""
	if err := g.c.round(t.Context()); !errors.Is(err, keyring.ErrNoKey) || g.led != "" {
		t.Errorf("handed to %q: %v", g.led, err)
	}
	if len(g.rings["a"].Set().Keys) > 0 {
		t.Error("a new key in the place of a lost one")
	}
}

func TestAdmit(t *testing.T) {
	g := newGroup(t, state.FeatureLevel)
	if err := g.c.round(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.rings["d"] = newRing(t)
	if err := g.c.Admit(t.Context(), "d", Status{}); err != nil || len(g.have()) != 4 {
		t.Error(g.have(), err)
	}
	if err := g.c.Admit(t.Context(), "e", Status{}); !errors.Is(err, errSilent) {
		t.Error("admitted without keys:", err)
	}
}

// TestUpgrading has the leader run the new build and one voter that of the level before. All get the keys, also
// a voter that comes later.
func TestUpgrading(t *testing.T) {
	g := newGroup(t, logformat.SealedLevel)
	g.level["c"] = logformat.SealedLevel
	for range 2 {
		if err := g.c.round(t.Context()); err == nil || g.View().FeatureLevel() != logformat.SealedLevel {
			t.Error("with an old member: level", g.View().FeatureLevel(), err)
		}
		if got := g.have(); len(got) != 3 || len(g.View().MeshKeys()) != 1 {
			t.Error("the keys are with", got)
		}
		g.rings["b"] = newRing(t) // another agent takes its place
	}
	if _, err := g.c.Sealer.Seal(t.Context(), "t", "v", 1, []byte("x")); err != nil {
		t.Error("the first value of a mesh that is upgraded:", err)
	}
}

// TestRaise upgrades a mesh: nothing of the new level is written before all members understand it.
func TestRaise(t *testing.T) {
	g := newGroup(t, 1)
	g.level["c"] = 1
	if err := g.c.round(t.Context()); err == nil || g.View().FeatureLevel() != 1 || len(g.View().MeshKeys()) > 0 {
		t.Error("with an old member: level", g.View().FeatureLevel(), err)
	}
	g.level["c"] = state.FeatureLevel
	if err := g.c.round(t.Context()); err != nil || g.View().FeatureLevel() != state.FeatureLevel || len(g.have()) != 3 {
		t.Error("level", g.View().FeatureLevel(), g.have(), err)
	}
}
