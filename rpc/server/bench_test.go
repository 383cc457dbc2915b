package server_test

import (
	"slices"
	"testing"
	"time"

	"github.com/coopr/coopr/rpc/server/apitest"
)

// BenchmarkRead reads a cluster, and a list of clusters, over HTTP, and reports the median of one request.
func BenchmarkRead(b *testing.B) {
	for name, path := range map[string]string{"cluster": "/v1/clusters/web", "list": "/v1/clusters"} {
		b.Run(name, func(b *testing.B) {
			w := newWorld(b)
			w.template()
			w.cluster("web", "3")
			var took []time.Duration
			for b.Loop() {
				start := time.Now()
				w.must(200, apitest.User, "GET", path, "")
				took = append(took, time.Since(start))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
		})
	}
}
