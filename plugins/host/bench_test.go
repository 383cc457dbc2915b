package host

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/proto"
)

// cpu returns the CPU time of this process, and that of its plugins with their ended children.
func cpu(h *Host) (ours, plugins time.Duration) {
	var ru syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &ru)
	ours = time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
	files, _ := filepath.Glob(filepath.Join(h.left.dir, "*.json"))
	for _, f := range files {
		b, _ := os.ReadFile("/proc/" + strings.TrimSuffix(filepath.Base(f), ".json") + "/stat")
		if fields := strings.Fields(string(b)); len(fields) > 16 {
			for _, x := range fields[13:15] {
				n, _ := strconv.Atoi(x)
				plugins += time.Duration(n) * 10 * time.Millisecond
			}
		}
	}
	return ours, plugins
}

// BenchmarkNoop measures tasks that do nothing, through a live process.
func BenchmarkNoop(b *testing.B) {
	input, err := json.Marshal(model.TaskInput{TaskID: "x", Config: model.TaskConfig{
		Cluster: map[string]any{"hadoop": map[string]any{"core_site": map[string]any{"fs.defaultFS": "hdfs://test-1000.local",
			"io.file.buffer.size": "65536"}}},
		Service: &model.TaskService{Name: "hadoop-hdfs-datanode",
			Action: model.TaskAction{Type: "chaos", Fields: map[string]any{"run_list": "recipe[hadoop]"}}},
	}})
	if err != nil {
		b.Fatal(err)
	}
	for _, callers := range []int{1, 16, 256, 2048} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			h := newHost(b, nil)
			h.Execute(b.Context(), task("warm", nil), nil)
			ours, plugins := cpu(h)
			var next atomic.Int64
			var wg sync.WaitGroup
			b.ResetTimer()
			for range callers {
				wg.Go(func() {
					for {
						i := next.Add(1)
						if i > int64(b.N) {
							return
						}
						r := h.Execute(b.Context(), &proto.Task{
							Id: "op/" + strconv.Itoa(int(i)), Fence: uint64(i), Attempt: 1, Tenant: "t", Cluster: "00000001", Operation: "op", Node: "n",
							Action: "START", Service: "s", Plugin: "chaos", Automator: true, TimeoutMs: 600_000, Input: input,
						}, nil)
						if r.Outcome != proto.Outcome_OUTCOME_SUCCEEDED {
							b.Error(r)
						}
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			o, p := cpu(h)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
			b.ReportMetric(float64((o-ours).Microseconds())/float64(b.N), "host-cpu-µs/task")
			b.ReportMetric(float64((p-plugins).Microseconds())/float64(b.N), "plugin-cpu-µs/task")
		})
	}
}

// BenchmarkScript measures shell tasks on one node.
func BenchmarkScript(b *testing.B) {
	for _, c := range []struct{ name, script string }{{"true", "#!/bin/sh\n:"}, {"echo", "#!/bin/sh\necho $COOPR_SERVICE\n"}} {
		b.Run(c.name, func(b *testing.B) {
			l := newLab(b, nil)
			n := l.node("00000001", 1000)
			n.up()
			defer n.down()
			input := n.task("START", "s", map[string]any{"script": c.script}).Input
			callers := 8 * runtime.NumCPU()
			var next atomic.Int64
			var wg sync.WaitGroup
			ours, plugins := cpu(l.Host)
			b.ResetTimer()
			for range callers {
				wg.Go(func() {
					for {
						i := next.Add(1)
						if i > int64(b.N) {
							return
						}
						r := l.Execute(b.Context(), &proto.Task{
							Id: "op/" + strconv.Itoa(int(i)), Fence: uint64(i), Attempt: 1, Cluster: n.cluster, Operation: "op", Node: n.id(),
							Action: "START", Service: "s", Plugin: "shell", Automator: true, TimeoutMs: 600_000, Input: input,
						}, nil)
						if r.Outcome != proto.Outcome_OUTCOME_SUCCEEDED {
							b.Error(r)
						}
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			o, p := cpu(l.Host)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
			b.ReportMetric(float64((o-ours).Microseconds())/float64(b.N), "host-cpu-µs/task")
			b.ReportMetric(float64((p-plugins).Microseconds())/float64(b.N), "plugin-cpu-µs/task")
		})
	}
}

// BenchmarkStart measures the time from no process to a task's result.
func BenchmarkStart(b *testing.B) {
	h := newHost(b, nil)
	if err := h.Wait(b.Context()); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if r := h.Execute(b.Context(), task("x", nil), nil); r.Outcome != proto.Outcome_OUTCOME_SUCCEEDED {
			b.Fatal(r)
		}
		b.StopTimer()
		h.mu.RLock()
		sup := h.plugs[typeKey{true, "chaos"}].sup
		h.mu.RUnlock()
		sup.mu.Lock()
		p := sup.cur
		sup.cur = nil
		sup.mu.Unlock()
		p.close(errIdle)
		b.StartTimer()
	}
}

// BenchmarkNew measures the start of an agent whose plugins are in the cache.
func BenchmarkNew(b *testing.B) {
	l := newLab(b, nil)
	if err := l.Wait(b.Context()); err != nil {
		b.Fatal(err)
	}
	cfg := l.cfg
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		h, err := New(cfg)
		if err != nil {
			b.Fatal(err)
		}
		if len(h.Types()) != 2 {
			b.Fatal(h.Types())
		}
		if err := h.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
