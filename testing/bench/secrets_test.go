package bench

import (
	"fmt"
	"sort"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"
)

// BenchmarkStartWithSecrets is the time from the start of an agent's process until it leads, its duties run and its worker has a
// session, with sealed secrets in its state and without any.
func BenchmarkStartWithSecrets(b *testing.B) {
	for _, secrets := range []int{0, 10_000} {
		b.Run(fmt.Sprint(secrets), func(b *testing.B) {
			dir, gossip := b.TempDir(), freePort(b)
			start := func() *agentProcess {
				p := startAgentIn(b, dir, nil, "--gossip-addr", gossip)
				p.ready(b, 1)
				return p
			}
			p := start()
			putSecrets(b, p.api, secrets)
			p.stop()
			var times []float64
			b.ResetTimer()
			for range b.N {
				p := start()
				times = append(times, float64(time.Since(p.started).Microseconds())/1000)
				p.stop()
			}
			sort.Float64s(times)
			b.ReportMetric(times[len(times)/2], "p50-ms")
			b.ReportMetric(times[len(times)-1], "max-ms")
		})
	}
}

// putSecrets writes secrets of 100 bytes, 1,000 for each tenant.
func putSecrets(b *testing.B, addr string, count int) {
	b.Helper()
	value := strings.Repeat("s", 100)
	for t := range (count + 999) / 1000 {
		tenant := fmt.Sprintf("t%02d", t)
		if _, _, err := connect(b, addr).PutTenant(b.Context(), model.Tenant{Name: tenant}); err != nil {
			b.Fatal(err)
		}
		c, err := client.New(client.Config{Addresses: []string{addr}, Token: devToken, Tenant: tenant})
		if err != nil {
			b.Fatal(err)
		}
		var all errgroup.Group
		all.SetLimit(32)
		for i := range min(1000, count-1000*t) {
			all.Go(func() error { return c.PutSecret(b.Context(), fmt.Sprintf("s%04d", i), api.SecretBody{Value: value}) })
		}
		if err := all.Wait(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSealedProvider measures an operation that makes or deletes a machine, in turns with a provider that has a password, which
// the leader decrypts for each task, and with one that has none. p50s are in milliseconds; ratio is that of the first to the second.
func BenchmarkSealedProvider(b *testing.B) {
	m := newMesh(b, "wal", 16, 3)
	m.define(1, []string{"start"}, model.ServiceAction{Type: "chaos"}, model.Provider{ProviderType: "chaos"})
	fields := map[string]map[string]any{"sealed": {"api_password": "a-word-of-some-length"}, "clear": {"api_label": "a-word-of-some-length"}}
	sizes, images := map[string]map[string]any{}, map[string]map[string]any{}
	for name, f := range fields {
		m.call("PUT", "/v1/providers/"+name, model.Provider{Base: model.Base{Name: name}, ProviderType: "chaos", Provisioner: f}, nil)
		sizes[name], images[name] = map[string]any{"flavor": "x"}, map[string]any{"image": "x"}
	}
	m.call("PUT", "/v1/hardwaretypes/h", model.HardwareType{Base: model.Base{Name: "h"}, ProviderMap: sizes}, nil)
	m.call("PUT", "/v1/imagetypes/i", model.ImageType{Base: model.Base{Name: "i"}, ProviderMap: images}, nil)
	times := map[string][]float64{}
	timed := func(name string, run func() startedOp) {
		begin := time.Now()
		if op := m.wait(run().Operation.ID); op.Status != model.OpSucceeded {
			b.Fatal(op.Message)
		}
		times[name] = append(times[name], float64(time.Since(begin).Microseconds())/1000)
	}
	b.ResetTimer()
	for i := range b.N {
		for _, name := range []string{"sealed", "clear"} {
			cluster := fmt.Sprint(name, i)
			timed(name, func() (op startedOp) {
				m.call("POST", "/v1/clusters", model.CreateCluster{Name: cluster, ClusterTemplate: "t", NumMachines: 1, Provider: name}, &op)
				return op
			})
			timed(name, func() (op startedOp) {
				m.call("DELETE", "/v1/clusters/"+cluster, nil, &op)
				return op
			})
		}
	}
	p50 := map[string]float64{}
	for name, list := range times {
		sort.Float64s(list)
		p50[name] = list[len(list)/2]
		b.ReportMetric(p50[name], name+"-p50-ms")
	}
	b.ReportMetric(p50["sealed"]/p50["clear"], "ratio")
}
