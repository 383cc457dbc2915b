package state_test

import (
	"errors"
	"testing"

	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

func putDataKey(tenant string, number uint32) *pb.Command {
	return &pb.Command{Actor: "coopr", Change: &pb.Command_PutDataKey{PutDataKey: &pb.PutDataKey{
		Tenant: tenant, Number: number, MeshKey: 1, MeshPrint: []byte("print"), Wrapped: []byte("wrapped"),
	}}}
}

func putSealed(tenant, id string, version uint32) *pb.Command {
	return &pb.Command{Actor: "coopr", Change: &pb.Command_PutSealed{PutSealed: &pb.PutSealed{
		Tenant: tenant, Values: []*pb.SealedValue{{Id: id, Version: version, Sealed: []byte("sealed")}},
	}}}
}

func TestSealed(t *testing.T) {
	c := newClinic(t)
	for _, step := range []struct {
		what string
		do   *pb.Command
		want error
	}{
		{"the first key of the mesh", putDataKey("", 1), nil},
		{"a key again", putDataKey("", 1), problem.Stale},
		{"a key too far", putDataKey("", 3), problem.Stale},
		{"the first key of a tenant", putDataKey("t", 1), nil},
		{"a key of nobody", putDataKey("nobody", 1), problem.NotFound},
		{"a value", putSealed("t", "a", 1), nil},
		{"a version again", putSealed("t", "a", 1), problem.Stale},
		{"the next version", putSealed("t", "a", 2), nil},
		{"the second version first", putSealed("t", "b", 2), problem.Stale},
		{"a value without id", putSealed("t", "", 1), problem.Stale},
		{"a value of the mesh", putSealed("", "a", 1), nil},
		{"a value of nobody", putSealed("nobody", "a", 1), problem.NotFound},
	} {
		if a := c.do(step.do); !errors.Is(a.Err, step.want) {
			t.Errorf("%s: %v", step.what, a.Err)
		}
	}
	v := c.m.View()
	if k, ok := v.DataKey("t"); !ok || k.Number != 1 || string(k.Wrapped) != "wrapped" {
		t.Error(k, ok)
	}
	if r, ok := v.LatestSealed("t", "a"); !ok || r.Version != 2 {
		t.Error(r, ok)
	}
	if print := v.MeshKeys()[1]; string(print) != "print" {
		t.Errorf("the mesh key is %q", print)
	}
}

func putSecret(value *pb.SealedValue, users ...string) *pb.Command {
	return &pb.Command{Tenant: "t", Actor: "ann", Change: &pb.Command_ChangeRuns{ChangeRuns: &pb.ChangeRuns{Change: &pb.ChangeRuns_Put{
		Put: &pb.PutSetting{Kind: pb.SettingKind_SETTING_KIND_SECRET, Name: "s", Order: pb.SettingOrder_SETTING_ORDER_PUT, UsableBy: users,
			Value: &pb.PutSetting_Sealed{Sealed: value}},
	}}}}
}

// TestSealedSecret writes a secret again and again: the state has its latest value only.
func TestSealedSecret(t *testing.T) {
	c := newClinic(t)
	deleted := putSecret(nil)
	deleted.GetChangeRuns().GetPut().Order = pb.SettingOrder_SETTING_ORDER_DELETE
	clear := putSecret(nil)
	clear.GetChangeRuns().GetPut().Value = &pb.PutSetting_Secret{Secret: []byte("clear")}
	reseal := func(id string) *pb.Command {
		return &pb.Command{Actor: "coopr", Change: &pb.Command_Reseal{Reseal: &pb.Reseal{Secrets: []*pb.ResealedSecret{
			{Tenant: "t", Name: "s", Value: sealedValue(id, 1)}, {Tenant: "t", Name: "gone", Value: sealedValue("gone", 1)},
		}}}}
	}
	for _, step := range []struct {
		what    string
		do      *pb.Command
		want    error
		id      string
		version uint32
	}{
		{"the first version", putSecret(sealedValue("a", 1)), nil, "a", 1},
		{"the same version", putSecret(sealedValue("a", 1)), problem.Stale, "a", 1},
		{"another value", putSecret(sealedValue("b", 1)), problem.Stale, "a", 1},
		{"the next version", putSecret(sealedValue("a", 2)), nil, "a", 2},
		{"a clear value sealed, that is not", reseal("r"), nil, "a", 2},
		{"its end", deleted, nil, "", 0},
		{"in the clear", clear, nil, "", 0},
		{"a clear value sealed", reseal("r"), nil, "r", 1},
		{"its next version", putSecret(sealedValue("r", 2)), nil, "r", 2},
	} {
		if a := c.do(step.do); !errors.Is(a.Err, step.want) {
			t.Errorf("%s: %v", step.what, a.Err)
		}
		v := c.m.View()
		if r, _ := v.Secret("t", "s"); r.ID != step.id || r.Version != step.version || r.ID != "" && r.Value != "" {
			t.Errorf("%s: the secret is %+v", step.what, r)
		}
		want := 0
		if step.id != "" {
			want = 1
		}
		if n := v.Rows()["sealed"]; n != want {
			t.Errorf("%s: %d values are kept", step.what, n)
		}
	}
}

func sealedValue(id string, version uint32) *pb.SealedValue {
	return &pb.SealedValue{Id: id, Version: version, Sealed: []byte("sealed")}
}
