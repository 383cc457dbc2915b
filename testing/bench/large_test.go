package bench

import (
	"bytes"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/coopr/coopr/agent"
	"github.com/coopr/coopr/engine/model"
)

// BenchmarkLargeOperation creates a cluster of 10,000 nodes with 50 tasks each
// (LARGE_NODES: other sizes), through three agents and a plugin that does
// nothing, from the request to the committed end. In the middle a follower is
// restarted: restart-ms is until it has all that was committed when it ended.
// The heap is that of all three agents, at its largest.
func BenchmarkLargeOperation(b *testing.B) {
	nodes := 10000
	if text := os.Getenv("LARGE_NODES"); text != "" {
		var err error
		if nodes, err = strconv.Atoi(text); err != nil {
			b.Fatal(err)
		}
	}
	const services = 47
	for range b.N {
		m := newMesh(b, "wal", 256, 3)
		m.define(services, []string{"install"}, model.ServiceAction{Type: "chaos", Fields: map[string]any{}},
			model.Provider{ProviderType: "chaos"})
		tasks := nodes * (services + 3)
		begin, c0 := time.Now(), cpuTime()
		var st startedOp
		m.call("POST", "/v1/clusters", model.CreateCluster{Name: "large", ClusterTemplate: "t", NumMachines: model.Int(nodes)}, &st)
		b.ReportMetric(float64(time.Since(begin).Milliseconds()), "accepted-ms")
		largest := m.follow(st.Operation.ID, func(done int) bool { return done >= tasks/2 })
		b.ReportMetric(float64(m.restart().Milliseconds()), "restart-ms")
		largest = max(largest, m.follow(st.Operation.ID, func(done int) bool { return done >= tasks }))
		m.wait(st.Operation.ID)
		took := time.Since(begin)
		b.ReportMetric(float64(tasks)/took.Seconds(), "tasks/s")
		b.ReportMetric(float64((cpuTime()-c0).Microseconds())/float64(tasks), "cpu-µs/task")
		b.ReportMetric(float64(largest)/(1<<20), "heap-MiB")
		b.ReportMetric(float64(m.size("raft"))/(1<<20), "log-MiB")
		b.ReportMetric(float64(m.snapshot())/(1<<20), "snapshot-MiB")
	}
}

// follow polls an operation until enough of its tasks are done. It returns the largest heap seen
// meanwhile.
func (m *mesh) follow(op string, enough func(done int) bool) (largest uint64) {
	m.b.Helper()
	for {
		var o struct {
			Status   model.OperationStatus
			Progress model.Progress
		}
		m.call("GET", "/v1/operations/"+op, nil, &o)
		var ms runtime.MemStats
		runtime.ReadMemStats(&ms)
		largest = max(largest, ms.HeapAlloc)
		if o.Status.Ended() || enough(o.Progress.Done) {
			return largest
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// restart ends a follower and starts it again. It returns the time until its state has caught up
// with that of the leader at the restart.
func (m *mesh) restart() time.Duration {
	m.b.Helper()
	i := slices.IndexFunc(m.agents, func(a *agent.Agent) bool { return a != m.leader })
	m.stops[i]()
	begin, want := time.Now(), m.index()
	m.run(i)
	for {
		req, _ := http.NewRequest("GET", "http://"+m.agents[i].Addr()+"/v1/providers?consistency=stale", nil)
		req.Header.Set("Authorization", "Bearer "+m.leader.Token())
		if res, err := http.DefaultClient.Do(req); err == nil {
			res.Body.Close()
			if at, err := strconv.Atoi(res.Header.Get("Coopr-Index")); err == nil && at >= want {
				return time.Since(begin)
			}
		}
		if time.Since(begin) > time.Minute {
			m.b.Fatal("the agent does not come back")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// size returns how many bytes the first agent keeps in a folder of its data.
func (m *mesh) size(folder string) (n int64) {
	m.b.Helper()
	err := filepath.WalkDir(filepath.Join(m.configs[0].DataDir, folder), func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	})
	if err != nil {
		m.b.Fatal(err)
	}
	return n
}

// snapshot returns the size of the whole state.
func (m *mesh) snapshot() int {
	m.b.Helper()
	req, _ := http.NewRequest("GET", "http://"+m.leader.Addr()+"/v1/operator/snapshot", nil)
	req.Header.Set("Authorization", "Bearer "+m.leader.Token())
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		m.b.Fatal(err)
	}
	defer res.Body.Close()
	var buf bytes.Buffer
	if _, err := buf.ReadFrom(res.Body); err != nil || res.StatusCode != http.StatusOK {
		m.b.Fatal(res.Status, err)
	}
	return buf.Len()
}
