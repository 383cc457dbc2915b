package state_test

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/hashicorp/raft"
	"pgregory.net/rapid"

	"github.com/coopr/coopr/consensus/state"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
)

var checkpoint = &pb.Command{Change: &pb.Command_Checkpoint{Checkpoint: &pb.Checkpoint{}}}

// TestCheckpoint applies one history, with checkpoints, to two machines in different batches. The
// machines have the same digests at each checkpoint, which are those of the state after that entry.
func TestCheckpoint(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		one, other := fresh(t), fresh(t)
		var log []*raft.Log
		points := map[uint64]state.Sums{}
		for i := range uint64(rapid.IntRange(1, 20).Draw(rt, "entries")) {
			index := i + 1
			var cs []*pb.Command
			for n := range rapid.IntRange(0, 2).Draw(rt, "tenants") {
				cs = append(cs, &pb.Command{Actor: "root", Change: &pb.Command_PutTenant{PutTenant: &pb.PutTenant{
					Tenant: &record.Tenant{Name: fmt.Sprintf("t%d-%d", index, n)}}}})
			}
			if point := rapid.Bool().Draw(rt, "checkpoint"); point {
				at := rapid.IntRange(0, len(cs)).Draw(rt, "place")
				cs = append(cs[:at:at], append([]*pb.Command{checkpoint}, cs[at:]...)...)
				points[index] = state.Sums{}
			}
			log = append(log, entry(index, 1000, cs...))
			one.Apply(log[i])
			if _, ok := points[index]; ok {
				sums, err := one.View().Sums()
				if err != nil {
					rt.Fatal(err)
				}
				points[index] = sums
			}
		}
		for rest := log; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(rt, "batch")
			if got := len(other.ApplyBatch(rest[:n])); got != n {
				rt.Fatalf("%d answers to %d entries", got, n)
			}
			rest = rest[n:]
		}
		kept := 0
		for index := uint64(len(log)); index > 0; index-- {
			want, ok := points[index]
			if ok {
				kept++
			}
			for _, m := range []*state.Machine{one, other} {
				c := m.Checkpoint(index)
				if (c != nil) != (ok && kept <= 3) {
					rt.Fatalf("entry %d: checkpoint %v", index, c != nil)
				}
				if c == nil {
					continue
				}
				if got, err := c.Sums(); err != nil || !reflect.DeepEqual(got, want) {
					rt.Fatalf("entry %d: other digests, %v", index, err)
				}
			}
		}
	})
}

// TestSumsNameTheTable changes one row, and expects the digest of its table and no other to differ.
func TestSumsNameTheTable(t *testing.T) {
	sums := func(role string) state.Sums {
		m := fresh(t)
		m.Apply(entry(1, 1000, &pb.Command{Change: &pb.Command_OpenSession{OpenSession: &pb.OpenSession{
			Session: "s", Agent: "a", Record: &record.Agent{Id: "a", Name: role}}}}))
		out, err := m.View().Sums()
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	one, other := sums("one"), sums("other")
	if one.Tables["agents"] == other.Tables["agents"] {
		t.Error("the digest does not depend on the rows")
	}
	one.Tables["agents"] = other.Tables["agents"]
	if !reflect.DeepEqual(one, other) {
		t.Error("other tables differ too")
	}
}
