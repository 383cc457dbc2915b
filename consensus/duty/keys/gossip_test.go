package keys

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/roster"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
)

// firstGossip is the key of gossip of a new mesh.
var firstGossip = bytes.Repeat([]byte{7}, keyring.GossipKeySize)

// agents are agents that have sessions, with the keys of gossip that each uses.
type agents map[string]*pb.GossipRing

// newAgents founds a mesh with some agents.
func newAgents(g *group, ids ...string) agents {
	g.t.Helper()
	if err := g.c.round(g.t.Context()); err != nil {
		g.t.Fatal(err)
	}
	sealed, err := g.rings["a"].Seal(keyring.PurposeGossip("m"), firstGossip)
	if err != nil {
		g.t.Fatal(err)
	}
	caKey := bytes.Repeat([]byte{9}, 32)
	sealedCA, err := g.rings["a"].Seal(keyring.PurposeCA("m"), caKey)
	if err != nil {
		g.t.Fatal(err)
	}
	commands := []*pb.Command{{Change: &pb.Command_FoundMesh{FoundMesh: &pb.FoundMesh{
		Mesh: "m", Ca: fakeCert(caKey), SealedCa: sealedCA, SealedGossip: sealed, First: &record.AgentIdentity{Agent: ids[0], Role: roster.Voter},
		Tokens: []*record.JoinToken{{Id: "t", Hash: []byte("h"), Role: roster.Worker, Uses: 99, Expires: 1 << 60}},
	}}}}
	out := agents{}
	for i, id := range ids {
		if i > 0 {
			commands = append(commands, &pb.Command{Change: &pb.Command_AdmitAgent{AdmitAgent: &pb.AdmitAgent{
				Token: "t", Hash: []byte("h"), Agent: id, Key: "key of " + id}}})
		}
		commands = append(commands, &pb.Command{Change: &pb.Command_OpenSession{OpenSession: &pb.OpenSession{
			Session: "s" + id, Agent: id, Record: &record.Agent{Id: id}}}})
		out[id] = &pb.GossipRing{Keys: [][]byte{firstGossip}}
	}
	answers, err := g.propose(g.t.Context(), commands...)
	if err != nil {
		g.t.Fatal(err)
	}
	for i, a := range answers {
		if a.Err != nil {
			g.t.Fatal(commands[i], a.Err)
		}
	}
	return out
}

// follow sends agents what the leader has, and reports it to the leader. All of them must be able to read each other.
func (a agents) follow(g *group, ids ...string) {
	g.t.Helper()
	for _, id := range ids {
		ring, err := GossipRing(g.View(), g.c.cfg.Ring)
		if err != nil {
			g.t.Fatal(err)
		}
		a[id] = ring
		g.c.Followers.Hear("s"+id, id, ring.Version, 0)
		for x, from := range a {
			for y, to := range a {
				if !slices.ContainsFunc(to.Keys, func(k []byte) bool { return bytes.Equal(k, from.Keys[0]) }) {
					g.t.Fatalf("%s cannot read what %s sends, in %v", y, x, g.View().Rotations())
				}
			}
		}
	}
}

// beginGossip begins a rotation of the key of gossip.
func (g *group) beginGossip(number uint32) error {
	answers, err := g.propose(g.t.Context(), &pb.Command{Actor: "ann", Change: &pb.Command_Rotate{Rotate: &pb.Rotate{
		Kind: record.RotationKind_ROTATION_KIND_GOSSIP, Number: number, Next: record.RotationPhase_ROTATION_PHASE_BEGUN,
	}}})
	if err != nil {
		return err
	}
	return answers[0].Err
}

// TestRotateGossip rotates the key of gossip while leaders stop, agents follow one after the other, and the mesh key is rotated too.
func TestRotateGossip(t *testing.T) {
	for _, stop := range []string{"never", "after entries", "before entries"} {
		for _, both := range []bool{false, true} {
			t.Run(fmt.Sprintf("leaders stop %s, mesh key %t", stop, both), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := newGroup(t, state.FeatureLevel)
					all := newAgents(g, "a", "b", "w")
					if err := g.beginGossip(1); err != nil {
						t.Fatal(err)
					}
					if both {
						if err := g.begin(1, true); err != nil {
							t.Fatal(err)
						}
					}
					turns := 0
					for {
						r, _ := g.View().Rotation(roster.KindGossip)
						_, mesh := g.c.rotation()
						if r.Phase == roster.RotationDone && !mesh {
							break
						}
						if turns++; turns > 200 {
							t.Fatal("the rotation does not end:", g.View().Rotations())
						}
						if stop != "never" {
							g.term([]string{"a", "b", "c"}[turns%3])
							propose := g.c.cfg.Propose
							g.c.cfg.Propose = func(ctx context.Context, commands ...*pb.Command) ([]state.Answer, error) {
								if stop == "before entries" && turns%2 == 0 {
									return nil, errCrash
								}
								out, err := propose(ctx, commands...)
								return out, errors.Join(err, errCrash)
							}
						}
						for i, id := range []string{"a", "b", "w"} {
							if turns%3 == i || stop != "never" {
								all.follow(g, id)
							}
						}
						time.Sleep(rotateEvery)
						if err := g.c.round(t.Context()); err != nil && !errors.Is(err, errCrash) {
							t.Fatal(err)
						}
					}
					all.follow(g, "a", "b", "w")
					for id, ring := range all {
						if len(ring.Keys) != 1 || bytes.Equal(ring.Keys[0], firstGossip) {
							t.Errorf("%s has %d keys", id, len(ring.Keys))
						}
					}
					r, _ := g.View().Rotation(roster.KindGossip)
					if r.Number != 1 || r.Actor != "ann" || r.Full || len(r.Behind) > 0 {
						t.Errorf("%+v", r)
					}
					if _, err := GossipRing(g.View(), g.rings["b"]); err != nil {
						t.Error("another voter does not open the keys of gossip:", err)
					}
				})
			})
		}
	}
}

// TestRotateGossipWaits rotates while an agent that is alive does not follow: it is named, and the old key stays. An agent that is away is not
// waited for.
func TestRotateGossipWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, state.FeatureLevel)
		all := newAgents(g, "a", "b", "w")
		round := func(phase string, behind ...string) {
			t.Helper()
			time.Sleep(rotateEvery)
			if err := g.c.round(t.Context()); err != nil {
				t.Fatal(err)
			}
			r, _ := g.View().Rotation(roster.KindGossip)
			if r.Phase != phase || strings.Join(r.Behind, " ") != strings.Join(behind, " ") {
				t.Fatalf("phase %q, behind are %v", r.Phase, r.Behind)
			}
		}
		if err := g.beginGossip(1); err != nil {
			t.Fatal(err)
		}
		round(roster.RotationSpread) // the agents have not had time
		round(roster.RotationSpread, "a", "b", "w")
		all.follow(g, "a", "b")
		round(roster.RotationSpread, "w")
		index := g.View().Index()
		round(roster.RotationSpread, "w")
		if g.View().Index() != index {
			t.Error("a round in which nothing happened has written something")
		}
		all.follow(g, "w")
		round(roster.RotationActive)
		all.follow(g, "a", "b")
		g.c.Followers.Leave("sw")
		round(roster.RotationActive, "w")
		if _, err := g.propose(t.Context(), &pb.Command{Change: &pb.Command_EndSession{EndSession: &pb.EndSession{Session: "sw"}}}); err != nil {
			t.Fatal(err)
		}
		round(roster.RotationRetire)
		delete(all, "w")
		all.follow(g, "a", "b")
		round(roster.RotationDone)
		all.follow(g, "a", "b")
		if ring := all["a"]; len(ring.Keys) != 1 || bytes.Equal(ring.Keys[0], firstGossip) {
			t.Error("the old key is in use")
		}
	})
}

// TestNamesThoseBehind names agents that do not follow, also if the clock of the leader before was an hour ahead.
func TestNamesThoseBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, state.FeatureLevel)
		newAgents(g, "a", "w")
		g.ahead = time.Hour
		if err := errors.Join(g.beginGossip(1), g.c.round(t.Context())); err != nil {
			t.Fatal(err)
		}
		g.term("b")
		g.ahead = 0
		for range 2 {
			time.Sleep(rotateEvery)
			if err := g.c.round(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if r, _ := g.View().Rotation(roster.KindGossip); r.Phase != roster.RotationSpread || len(r.Behind) != 2 {
			t.Errorf("%+v", r)
		}
	})
}

// TestRemovalRotatesGossip removes agents: the key of gossip, which they have, is replaced. One that is removed during a rotation has both
// keys, so that another rotation follows.
func TestRemovalRotatesGossip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, state.FeatureLevel)
		all := newAgents(g, "a", "b", "w", "x")
		remove := func(id string) {
			t.Helper()
			time.Sleep(time.Second)
			if _, err := g.propose(t.Context(), &pb.Command{Change: &pb.Command_RemoveAgent{RemoveAgent: &pb.RemoveAgent{Id: id, Revoke: true}}}); err != nil {
				t.Fatal(err)
			}
			delete(all, id)
		}
		turn := func() roster.Rotation {
			t.Helper()
			time.Sleep(rotateEvery)
			if err := g.c.round(t.Context()); err != nil {
				t.Fatal(err)
			}
			for id := range all {
				all.follow(g, id)
			}
			r, _ := g.View().Rotation(roster.KindGossip)
			return r
		}
		if r := turn(); r.Number != 0 {
			t.Fatalf("nobody was removed: %+v", r)
		}
		remove("w")
		if r := turn(); r.Number != 1 || r.Actor != "coopr" {
			t.Fatalf("%+v", r)
		}
		remove("x")
		for range 9 {
			turn()
		}
		if r := turn(); r.Number != 2 || r.Phase != roster.RotationDone {
			t.Errorf("%+v", r)
		}
	})
}

// TestRemovalRotatesGossipOnce removes an agent while the clocks of leaders differ by an hour. The key of gossip is replaced once after that,
// whichever of the clocks was ahead.
func TestRemovalRotatesGossipOnce(t *testing.T) {
	for _, ahead := range []string{"the rotation before", "the removal", "the rotation after"} {
		t.Run(ahead+" is ahead", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGroup(t, state.FeatureLevel)
				all := newAgents(g, "a", "b", "w")
				by := func(what string) { // another leader
					g.term("a")
					if g.ahead = 0; what == ahead {
						g.ahead = time.Hour
					}
				}
				turns := func() roster.Rotation {
					t.Helper()
					for range 12 {
						time.Sleep(rotateEvery)
						if err := g.c.round(t.Context()); err != nil {
							t.Fatal(err)
						}
						for id := range all {
							all.follow(g, id)
						}
					}
					r, _ := g.View().Rotation(roster.KindGossip)
					return r
				}
				by("the rotation before")
				if err := g.beginGossip(1); err != nil {
					t.Fatal(err)
				}
				if r := turns(); r.Number != 1 || r.Phase != roster.RotationDone {
					t.Fatalf("%+v", r)
				}
				by("the removal")
				if _, err := g.propose(t.Context(), &pb.Command{Change: &pb.Command_RemoveAgent{RemoveAgent: &pb.RemoveAgent{Id: "w", Revoke: true}}}); err != nil {
					t.Fatal(err)
				}
				delete(all, "w")
				by("the rotation after")
				for range 2 {
					if r := turns(); r.Number != 2 || r.Phase != roster.RotationDone {
						t.Errorf("%+v", r)
					}
				}
			})
		})
	}
}
