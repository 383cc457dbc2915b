package state_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/coopr/coopr/consensus/state"
	pb "github.com/coopr/coopr/rpc/proto"
)

// BenchmarkResult applies the results of leased tasks, a fixed number in each entry, for plans of
// very different sizes. A result must cost the same in all of them. ns/op is for one result. The
// time to make the entries and the leases is not measured.
func BenchmarkResult(b *testing.B) {
	const op, window = "00000001-001", 1024
	for _, tasks := range []int{1_000, 500_000, 1_000_000} {
		for _, pack := range []int{1, 64, 1024} {
			b.Run(fmt.Sprintf("tasks=%d/pack=%d", tasks, pack), func(b *testing.B) {
				var m *state.Machine
				var ready []uint32
				var index uint64
				b.ReportAllocs()
				for done := 0; done < b.N; {
					b.StopTimer()
					if len(ready) == 0 {
						m, index = bigPlan(b, tasks), 2
						s, _ := m.View().Plan(op)
						ready = s.Leasable()
					}
					n := min(window, len(ready), b.N-done)
					now := ready[:n]
					ready = ready[n:]
					index++
					fence := index
					if a := do(b, m, entry(index, 1, lease(op, "s", now...)))[0]; len(a.Refused) > 0 {
						b.Fatal("a lease was refused")
					}
					var logs []*raft.Log
					for part := range slices.Chunk(now, pack) {
						index++
						r := &pb.Report{Operation: op, Tasks: part, Fences: slices.Repeat([]uint64{fence}, len(part))}
						logs = append(logs, entry(index, 1, &pb.Command{Change: &pb.Command_Report{Report: r}}))
					}
					answers := make([]any, len(logs))
					b.StartTimer()
					for i, l := range logs {
						answers[i] = m.Apply(l)
					}
					b.StopTimer()
					for _, raw := range answers {
						a := raw.([][]state.Answer)[0][0]
						if len(a.Refused) > 0 {
							b.Fatal("a result was refused")
						}
						ready = append(ready, a.Ready...)
					}
					done += n
				}
			})
		}
	}
}
