package bench

import (
	"runtime"
	"testing"
	"time"
)

// BenchmarkIdle measures an idle mesh of three: the share of a core for each agent (leader and
// followers together), and memory.
func BenchmarkIdle(b *testing.B) {
	newMesh(b, "boltdb", 16, 3)
	converged := time.Now().Add(10 * time.Second) // elections and joins are over
	for time.Now().Before(converged) {
		runtime.Gosched()
		time.Sleep(time.Second)
	}
	b.ResetTimer()
	begin, c0 := time.Now(), cpuTime()
	for range b.N {
		time.Sleep(10 * time.Second)
	}
	b.ReportMetric(100*(cpuTime()-c0).Seconds()/time.Since(begin).Seconds()/3, "%core/agent")
	var ms runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&ms)
	b.ReportMetric(float64(ms.HeapAlloc)/3/(1<<20), "heap-MiB/agent")
}
