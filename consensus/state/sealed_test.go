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
