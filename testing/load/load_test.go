//go:build linux

// The clients need addresses of their own, which only Linux has on its loopback interface.

package load

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"
)

const (
	strangers = 500
	requests  = 400       // of the other tenant in the benchmark
	growth    = 160 << 20 // bytes in use that an agent may grow by: 80 to 115 MiB were measured, and 418 MB without bounds on answers
)

// TestHostileTenantAndStrangers loads an agent with a tenant that does what it can, and with 500 connections without a valid
// token, half of them slow. Another tenant's requests are answered meanwhile, the agent does not grow much, and afterwards
// all is as before.
func TestHostileTenantAndStrangers(t *testing.T) {
	a := startAgent(t)
	quiet, hostile := a.caller(a.newTenant("quiet"), "127.0.0.1"), a.newTenant("hostile")
	// A member whose disk stalls gives the leadership up, and says so: the request is repeated, as clients do.
	ask := func(method, name, body string) {
		t.Helper()
		a.until(method+" "+name, func() string {
			status, answer := quiet.ask(method, "/v1/services/"+name, body)
			switch status {
			case http.StatusServiceUnavailable:
				return answer
			case http.StatusOK:
			default:
				t.Errorf("%s %s: %d %s", method, name, status, answer)
			}
			return ""
		})
	}
	work := func(i int) {
		t.Helper()
		name := fmt.Sprint("mine-", i%10)
		ask("PUT", name, fmt.Sprintf(`{"name":%q,"description":"number %d"}`, name, i))
		ask("GET", name, "")
	}
	for i := range 50 {
		work(i)
	}
	before := a.size()
	x := newAttack(a)
	x.strangers(strangers)
	x.tenant(hostile)
	var most size
	rounds := 0
	// The attack lasts until all that it tries was answered often enough, and the other tenant's requests were.
	a.until("the load is what it should be", func() string {
		for range 5 {
			work(rounds)
			rounds++
		}
		now := a.size()
		most.heap, most.goroutines, most.resident = max(most.heap, now.heap), max(most.goroutines, now.goroutines), max(most.resident, now.resident)
		for status, want := range map[int]int64{200: 20, 401: 200, 429: 5000} {
			if x.statuses[status].Load() < want {
				return x.String()
			}
		}
		if rounds < 20 {
			return fmt.Sprintf("%d rounds", rounds)
		}
		return ""
	})
	x.end()
	t.Logf("answers: %s", x)
	t.Logf("before: %+v, at most: %+v", before, most)
	if most.heap-before.heap > growth {
		t.Errorf("the heap grew by %d MiB", (most.heap-before.heap)>>20)
	}
	a.until("all is released", func() string {
		now := a.size()
		if now.active > before.active || now.goroutines > before.goroutines+20 {
			return fmt.Sprintf("%+v, before: %+v", now, before)
		}
		return ""
	})
	t.Logf("afterwards: %+v", a.size())
}

// BenchmarkOthers measures the requests of a tenant alone, and under the load of another tenant and of strangers.
func BenchmarkOthers(b *testing.B) {
	a := startAgent(b)
	quiet, hostile := a.caller(a.newTenant("quiet"), "127.0.0.1"), a.newTenant("hostile")
	measure := func() (took []time.Duration) {
		for i := range requests {
			start := time.Now()
			name := fmt.Sprint("mine-", i/2%10)
			if i%2 == 0 {
				quiet.ask("PUT", "/v1/services/"+name, fmt.Sprintf(`{"name":%q,"description":"number %d"}`, name, i))
			} else if status, body := quiet.ask("GET", "/v1/services/"+name, ""); status != http.StatusOK {
				b.Error(status, body)
			}
			took = append(took, time.Since(start))
		}
		slices.Sort(took)
		return took
	}
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	for b.Loop() {
		alone := measure()
		x := newAttack(a)
		x.strangers(strangers)
		x.tenant(hostile)
		among := measure()
		x.end()
		b.ReportMetric(ms(alone[requests/2]), "alone-p50-ms")
		b.ReportMetric(ms(alone[requests*99/100]), "alone-p99-ms")
		b.ReportMetric(ms(among[requests/2]), "among-p50-ms")
		b.ReportMetric(ms(among[requests*99/100]), "among-p99-ms")
		b.ReportMetric(ms(among[requests*99/100])/ms(alone[requests*99/100]), "p99-ratio")
		b.Log(x)
	}
}
