package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/coopr/coopr/agent"
	"github.com/coopr/coopr/agent/objects"
	"github.com/coopr/coopr/engine/change/compile"
	"github.com/coopr/coopr/engine/change/object"
	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/examples/storage/installation"
	"github.com/coopr/coopr/testing/doubles/sitegen"
)

// player performs every action of every object in the same time, and records when each object last
// acted.
type player struct {
	takes time.Duration
	mu    sync.Mutex
	up    map[string]int64
	spans map[string]span
}

type span struct{ begin, end time.Time }

func newPlayer(takes time.Duration) *player {
	return &player{takes: takes, up: map[string]int64{}, spans: map[string]span{}}
}

// Check returns the state that the last action left.
func (p *player) Check(_ context.Context, j *objects.Job) (string, string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch p.up[j.Site+"/"+j.Object.Name] {
	case 0:
		return "down", "", nil
	case int64(j.Content):
		return "up", "", nil
	}
	return "outdated", "", nil
}

// Run waits for as long as an action takes.
func (p *player) Run(ctx context.Context, j *objects.Job, action string) error {
	begin := time.Now()
	if p.takes > 0 {
		time.Sleep(p.takes)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	end := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	name := j.Site + "/" + j.Object.Name
	p.up[name] = 0
	if action == "start" || action == "restart" {
		p.up[name] = int64(j.Content)
	}
	p.spans[name] = span{begin, end}
	return nil
}

// whole returns the time from the first action's beginning to the last one's end,
// and that of the chain of dependent actions that took longest.
func (p *player) whole(s *object.Site) (took, chain time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var first, last time.Time
	for _, x := range p.spans {
		if first.IsZero() || x.begin.Before(first) {
			first = x.begin
		}
		if x.end.After(last) {
			last = x.end
		}
	}
	return last.Sub(first), time.Duration(sitegen.LongestTime(s, func(id object.ID) int64 {
		x := p.spans[s.Name+"/"+s.Defs[id].Name]
		return int64(x.end.Sub(x.begin))
	}))
}

// converge applies a site and waits until all of it is where it should be.
func (m *mesh) converge(d *site.Document) {
	m.b.Helper()
	m.call("PUT", "/v1/sites/"+d.Name, d, nil)
	for ; ; time.Sleep(2 * time.Millisecond) {
		var list []site.Overview
		m.call("GET", "/v1/sites", nil, &list)
		for _, s := range list {
			if s.Name == d.Name && s.Next == 0 && s.Generation > 0 && s.ConvergedObjects == s.Objects {
				return
			}
		}
	}
}

// BenchmarkSites brings storage installations (C11) up over three real agents, with transitions of
// a millisecond. x-chain is the time from the start of the first transition to the end of the last
// one, relative to the longest chain of dependent transitions with their measured durations (timers
// are late); converged-ms is the time from the request to the answer that everything is up.
func BenchmarkSites(b *testing.B) {
	for _, servers := range []int{4, 32} {
		b.Run(fmt.Sprintf("servers=%d", servers), func(b *testing.B) {
			var p *player
			m := newMesh(b, "wal", 16, 3, func(c *agent.Config) {
				c.Executor = simulated{}
				if p == nil {
					p = newPlayer(time.Millisecond)
				}
				c.Changes = p
			})
			var ratios, nominal, converged []float64
			cpu := time.Duration(0)
			for i := 0; b.Loop(); i++ {
				d := installation.Document(installation.Config{Servers: servers, Host: func(s int) string { return fmt.Sprintf("agent:a%d", s%3) }})
				installation.Real(d, "/nowhere")
				d.Name = fmt.Sprintf("s%d", i)
				s, err := compile.Site(d, compile.Options{})
				if err != nil {
					b.Fatal(err)
				}
				p.mu.Lock()
				clear(p.spans)
				p.mu.Unlock()
				begin, spent := time.Now(), cpuTime()
				m.converge(d)
				converged = append(converged, time.Since(begin).Seconds()*1000)
				cpu += cpuTime() - spent
				took, chain := p.whole(s)
				ratios = append(ratios, float64(took)/float64(chain))
				nominal = append(nominal, float64(took)/float64(time.Duration(sitegen.LongestChain(s))*time.Millisecond))
			}
			b.ReportMetric(middle(ratios), "x-chain")
			b.ReportMetric(middle(nominal), "x-nominal-chain")
			b.ReportMetric(middle(converged), "converged-ms")
			b.ReportMetric(float64(cpu.Microseconds())/float64(b.N*servers*installation.ObjectsPerServer), "cpu-µs/object")
		})
	}
}

func middle(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}

// BenchmarkHosts brings up 50 objects without work on each of 100 hosts, each an agent of its own,
// all in this process.
func BenchmarkHosts(b *testing.B) {
	const hosts = 100
	p := newPlayer(0)
	m := newMesh(b, "wal", 16, hosts, func(c *agent.Config) { c.Executor, c.Changes, c.BootstrapExpect = simulated{}, p, 3 })
	for i := 0; b.Loop(); i++ {
		d := installation.Document(installation.Config{Servers: hosts, Host: func(s int) string { return fmt.Sprintf("agent:a%d", s) }})
		installation.Real(d, "/nowhere")
		d.Name = fmt.Sprintf("s%d", i)
		begin, spent := time.Now(), cpuTime()
		m.converge(d)
		b.ReportMetric(time.Since(begin).Seconds()*1000, "converged-ms")
		b.ReportMetric((cpuTime()-spent).Seconds()*1000, "cpu-ms")
		b.ReportMetric(float64(len(d.Objects))/time.Since(begin).Seconds(), "objects/s")
		s, err := compile.Site(d, compile.Options{})
		if err != nil {
			b.Fatal(err)
		}
		took, _ := p.whole(s)
		b.ReportMetric(took.Seconds()*1000, "actions-ms")
	}
}

// BenchmarkRepair edits, at any moment, a file that a filetree keeps, or removes one that a script
// keeps, with check_interval at a second: mean-ms and most-ms are the times until it is restored.
// Ten objects of each type take turns, because one that is changed eight times in a row is slowed
// down (docs/spec/changes.md, rule 27).
func BenchmarkRepair(b *testing.B) {
	const objects = 10
	m := newMesh(b, "wal", 16, 1, func(c *agent.Config) { c.Executor = simulated{} })
	dir := b.TempDir()
	conf := func(i int) string { return filepath.Join(dir, fmt.Sprint("tree", i), "app.conf") }
	flag := func(i int) string { return filepath.Join(dir, fmt.Sprint("flag", i)) }
	const right = "port = 80\n"
	d := &site.Document{Name: "repair", CheckInterval: 1000}
	for i := range objects {
		d.Objects = append(d.Objects, site.Object{Name: fmt.Sprint("files", i), Host: "agent:a0", Type: "filetree", Content: map[string]any{
			"root": filepath.Dir(conf(i)), "edits": "restore", "files": map[string]any{"app.conf": map[string]any{"content": right}},
		}}, site.Object{Name: fmt.Sprint("flag", i), Host: "agent:a0", Type: "script", Content: map[string]any{
			"check": "test -e " + flag(i), "start": "touch " + flag(i), "stop": "rm -f " + flag(i),
		}})
	}
	m.converge(d)
	for _, x := range []struct {
		name  string
		spoil func(i int) error
		right func(i int) bool
	}{
		{"filetree", func(i int) error { return os.WriteFile(conf(i), []byte("port = 81\n"), 0o600) },
			func(i int) bool { got, _ := os.ReadFile(conf(i)); return string(got) == right }},
		{"script", func(i int) error { return os.Remove(flag(i)) }, func(i int) bool { _, err := os.Stat(flag(i)); return err == nil }},
	} {
		b.Run(x.name, func(b *testing.B) {
			var times []float64
			for n := 0; b.Loop(); n++ {
				time.Sleep(time.Duration(rand.Int64N(int64(time.Second))))
				if err := x.spoil(n % objects); err != nil {
					b.Fatal(err)
				}
				begin := time.Now()
				for !x.right(n % objects) {
					time.Sleep(time.Millisecond)
				}
				times = append(times, time.Since(begin).Seconds()*1000)
			}
			sum := 0.0
			for _, t := range times {
				sum += t
			}
			b.ReportMetric(sum/float64(len(times)), "mean-ms")
			b.ReportMetric(slices.Max(times), "most-ms")
		})
	}
}
