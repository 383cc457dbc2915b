package bench

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"
)

// usage is what an agent's process holds at one moment.
type usage struct {
	heap, rss, disk         float64 // MiB
	rows, files, goroutines float64
	each                    map[string]float64 // rows of each table, and used bytes of each file
}

// parts are the parts of a usage, with the growth over all agents that still counts as none, as a share and as an
// amount. The heap is what the garbage collector has left. Resident memory also depends on when it ran.
var parts = []struct {
	name          string
	of            func(usage) float64
	share, amount float64
}{
	{"MiB of live heap", func(u usage) float64 { return u.heap }, .02, 3},
	{"MiB of resident memory", func(u usage) float64 { return u.rss }, .1, 24},
	{"MiB used on disk", func(u usage) float64 { return u.disk }, .02, 12},
	{"rows", func(u usage) float64 { return u.rows }, .02, 30},
	{"open files", func(u usage) float64 { return u.files }, .02, 3},
	{"goroutines", func(u usage) float64 { return u.goroutines }, .02, 6},
}

// BenchmarkSoak creates clusters and deletes them, SOAK_RATE a minute for SOAK_TIME, on three agents
// with the shortest retention, and fails if what the agents hold still grows after the first third of the time:
// memory, disk, rows of the state, open files or goroutines. It lists the tables and files that have grown most. It is skipped without SOAK_TIME: "make soak" takes an hour.
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
	create, sample := time.NewTicker(time.Minute/time.Duration(rate)), time.NewTicker(min(length/60, 10*time.Second))
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
				fmt.Fprintf(os.Stderr, "%d clusters, agent %d:", made.Load(), i)
				for _, part := range parts {
					fmt.Fprintf(os.Stderr, " %.0f %s,", part.of(u), part.name)
				}
				fmt.Fprintln(os.Stderr)
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
	if faults := grown(samples[:]); len(faults) > 0 {
		b.Errorf("%s\nwhat has grown most:\n%s", strings.Join(faults, "\n"), growers(samples[:]))
	}
}

// grown returns a line for each part that the agents hold more of at the end. A change of the leader moves what only the
// leader holds, so the agents are judged together.
func grown(samples [][]usage) (faults []string) {
	for _, part := range parts {
		begin, last := window(samples, part.of)
		fmt.Fprintf(os.Stderr, "from %.1f to %.1f %s\n", begin, last, part.name)
		if last > begin*(1+part.share) && last > begin+part.amount {
			faults = append(faults, fmt.Sprintf("the agents grow: from %.1f to %.1f %s", begin, last, part.name))
		}
	}
	return faults
}

// window returns the sum over the agents of the median of a value in the second third of the samples, and in the last sixth.
func window(samples [][]usage, of func(usage) float64) (begin, last float64) {
	for _, s := range samples {
		var values []float64
		for _, u := range s {
			values = append(values, of(u))
		}
		begin += middle(values[len(s)/3 : len(s)*2/3])
		last += middle(values[len(s)*5/6:])
	}
	return begin, last
}

// growers lists the tables and the files that have grown most.
func growers(samples [][]usage) string {
	type grower struct {
		name        string
		begin, last float64
	}
	var all []grower
	seen := map[string]bool{}
	for _, s := range samples {
		for _, u := range s {
			for name := range u.each {
				if !seen[name] {
					begin, last := window(samples, func(u usage) float64 { return u.each[name] })
					all = append(all, grower{name, begin, last})
				}
				seen[name] = true
			}
		}
	}
	slices.SortFunc(all, func(a, b grower) int { return cmp.Compare(b.last-b.begin, a.last-a.begin) })
	var out strings.Builder
	for _, g := range all[:min(10, len(all))] {
		fmt.Fprintf(&out, "  %s: from %.0f to %.0f\n", g.name, g.begin, g.last)
	}
	return out.String()
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
	u := usage{each: map[string]float64{}}
	for line := range strings.Lines(text.String()) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		to := map[string]*float64{"go_goroutines": &u.goroutines, "process_open_fds": &u.files, "process_resident_memory_bytes": &u.rss,
			"go_gc_heap_live_bytes": &u.heap}[name]
		table, rows := strings.CutPrefix(name, `coopr_state_rows{table="`)
		if to == nil && !rows {
			continue
		}
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			b.Fatal(err)
		}
		if rows {
			u.rows += value
			u.each["rows of "+strings.TrimSuffix(table, `"}`)] = value
		} else {
			*to = value
		}
	}
	for name, size := range sizesIn(p.dir) {
		u.disk += size / (1 << 20)
		u.each["bytes of "+name] += size
	}
	u.rss, u.heap = u.rss/(1<<20), u.heap/(1<<20)
	if u.heap == 0 || u.rows == 0 {
		b.Fatal("the metrics of the agent lack the live heap or the rows of the state")
	}
	return u
}

// digits are left out of the names of files, so that those that follow each other have one name.
var digits = regexp.MustCompile(`[0-9a-f-]{6,}|[0-9]+`)

// sizesIn returns how many bytes of the disk the files in a folder use, by name. A database makes its file longer in steps of
// 16 MiB and uses them page by page, and the length shows the steps only. Files that are removed during the walk do not count.
func sizesIn(dir string) map[string]float64 {
	out := map[string]float64{}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				out[digits.ReplaceAllString(strings.TrimPrefix(path, dir+"/"), "N")] += used(info)
			}
		}
		return nil
	})
	return out
}

// used returns how many bytes of the disk a file uses.
func used(info fs.FileInfo) float64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return float64(st.Blocks) * 512 // the unit of that field, whatever the file system's blocks are
	}
	return float64(info.Size())
}
