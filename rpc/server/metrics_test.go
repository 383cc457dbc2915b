package server_test

import (
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/coopr/coopr/rpc/server/apitest"
	"github.com/coopr/coopr/rpc/server/rest"
)

// metric returns the sum of the series of a family that have the labels; of a histogram, it is the number of observations.
func (w *world) metric(name string, labels prometheus.Labels) (sum float64) {
	w.t.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.Metric {
			if has(m, labels) {
				sum += m.Counter.GetValue() + m.Gauge.GetValue() + float64(m.Histogram.GetSampleCount())
			}
		}
	}
	return sum
}

func has(m *dto.Metric, labels prometheus.Labels) bool {
	found := 0
	for _, l := range m.Label {
		if v, ok := labels[l.GetName()]; ok && v == l.GetValue() {
			found++
		}
	}
	return found == len(labels)
}

// TestMetricsOfRequests expects that open streams are counted while they are open, and that the durations have neither these nor
// blocking reads.
func TestMetricsOfRequests(t *testing.T) {
	w := serveWithin(t, newAgent(t), rest.Bounds{Tenants: true}, nil)
	read := prometheus.Labels{"route": "listClusters", "method": "GET"}
	const durations = "coopr_api_request_duration_seconds"
	w.must(200, apitest.User, "GET", "/v1/clusters", "")
	w.must(200, apitest.User, "GET", "/v1/clusters?index=99999&wait=1ms", "")
	eventually(t, "both reads were counted", func() bool { return w.metric("coopr_api_requests_total", read) == 2 })
	if n := w.metric(durations, read); n != 1 {
		t.Errorf("the durations have %v reads, not the one that did not wait", n)
	}

	before := w.metric(durations, nil)
	events := w.events(apitest.User, "")
	if n := w.metric("coopr_api_streams_active", nil); n != 1 {
		t.Errorf("%v streams are open", n)
	}
	if n := w.metric("coopr_api_requests_active", nil); n != 1 {
		t.Errorf("%v requests are being answered", n)
	}
	events.close()
	eventually(t, "the stream was closed", func() bool {
		return w.metric("coopr_api_streams_active", nil) == 0 && w.metric("coopr_api_requests_active", nil) == 0
	})
	if n := w.metric(durations, nil); n != before {
		t.Errorf("%v durations after a stream, %v before", n, before)
	}
}

func TestMetricsOfRefusals(t *testing.T) {
	w := newWorld(t)
	for _, x := range []struct {
		code, token, method, path string
		status                    int
	}{
		{"unauthorized", "nobody's", "GET", "/v1/clusters", http.StatusUnauthorized},
		{"forbidden", apitest.Guest, "PUT", "/v1/services/x", http.StatusForbidden},
	} {
		w.must(x.status, x.token, x.method, x.path, "")
		eventually(t, "a refusal was counted: "+x.code, func() bool {
			return w.metric("coopr_api_refused_total", prometheus.Labels{"code": x.code}) == 1
		})
	}
	w.must(http.StatusMethodNotAllowed, apitest.Guest, "BREW", "/v1/clusters", "")
	w.must(http.StatusMethodNotAllowed, apitest.Guest, "STEEP", "/v1/clusters", "")
	eventually(t, "unknown methods share a label", func() bool {
		return w.metric("coopr_api_requests_total", prometheus.Labels{"method": "other"}) == 2
	})
}
