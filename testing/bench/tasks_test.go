package bench

import (
	"fmt"
	"net/http"
	"sort"
	"syscall"
	"testing"
	"time"

	"github.com/coopr/coopr/engine/model"
)

// BenchmarkTasks runs a cluster's creation: tasks that do nothing (noop) or run a real script
// (script), through lease, fence, live plugin and committed result on three agents with logs on
// disk. The main figure is tasks/s.
func BenchmarkTasks(b *testing.B) {
	for _, store := range []string{"wal", "boltdb"} {
		b.Run("noop/"+store, func(b *testing.B) {
			benchmarkTasks(b, store, 500, 40, 256, model.ServiceAction{Type: "chaos", Fields: map[string]any{}},
				model.Provider{ProviderType: "chaos"})
		})
		b.Run("script/"+store, func(b *testing.B) {
			benchmarkTasks(b, store, 30, 50, 16, model.ServiceAction{Type: "shell", Fields: map[string]any{"script": "#!/bin/sh\n:\n"}},
				model.Provider{ProviderType: "local"})
		})
	}
}

func benchmarkTasks(b *testing.B, store string, nodes, services, slots int, action model.ServiceAction, provider model.Provider) {
	m := newMesh(b, store, slots, 3)
	m.define(services, []string{"install"}, action, provider)
	total, spent, entries := 0, time.Duration(0), 0
	var cpu time.Duration
	b.ResetTimer()
	for i := range b.N {
		var st startedOp
		m.call("POST", "/v1/clusters", model.CreateCluster{Name: fmt.Sprintf("c%d", i), ClusterTemplate: "t", NumMachines: model.Int(nodes)}, &st)
		begin, c0, i0 := time.Now(), cpuTime(), m.index()
		m.wait(st.Operation.ID)
		spent += time.Since(begin)
		cpu += cpuTime() - c0
		entries += m.index() - i0
		total += nodes * (services + 3)
		b.StopTimer()
		var del startedOp
		m.call("DELETE", "/v1/clusters/"+st.Operation.Cluster, nil, &del)
		m.wait(del.Operation.ID)
		b.StartTimer()
	}
	b.ReportMetric(float64(total)/spent.Seconds(), "tasks/s")
	b.ReportMetric(float64(cpu.Microseconds())/float64(total), "cpu-µs/task")
	b.ReportMetric(float64(total)/float64(entries), "tasks/entry")
}

// cpuTime returns the processor time of this process, that is of all three agents without their
// plugins.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkOperation measures an operation of one task, from the request to its committed end as
// seen by the client. p50 and p99 are in milliseconds.
func BenchmarkOperation(b *testing.B) {
	for _, store := range []string{"wal", "boltdb"} {
		b.Run(store, func(b *testing.B) {
			m := newMesh(b, store, 16, 3)
			m.define(1, []string{"start", "stop"}, model.ServiceAction{Type: "chaos"}, model.Provider{ProviderType: "chaos"})
			var st startedOp
			m.call("POST", "/v1/clusters", model.CreateCluster{Name: "one", ClusterTemplate: "t", NumMachines: 1}, &st)
			m.wait(st.Operation.ID)
			var times []float64
			b.ResetTimer()
			for i := range b.N {
				verb := []string{"stop", "start"}[i%2]
				begin := time.Now()
				var op startedOp
				m.call(http.MethodPost, "/v1/clusters/one/services/s00/"+verb, map[string]any{}, &op)
				m.wait(op.Operation.ID)
				times = append(times, float64(time.Since(begin).Microseconds())/1000)
			}
			sort.Float64s(times)
			b.ReportMetric(times[len(times)/2], "p50-ms")
			b.ReportMetric(times[len(times)*99/100], "p99-ms")
		})
	}
}
