package audit

import (
	"fmt"
	"testing"

	"github.com/coopr/coopr/engine/model"
)

// BenchmarkTasks writes the records of a plan's tasks, three for each task (queued, taken,
// finished), in log entries that change a given number of tasks each. B/record is the memory
// that the log takes.
func BenchmarkTasks(b *testing.B) {
	const nodes = 10_000
	p := samplePlan("00000001-001", "one", nodes)
	for _, pack := range []int{1, 16, 256, 1024} {
		b.Run(fmt.Sprintf("pack=%d", pack), func(b *testing.B) {
			w := (&Trail{}).Write()
			w.Tasks(&Tasks{Plan: p, Index: 1, Items: []TaskChange{{To: model.TaskReady}}})
			items := make([]TaskChange, 0, 2*pack)
			index, v, done := uint64(1), uint32(0), 0
			b.ReportAllocs()
			for b.Loop() {
				index += 2
				for _, finished := range []bool{false, true} {
					items = items[:0]
					for i := range pack {
						at := (v + uint32(i)*2) % (2 * nodes)
						agent := [...]string{"agent-1", "agent-2"}[i%2]
						if !finished {
							items = append(items, TaskChange{Vertex: at, From: model.TaskReady, To: model.TaskLeased, Attempt: 1, Fence: index, Agent: agent})
							continue
						}
						items = append(items, TaskChange{Vertex: at, From: model.TaskLeased, To: model.TaskSucceeded, Attempt: 1, Fence: index, Agent: agent},
							TaskChange{Vertex: at + 1, From: model.TaskBlocked, To: model.TaskReady})
					}
					w.Tasks(&Tasks{Plan: p, Index: index, Time: int64(index), Actor: "coopr", Items: items})
				}
				v = (v + uint32(pack)*2) % (2 * nodes)
				done += pack
				if w.t.records > 5_000_000 {
					b.StopTimer()
					w.Prune(Limits{Before: 1 << 60}, nil)
					b.StartTimer()
				}
			}
			s := w.Done().Stats()
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(done), "ns/task")
			b.ReportMetric(float64(s.Bytes)/float64(s.Records), "B/record")
		})
	}
}

// BenchmarkDrop drops the oldest tenth of a tenant's records that lie between those of others.
func BenchmarkDrop(b *testing.B) {
	const records = 1_000_000
	w := (&Trail{}).Write()
	for i := range records {
		tenant := "loud"
		if i%10 == 0 {
			tenant = "quiet"
		}
		w.Change(&Change{Index: uint64(i), Time: int64(i), Type: "definition.changed", Tenant: tenant, Actor: "ann", Subject: "services/db"})
	}
	tr := w.Done()
	for b.Loop() {
		w := tr.Write()
		if n := w.Prune(Limits{Tenants: map[string]uint64{"loud": records * 8 / 10}}, nil); n != records/10 {
			b.Fatal(n)
		}
	}
}
