package bench

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/coopr/coopr/engine/change/compile"
	"github.com/coopr/coopr/engine/change/sim"
	"github.com/coopr/coopr/examples/storage/installation"
	"github.com/coopr/coopr/testing/doubles/sitegen"
)

// BenchmarkChangeObjects brings storage installations (C11) up from nothing, from
// 1,000 to 500,000 objects: objects a second, bytes an object with all its links
// and with its definition, messages and packets a dependency between hosts, and the
// time against the longest chain of transitions that follow from one another
// (docs/spec/changes.md, "Scale").
func BenchmarkChangeObjects(b *testing.B) {
	for _, objects := range []int{1_000, 10_000, 100_000, 500_000} {
		b.Run(fmt.Sprintf("objects=%d", objects), func(b *testing.B) {
			servers := objects / installation.ObjectsPerServer
			before := heap()
			s, err := compile.Site(installation.Document(installation.Config{Servers: servers}), compile.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defs := heap() - before
			var took time.Duration
			runs := 0
			for b.Loop() {
				before := heap()
				begin := time.Now()
				x := sim.New(sim.Config{Site: s, Agents: servers, Delay: 1, MoveTime: 10, Lenient: true})
				if !x.RunUntilRest(1_000_000) {
					b.Fatal("it never converged")
				}
				took += time.Since(begin)
				runs++
				sent, packets, _ := x.Sent()
				messages := 0
				for _, n := range sent {
					messages += n
				}
				b.ReportMetric(float64(objects*runs)/took.Seconds(), "objects/s")
				b.ReportMetric(float64(heap()-before)/float64(objects), "B/object")
				b.ReportMetric(float64(defs)/float64(objects), "B/definition")
				b.ReportMetric(float64(messages)/float64(max(x.Asked, 1)), "messages/dependency")
				b.ReportMetric(float64(packets)/float64(max(x.Asked, 1)), "packets/dependency")
				b.ReportMetric(float64(x.Last())/float64(10*sitegen.LongestChain(s)), "x-longest-chain")
				runtime.KeepAlive(x)
			}
			runtime.KeepAlive(s)
		})
	}
}

// heap returns the number of bytes in use.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
