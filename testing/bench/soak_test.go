package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"
)

// usage is what an agent's process holds at one moment.
type usage struct {
	rss, disk         float64 // MiB
	files, goroutines float64
}

// bounds are the smallest growths that count as such.
var bounds = usage{rss: 24, disk: 48, files: 16, goroutines: 32}

// parts names the parts of a usage.
var parts = []struct {
	name string
	of   func(usage) float64
}{
	{"MiB of memory", func(u usage) float64 { return u.rss }},
	{"MiB on disk", func(u usage) float64 { return u.disk }},
	{"open files", func(u usage) float64 { return u.files }},
	{"goroutines", func(u usage) float64 { return u.goroutines }},
}

// BenchmarkSoak creates clusters and deletes them, SOAK_RATE a minute for SOAK_TIME, on three agents
// with the shortest retention, and fails if memory, disk, open files or goroutines of an agent still
// grow after the first sixth of the time. It is skipped without SOAK_TIME: "make soak" takes an hour.
func BenchmarkSoak(b *testing.B) {
	length, err := time.ParseDuration(os.Getenv("SOAK_TIME"))
	if err != nil {
		b.Skip("make soak")
	}
	rate := 100
	if text := os.Getenv("SOAK_RATE"); text != "" {
		if _, err := fmt.Sscan(text, &rate); err != nil {
			b.Fatalf("SOAK_RATE: %v", err)
		}
	}
	var all []*agentProcess
	var gossip, addresses []string
	for i := range 3 {
		addr := freePort(b)
		p := startAgent(b, "--name", fmt.Sprint("a", i), "--gossip-addr", addr, "--bootstrap-expect", "3", "--join", strings.Join(gossip, ","),
			"--retention-clusters", "1m", "--retention-operations", "1m", "--retention-requests", "1m", "--retention-logs", "1m",
			"--retention-log-size", "1MiB", "--audit-records", "5000")
		gossip, addresses, all = append(gossip, addr), append(addresses, p.api), append(all, p)
		defer p.stop()
	}
	for _, p := range all {
		p.ready(b, 3)
	}
	c := connect(b, addresses...)
	var each []*client.Client
	for _, a := range addresses {
		each = append(each, connect(b, a))
	}
	ctx := context.Background()
	defineSoaked(ctx, b, c)

	var samples [3][]usage
	var made atomic.Int64
	var work sync.WaitGroup
	failed := make(chan error, 1)
	create, sample := time.NewTicker(time.Minute/time.Duration(rate)), time.NewTicker(min(length/60, time.Minute))
	defer create.Stop()
	defer sample.Stop()
	for n, end := 0, time.After(length); end != nil; {
		select {
		case <-create.C:
			n++
			work.Go(func() {
				if err := comeAndGo(ctx, c, fmt.Sprint("soak-", n)); err != nil {
					select {
					case failed <- err:
					default:
					}
					return
				}
				made.Add(1)
			})
		case <-sample.C:
			for i, p := range all {
				u := p.usage(b, each[i])
				samples[i] = append(samples[i], u)
				fmt.Fprintf(os.Stderr, "%d clusters, agent %d: %.0f MiB of memory, %.0f MiB on disk, %.0f open files, %.0f goroutines\n", made.Load(), i,
					u.rss, u.disk, u.files, u.goroutines)
			}
		case err := <-failed:
			b.Error(err)
			end = nil
		case <-end:
			end = nil
		}
	}
	work.Wait()
	b.ReportMetric(float64(made.Load()), "clusters")
	if len(samples[0]) < 6 {
		b.Fatal("there are too few samples for a comparison")
	}
	for i, s := range samples {
		for _, part := range parts {
			var values []float64
			for _, u := range s {
				values = append(values, part.of(u))
			}
			begin, last := middle(values[len(s)/6:max(len(s)/3, len(s)/6+1)]), middle(values[len(s)*5/6:])
			if last > begin*1.1 && last > begin+part.of(bounds) {
				b.Errorf("agent %d grows: from %.0f to %.0f %s", i, begin, last, part.name)
			}
		}
	}
}

// defineSoaked writes the definitions of a cluster that costs little.
func defineSoaked(ctx context.Context, b *testing.B, c *client.Client) {
	b.Helper()
	put := func(kind model.Kind, name string, v any) {
		body, err := json.Marshal(v)
		if err == nil {
			_, _, err = c.PutDefinition(ctx, kind, name, body)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	put(model.KindProvider, "p", model.Provider{Base: model.Base{Name: "p"}, ProviderType: "chaos"})
	put(model.KindHardwareType, "h", model.HardwareType{Base: model.Base{Name: "h"}, ProviderMap: map[string]map[string]any{"p": {"flavor": "x"}}})
	put(model.KindImageType, "i", model.ImageType{Base: model.Base{Name: "i"}, ProviderMap: map[string]map[string]any{"p": {"image": "x"}}})
	action := model.ServiceAction{Type: "chaos"}
	put(model.KindService, "s", model.Service{Base: model.Base{Name: "s"}, Provisioner: model.ServiceProvisioner{
		Actions: map[string]model.ServiceAction{"install": action, "start": action, "stop": action}}})
	put(model.KindClusterTemplate, "t", model.ClusterTemplate{Base: model.Base{Name: "t"}, Defaults: model.Defaults{
		Provider: "p", HardwareType: "h", ImageType: "i", Services: []model.DefaultService{{Name: "s"}}}})
}

// comeAndGo creates a cluster of three nodes and deletes it.
func comeAndGo(ctx context.Context, c *client.Client, name string) error {
	st, _, err := c.CreateCluster(ctx, model.CreateCluster{Name: name, ClusterTemplate: "t", NumMachines: 3}, false)
	if err != nil {
		return fmt.Errorf("create %s: %w", name, err)
	}
	if err := succeeds(ctx, c, st.Operation.ID); err != nil {
		return err
	}
	if st, _, err = c.Operate(ctx, st.Operation.Cluster, api.Operate{Type: model.OpDelete}); err != nil {
		return fmt.Errorf("delete %s: %w", name, err)
	}
	return succeeds(ctx, c, st.Operation.ID)
}

func succeeds(ctx context.Context, c *client.Client, operation string) error {
	for index := uint64(0); ; {
		op, meta, err := c.Operation(ctx, operation, client.Read{After: index, Wait: 30 * time.Second})
		switch {
		case err != nil:
			return fmt.Errorf("operation %s: %w", operation, err)
		case op.Status == model.OpSucceeded:
			return nil
		case op.Status.Ended():
			return fmt.Errorf("operation %s: %s: %s", operation, op.Status, op.Message)
		}
		index = meta.Index
	}
}

// connect returns a client of agents, as their operator.
func connect(b *testing.B, addresses ...string) *client.Client {
	b.Helper()
	c, err := client.New(client.Config{Addresses: addresses, Token: devToken})
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// usage returns what the process holds, from its metrics and its data directory.
func (p *agentProcess) usage(b *testing.B, c *client.Client) usage {
	b.Helper()
	var text bytes.Buffer
	if err := c.Metrics(context.Background(), &text); err != nil {
		b.Fatal(err)
	}
	u := usage{disk: float64(sizeOf(p.dir)) / (1 << 20)}
	for line := range strings.Lines(text.String()) {
		for name, to := range map[string]*float64{"go_goroutines": &u.goroutines, "process_open_fds": &u.files,
			"process_resident_memory_bytes": &u.rss} {
			if value, ok := strings.CutPrefix(line, name+" "); ok {
				if _, err := fmt.Sscan(value, to); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	u.rss /= 1 << 20
	return u
}

// sizeOf returns the size of the files in a folder. Files that go meanwhile do not count.
func sizeOf(dir string) (bytes int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				bytes += info.Size()
			}
		}
		return nil
	})
	return bytes
}
