package objects

import (
	"fmt"
	"testing"
	"time"

	"github.com/coopr/coopr/engine/change/compile"
	"github.com/coopr/coopr/examples/storage/installation"
	"github.com/coopr/coopr/testing/doubles/sitegen"
)

// BenchmarkStorage brings a storage installation (C11) up over three runtimes with
// real goroutines and streams in one process, every transition taking a millisecond:
// the time against the longest chain of transitions that follow from one another,
// and messages and packets between runtimes an object.
func BenchmarkStorage(b *testing.B) {
	for _, servers := range []int{4, 32} {
		b.Run(fmt.Sprintf("servers=%d", servers), func(b *testing.B) {
			agents := []string{"a", "b", "c"}
			doc := installation.Document(installation.Config{Servers: servers, Host: func(s int) string { return "agent:" + agents[s%3] }})
			doc.Name = "s"
			whole, err := compile.Site(doc, compile.Options{})
			if err != nil {
				b.Fatal(err)
			}
			chain := time.Duration(sitegen.LongestChain(whole)) * time.Millisecond
			for b.Loop() {
				w := newWard(b, agents...)
				w.action = time.Millisecond
				begin := time.Now()
				w.apply(doc)
				w.converge()
				took := time.Since(begin)
				w.mu.Lock()
				messages := 0
				for _, n := range w.sent {
					messages += n
				}
				b.ReportMetric(float64(took)/float64(chain), "x-longest-chain")
				b.ReportMetric(float64(messages)/float64(len(doc.Objects)), "messages/object")
				b.ReportMetric(float64(w.packets)/float64(len(doc.Objects)), "packets/object")
				b.ReportMetric(float64(len(doc.Objects))/took.Seconds(), "objects/s")
				w.mu.Unlock()
				for _, a := range agents {
					w.kill(a)
				}
			}
		})
	}
}
