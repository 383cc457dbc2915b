package state_test

import (
	"slices"
	"testing"

	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/consensus/state/view"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/roster"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
	"github.com/coopr/coopr/testing/doubles/logtest"
)

// TestExposed has a secret, a provider with two versions, clusters, one with the provider's password and one with a password of its own, and users,
// one of them with a refresh token.
func TestExposed(t *testing.T) {
	c := newClinic(t)
	must := func(cmd *pb.Command) {
		t.Helper()
		if a := c.do(cmd); a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	ref := func(id string) string { return model.SealedRef{ID: id, Version: 1}.String() }
	must(&pb.Command{Change: &pb.Command_RaiseFeatureLevel{RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: 2}}})
	for _, id := range []string{"first", "second", "own"} {
		must(putSealed("t", id, 1))
	}
	must(putSecret(sealedValue("s", 1)))
	for _, name := range []string{"ann", "anna", "bob"} {
		must(created(name, ""))
	}
	must(putSealed("", table.LoginID("t", "anna"), 1))
	definition := func(name, field string) *pb.Command {
		return &pb.Command{Tenant: "t", Actor: "ann", Change: &pb.Command_PutDefinitions{PutDefinitions: &pb.PutDefinitions{
			Definitions: []*pb.Definition{{Kind: "providers", Name: name,
				Body: []byte(`{"name":"` + name + `","providertype":"x","provisioner":{"password":"` + field + `"}}`)}}}}}
	}
	must(definition("p", ref("first")))
	must(definition("p", ref("second")))
	must(definition("harmless", "in the clear"))
	for id, secret := range map[string]string{"00000002": "second", "00000003": "own"} {
		cmd := start("t", id, id, 1, "delete", "")
		cmd.GetStartOperation().Cluster = logtest.Cluster(model.Cluster{ID: id, Tenant: "t", Name: "c" + id, Operation: id + "-001", Operations: 1,
			Provider: model.Provider{Base: model.Base{Name: "p"}, ProviderType: "x", Provisioner: map[string]any{"password": ref(secret)}}})
		must(cmd)
	}
	want := []view.Exposed{{Tenant: "t", Kind: "clusters", Name: "c00000003"}, {Tenant: "t", Kind: "providers", Name: "p"},
		{Tenant: "t", Kind: "secrets", Name: "s"}, {Tenant: "t", Kind: "users", Name: "anna"}}
	if got := c.m.View().Exposed(); !slices.Equal(got, want) {
		t.Errorf("exposed are %v", got)
	}
}

// TestRemovalsAndRotations removes an agent between two rotations of the CA, while the clocks of leaders go back. Times are in the order of the
// entries.
func TestRemovalsAndRotations(t *testing.T) {
	c := newClinic(t)
	must := func(cmd *pb.Command) {
		t.Helper()
		if a := c.do(cmd); a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	ca := func(number uint32, phase, next record.RotationPhase, was, sealed string, cas ...string) *pb.Command {
		r := &pb.Rotate{Kind: record.RotationKind_ROTATION_KIND_CA, Number: number, Phase: phase, Next: next, NoBridge: true,
			WasCa: []byte(was), SealedCa: []byte(sealed)}
		for _, x := range cas {
			r.Cas = append(r.Cas, []byte(x))
		}
		return &pb.Command{Actor: "ann", Change: &pb.Command_Rotate{Rotate: r}}
	}
	const both, one = "\x00\x00\x00\x01both", "\x00\x00\x00\x01one"
	for _, cmd := range []*pb.Command{
		{Change: &pb.Command_RaiseFeatureLevel{RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: 3, Mesh: "m"}}},
		foundMesh(), putDataKey("", 1), putJoinToken("t1", 1, 1<<50), admit("t1", "n2", "key 2"),
	} {
		must(cmd)
	}
	rotation := func(kind string) roster.Rotation {
		r, ok := c.m.View().Rotation(kind)
		if !ok {
			t.Fatal("no rotation of", kind)
		}
		return r
	}
	back := func() { c.now -= 100_000 }
	c.now = 1_000_000
	must(ca(1, begins, begun, "", ""))
	must(ca(1, begun, spread, "sealed key", both, "ca", "ca2"))
	must(ca(1, spread, active, both, one, "ca2", "ca"))
	must(ca(1, active, retire, one, one, "ca2"))
	must(ca(1, retire, ended, "", ""))
	first := rotation(roster.KindCA)
	back()
	must(&pb.Command{Change: &pb.Command_RemoveAgent{RemoveAgent: &pb.RemoveAgent{Id: "n2", Revoke: true}}})
	removed, _ := c.m.View().Identity("n2")
	if removed.Removed < first.Begun {
		t.Errorf("removed at %d, before the rotation that began at %d", removed.Removed, first.Begun)
	}
	back()
	must(&pb.Command{Actor: "coopr", Change: &pb.Command_Rotate{Rotate: &pb.Rotate{
		Kind: record.RotationKind_ROTATION_KIND_GOSSIP, Number: 1, Next: begun}}})
	gossip := rotation(roster.KindGossip)
	if gossip.Begun <= removed.Removed || gossip.Begun <= first.Since {
		t.Errorf("the key of gossip is replaced from %d on, the agent removed at %d, and the CA replaced at %d", gossip.Begun, removed.Removed,
			first.Since)
	}
	back()
	must(ca(2, begins, begun, "", ""))
	if r := rotation(roster.KindCA); r.Begun <= removed.Removed {
		t.Errorf("the rotation began at %d, and the agent was removed at %d", r.Begun, removed.Removed)
	}
	must(ca(2, begun, spread, one, both, "ca", "ca2"))
	must(ca(2, spread, active, both, one, "ca2", "ca"))
	must(ca(2, active, retire, one, one, "ca2"))
	must(ca(2, retire, ended, "", ""))
	if r := rotation(roster.KindCA); r.Since < gossip.Begun {
		t.Errorf("the CA is replaced at %d, before the rotation of the key of gossip that began at %d", r.Since, gossip.Begun)
	}
}
