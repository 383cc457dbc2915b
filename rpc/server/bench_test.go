package server_test

import (
	"slices"
	"testing"
	"time"

	"github.com/coopr/coopr/rpc/server/apitest"
)

// BenchmarkRead reads a cluster, and a list of clusters, over HTTP: as a user, about whom policies decide, and as root, about whom
// they do not, in turns. It reports the median of one request of each, and their ratio.
func BenchmarkRead(b *testing.B) {
	for name, path := range map[string]string{"cluster": "/v1/clusters/web", "list": "/v1/clusters"} {
		b.Run(name, func(b *testing.B) {
			w := newWorld(b)
			w.template()
			w.cluster("web", "3")
			var took [2][]time.Duration
			for b.Loop() {
				for i, token := range []string{apitest.Root, apitest.User} {
					start := time.Now()
					w.must(200, token, "GET", path+"?tenant=acme", "")
					took[i] = append(took[i], time.Since(start))
				}
			}
			var median [2]float64
			for i := range took {
				slices.Sort(took[i])
				median[i] = float64(took[i][len(took[i])/2].Nanoseconds()) / 1000
			}
			b.ReportMetric(median[0], "root-p50-µs")
			b.ReportMetric(median[1], "user-p50-µs")
			b.ReportMetric(median[1]/median[0], "ratio")
		})
	}
}
