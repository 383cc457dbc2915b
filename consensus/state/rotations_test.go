package state_test

import (
	"crypto/sha256"
	"errors"
	"slices"
	"testing"

	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/roster"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
)

// The phases of a rotation.
const (
	begins = record.RotationPhase_ROTATION_PHASE_UNSPECIFIED
	begun  = record.RotationPhase_ROTATION_PHASE_BEGUN
	spread = record.RotationPhase_ROTATION_PHASE_SPREAD
	active = record.RotationPhase_ROTATION_PHASE_ACTIVE
	retire = record.RotationPhase_ROTATION_PHASE_RETIRE
	ended  = record.RotationPhase_ROTATION_PHASE_DONE
)

func rotate(number uint32, phase, next record.RotationPhase) *pb.Command {
	r := &pb.Rotate{Kind: record.RotationKind_ROTATION_KIND_KEYRING, Number: number, Phase: phase, Next: next}
	if next == spread {
		r.Print = []byte("new print")
	}
	return &pb.Command{Actor: "ann", Change: &pb.Command_Rotate{Rotate: r}}
}

func rewrapped(tenant, was string) *pb.Command {
	return &pb.Command{Actor: "coopr", Change: &pb.Command_Reseal{Reseal: &pb.Reseal{Keys: []*pb.RewrappedKey{{
		Key: &pb.PutDataKey{Tenant: tenant, Number: 1, MeshKey: 2, MeshPrint: []byte("new print"), Wrapped: []byte("anew")}, Was: []byte(was),
	}}}}}
}

func TestRotate(t *testing.T) {
	c := newClinic(t)
	unknown, printless, behind := rotate(1, begins, begun), rotate(1, begun, spread), rotate(1, spread, spread)
	unknown.GetRotate().Kind = 99
	printless.GetRotate().Print = nil
	behind.GetRotate().Behind = []string{"c", "b"}
	dropped := func(number uint32) *pb.Command {
		return &pb.Command{Actor: "coopr", Change: &pb.Command_Reseal{Reseal: &pb.Reseal{Drop: []*pb.DataKeyName{{Tenant: "t", Number: number}}}}}
	}
	key := func(number, mesh uint32) *pb.Command {
		p := putDataKey("t", number)
		p.GetPutDataKey().MeshKey, p.GetPutDataKey().MeshPrint = mesh, []byte("new print")
		return p
	}
	value := func(id string, version, dataKey uint32) *pb.SealedValue {
		return &pb.SealedValue{Id: id, Version: version, Sealed: []byte{0, 0, 0, byte(dataKey), 'x'}}
	}
	put := func(v *pb.SealedValue) *pb.Command {
		return &pb.Command{Change: &pb.Command_PutSealed{PutSealed: &pb.PutSealed{Tenant: "t", Values: []*pb.SealedValue{v}}}}
	}
	again := func(v *pb.SealedValue) *pb.Command {
		return &pb.Command{Change: &pb.Command_Reseal{Reseal: &pb.Reseal{Values: []*pb.ResealedValue{{Tenant: "t", Value: v}}}}}
	}
	raise := func(level uint32) *pb.Command {
		return &pb.Command{Change: &pb.Command_RaiseFeatureLevel{RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: level, Mesh: "m"}}}
	}
	for _, step := range []struct {
		what string
		do   *pb.Command
		want error
	}{
		{"level 2", raise(2), nil},
		{"a rotation below its level", rotate(1, begins, begun), problem.Conflict},
		{"level 3", raise(3), nil},
		{"an unknown kind", unknown, problem.Invalid},
		{"without a key", rotate(1, begins, begun), problem.Conflict},
		{"the key of the mesh", putDataKey("", 1), nil},
		{"the key of a tenant", putDataKey("t", 1), nil},
		{"a value", put(value("v", 1, 1)), nil},
		{"a phase of no rotation", rotate(1, begun, spread), problem.Stale},
		{"the second rotation first", rotate(2, begins, begun), problem.Stale},
		{"in the middle", rotate(1, begins, active), problem.Invalid},
		{"the first rotation", rotate(1, begins, begun), nil},
		{"another one meanwhile", rotate(2, begins, begun), problem.Conflict},
		{"another number", rotate(2, begun, spread), problem.Stale},
		{"a phase left out", rotate(1, begun, active), problem.Invalid},
		{"a key without fingerprint", printless, problem.Invalid},
		{"a key on record", rotate(1, begun, spread), nil},
		{"a key on record again", rotate(1, begun, spread), problem.Stale},
		{"members behind", behind, nil},
		{"back", rotate(1, spread, begun), problem.Invalid},
		{"a data key with the new mesh key", key(2, 2), problem.Stale},
		{"the key in use", rotate(1, spread, active), nil},
		{"a data key with the old mesh key", key(2, 1), problem.Stale},
		{"the old key retired too early", rotate(1, active, retire), problem.Stale},
		{"a data key that has changed", rewrapped("", "another"), nil},
		{"the old key retired too early again", rotate(1, active, retire), problem.Stale},
		{"the mesh's data key", rewrapped("", "wrapped"), nil},
		{"a new data key", key(2, 2), nil},
		{"a data key that is used", dropped(1), nil},
		{"the old key retired too early once more", rotate(1, active, retire), problem.Stale},
		{"a value of no data key", again(value("v", 1, 3)), nil},
		{"a value that is not there", again(value("v", 2, 2)), nil},
		{"a value", again(value("v", 1, 2)), nil},
		{"the latest data key", dropped(2), nil},
		{"a data key that nothing uses", dropped(1), nil},
		{"a value of a data key that is gone", put(value("w", 1, 1)), problem.Stale},
		{"a value of the new data key", put(value("w", 1, 2)), nil},
		{"the old key retired", rotate(1, active, retire), nil},
		{"the end", rotate(1, retire, ended), nil},
		{"after the end", rotate(1, ended, ended+1), problem.Invalid},
	} {
		if a := c.do(step.do); !errors.Is(a.Err, step.want) {
			t.Fatalf("%s: %v", step.what, a.Err)
		}
		if step.do == behind {
			if r, _ := c.m.View().Rotation(roster.KindKeyring); len(r.Behind) != 2 || r.Behind[0] != "b" {
				t.Errorf("%+v", r)
			}
		}
	}
	v := c.m.View()
	if r, _ := v.Rotation(roster.KindKeyring); r.Phase != roster.RotationDone || r.MeshKey != 2 || r.Actor != "ann" || len(r.Behind) > 0 {
		t.Errorf("%+v", r)
	}
	if keys := v.MeshKeys(); len(keys) != 1 || string(keys[2]) != "new print" {
		t.Error("the mesh keys are", keys)
	}
	if k, _ := v.OldestDataKey("t"); k.Number != 2 {
		t.Error("the oldest data key is", k.Number)
	}
	if r, _ := v.Sealed("t", "v", 1); r.DataKeyNumber() != 2 {
		t.Error("the value has data key", r.DataKeyNumber())
	}
	phases := 0
	if err := v.Audit().Each(&audit.Filter{Types: []string{"rotation.created", "rotation.changed"}}, false, audit.Cursor{},
		func(audit.Record) bool { phases++; return true }); err != nil || phases != 5 {
		t.Error("records of", phases, "phases in the audit log", err)
	}
	if a := c.do(rotate(2, begins, begun)); a.Err != nil {
		t.Error(a.Err)
	}
	if r, _ := c.m.View().Rotation(roster.KindKeyring); r.MeshKey != 3 {
		t.Error("the second rotation has key", r.MeshKey)
	}
}

// TestRotateRoot replaces the root token: tokens that it has made for itself end, and no others.
func TestRotateRoot(t *testing.T) {
	c := newClinic(t)
	hash := sha256.Sum256([]byte("new"))
	next := func(number uint32, hash []byte) *pb.Command {
		return &pb.Command{Actor: "root", Tenant: model.FirstTenant, Change: &pb.Command_Rotate{Rotate: &pb.Rotate{
			Kind: record.RotationKind_ROTATION_KIND_ROOT, Number: number, Next: ended, RootHash: hash, RootActor: "root"}}}
	}
	if a := c.do(next(1, hash[:])); !errors.Is(a.Err, problem.Conflict) {
		t.Error("of a mesh without identity:", a.Err)
	}
	for _, do := range []*pb.Command{
		foundMesh(),
		{Change: &pb.Command_PutTenant{PutTenant: &pb.PutTenant{Tenant: &record.Tenant{Name: model.FirstTenant}}}},
		{Change: &pb.Command_PutToken{PutToken: &pb.PutToken{Id: "child", Hash: []byte("1"), Tenant: model.FirstTenant, Actor: "root", Role: "superadmin"}}},
		{Change: &pb.Command_PutToken{PutToken: &pb.PutToken{Id: "other", Hash: []byte("2"), Tenant: model.FirstTenant, Actor: "ann", Role: "superadmin"}}},
	} {
		if a := c.do(do); a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	if a := c.do(next(1, hash[:8])); !errors.Is(a.Err, problem.Invalid) {
		t.Error("half a hash:", a.Err)
	}
	if a := c.do(next(2, hash[:])); !errors.Is(a.Err, problem.Stale) {
		t.Error("the second first:", a.Err)
	}
	if a := c.do(next(1, hash[:])); a.Err != nil {
		t.Error(a.Err)
	}
	v := c.m.View()
	if string(v.MeshIdentity().RootHash) != string(hash[:]) {
		t.Error("the hash is the old one")
	}
	var left []string
	for _, x := range v.Tokens(model.FirstTenant) {
		left = append(left, x.ID)
	}
	if len(left) != 1 || left[0] != "other" {
		t.Error("tokens", left)
	}
}

// TestRotateGossip replaces the keys of gossip in each phase. What was encrypted meanwhile with another mesh key, or has replaced other keys, is
// refused.
func TestRotateGossip(t *testing.T) {
	c := newClinic(t)
	do := func(phase, next record.RotationPhase, was, gossip string) *pb.Command {
		return &pb.Command{Actor: "ann", Change: &pb.Command_Rotate{Rotate: &pb.Rotate{Kind: record.RotationKind_ROTATION_KIND_GOSSIP, Number: 1,
			Phase: phase, Next: next, Full: true, Gossip: []byte(gossip), WasGossip: []byte(was)}}}
	}
	const first, second, third, fourth = "sealed gossip", "\x00\x00\x00\x01both", "\x00\x00\x00\x01swapped", "\x00\x00\x00\x01new"
	raise := &pb.Command{Change: &pb.Command_RaiseFeatureLevel{RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: 3, Mesh: "m"}}}
	for _, step := range []struct {
		what string
		do   *pb.Command
		want error
		ring string
	}{
		{"below its level", do(begins, begun, "", ""), problem.Conflict, ""},
		{"level 3", raise, nil, ""},
		{"of agents that share a secret", do(begins, begun, "", ""), problem.Conflict, ""},
		{"a mesh", foundMesh(), nil, first},
		{"the key of the mesh", putDataKey("", 1), nil, first},
		{"in the middle", do(begins, active, "", ""), problem.Invalid, first},
		{"the first rotation", do(begins, begun, "", ""), nil, first},
		{"another one meanwhile", do(begins, begun, "", ""), problem.Conflict, first},
		{"without keys", do(begun, spread, first, ""), problem.Stale, first},
		{"with another mesh key", do(begun, spread, first, "\x00\x00\x00\x02both"), problem.Stale, first},
		{"in place of others", do(begun, spread, "others", second), problem.Stale, first},
		{"both keys", do(begun, spread, first, second), nil, second},
		{"both keys again", do(begun, spread, first, second), problem.Stale, second},
		{"agents behind", do(spread, spread, "", "x"), nil, second},
		{"the new one in use", do(spread, active, second, third), nil, third},
		{"the old one forgotten", do(active, retire, third, fourth), nil, fourth},
		{"the end", do(retire, ended, "", ""), nil, fourth},
	} {
		a := c.do(step.do)
		if !errors.Is(a.Err, step.want) {
			t.Fatalf("%s: %v", step.what, a.Err)
		}
		if m := c.m.View().MeshIdentity(); m != nil && string(m.SealedGossip) != step.ring {
			t.Fatalf("%s: the keys are %q", step.what, m.SealedGossip)
		}
	}
	if r, _ := c.m.View().Rotation(roster.KindGossip); r.Phase != roster.RotationDone || r.Full || r.MeshKey != 0 || string(c.m.View().MeshIdentity().SealedCA) != "sealed key" {
		t.Errorf("%+v", r)
	}
}

// TestRotateCA replaces the CAs and their key in each phase. The old one is known by a bridge for ninety days, or not at all.
func TestRotateCA(t *testing.T) {
	c := newClinic(t)
	number, noBridge := uint32(1), false
	do := func(phase, next record.RotationPhase, was, sealed, bridge string, cas ...string) *pb.Command {
		r := &pb.Rotate{Kind: record.RotationKind_ROTATION_KIND_CA, Number: number, Phase: phase, Next: next, NoBridge: noBridge,
			WasCa: []byte(was), SealedCa: []byte(sealed), Bridge: []byte(bridge)}
		for _, ca := range cas {
			r.Cas = append(r.Cas, []byte(ca))
		}
		return &pb.Command{Actor: "ann", Change: &pb.Command_Rotate{Rotate: r}}
	}
	must := func(what string, cmd *pb.Command, want error) {
		t.Helper()
		if a := c.do(cmd); !errors.Is(a.Err, want) {
			t.Fatalf("%s: %v", what, a.Err)
		}
	}
	const both, one = "\x00\x00\x00\x01both", "\x00\x00\x00\x01one"
	must("level 3", &pb.Command{Change: &pb.Command_RaiseFeatureLevel{RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: 3, Mesh: "m"}}}, nil)
	must("of agents that share a secret", do(begins, begun, "", "", ""), problem.Conflict)
	must("a mesh", foundMesh(), nil)
	must("the key of the mesh", putDataKey("", 1), nil)
	must("the first rotation", do(begins, begun, "", "", ""), nil)
	must("without a CA", do(begun, spread, "sealed key", both, ""), problem.Stale)
	must("with another mesh key", do(begun, spread, "sealed key", "both", "", "ca", "ca2"), problem.Stale)
	must("in place of another key", do(begun, spread, "key", both, "", "ca", "ca2"), problem.Stale)
	must("both", do(begun, spread, "sealed key", both, "", "ca", "ca2"), nil)
	must("without a bridge", do(spread, active, both, one, "", "ca2", "ca"), problem.Invalid)
	must("the new one signs", do(spread, active, both, one, "bridge", "ca2", "ca"), nil)
	must("the old one is not trusted", do(active, retire, one, one, "", "ca2"), nil)
	must("the end", do(retire, ended, "", "", ""), nil)
	m := c.m.View().MeshIdentity()
	if len(m.CAs) != 1 || string(m.CAs[0]) != "ca2" || string(m.SealedCA) != one || len(m.Bridges) != 1 || string(m.Bridges[0].Old) != "ca" ||
		string(m.Bridges[0].Certificate) != "bridge" || m.Bridges[0].Until <= c.now {
		t.Errorf("%+v", m)
	}
	// A second rotation keeps the bridge as long as it leads anywhere; one without a bridge drops it.
	rotates := func(bridge string, want ...string) {
		t.Helper()
		number++
		noBridge = bridge == ""
		must("begin", do(begins, begun, "", "", ""), nil)
		must("both", do(begun, spread, one, both, "", "ca", "ca2"), nil)
		must("sign", do(spread, active, both, one, bridge, "ca2", "ca"), nil)
		must("drop", do(active, retire, one, one, "", "ca2"), nil)
		must("end", do(retire, ended, "", "", ""), nil)
		var have []string
		for _, b := range c.m.View().MeshIdentity().Bridges {
			have = append(have, string(b.Certificate))
		}
		if !slices.Equal(have, want) {
			t.Errorf("the bridges are %v, not %v", have, want)
		}
	}
	rotates("second", "bridge", "second")
	c.now += 91 * 24 * 60 * 60 * 1000
	rotates("third", "third")
	rotates("")
}
