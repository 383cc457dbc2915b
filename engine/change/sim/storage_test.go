package sim

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coopr/coopr/engine/change/compile"
	"github.com/coopr/coopr/engine/change/object"
	"github.com/coopr/coopr/examples/storage/installation"
)

func storageSite(t testing.TB, cfg installation.Config, last *object.Site) *object.Site {
	t.Helper()
	s, err := compile.Site(installation.Document(cfg), compile.Options{Last: last})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// critical returns the earliest time at which the last object can be up, and the number of
// dependencies between hosts on the way there. No grant can arrive sooner than its message.
func critical(s *object.Site, check, move int64) (ticks int64, hops int) {
	done := make([]int64, len(s.Defs))
	far := make([]int, len(s.Defs))
	var visit func(object.ID)
	visit = func(id object.ID) {
		if done[id] != 0 {
			return
		}
		d := &s.Defs[id]
		begin, h := check, 0
		d.Moving(state(s, id, "down"), state(s, id, "up"), func(p object.ID, _ object.State) {
			visit(p)
			hop := far[p]
			if s.Defs[p].Host != d.Host {
				hop++
			}
			if done[p] > begin {
				begin = done[p]
			}
			h = max(h, hop)
		})
		done[id], far[id] = begin+move, h
	}
	for i := range s.Defs {
		visit(object.ID(i))
		ticks, hops = max(ticks, done[i]), max(hops, far[i])
	}
	return ticks, hops
}

// C11 with a hundred servers: everything comes up in the required order, in the time of the
// longest chain and its messages, with three messages for each dependency. One changed file
// moves only the objects that depend on it. STORAGE_SERVERS sets another number of servers,
// such as 10000.
func TestC11(t *testing.T) {
	servers := 100
	if n, err := strconv.Atoi(os.Getenv("STORAGE_SERVERS")); err == nil {
		servers = n
	}
	first := storageSite(t, installation.Config{Servers: servers}, nil)
	metadata := map[object.ID]bool{}
	for i := range first.Defs {
		d := &first.Defs[i]
		if strings.Contains(d.Name, "/target") {
			var n int
			fmt.Sscanf(d.Name, "s%d/", &n)
			metadata[d.ID] = n%32 < 2
		}
	}
	// The times at which each metadata target was up, by unit.
	late, early := map[int]int64{}, map[int]int64{}
	cfg := Config{Site: first, Agents: servers, Delay: 1, CheckTime: 1, MoveTime: 10, Watch: func(s Step) {
		meta, target := metadata[s.ID]
		if !target {
			return
		}
		var n int
		fmt.Sscanf(first.Defs[s.ID].Name, "s%d/", &n)
		if meta && !s.Begin {
			late[n/32] = s.At
		} else if !meta && s.Begin && early[n/32] == 0 {
			early[n/32] = s.At
		}
	}}
	s := New(cfg)
	mustRest(t, s)
	for u, at := range early {
		if at < late[u] {
			t.Errorf("unit %d: an object target began at %d, the last metadata target was up at %d", u, at, late[u])
		}
	}
	bound, hops := critical(first, 1, 10)
	if got := s.Last(); got > bound+int64(2*hops)+bound/50 {
		t.Errorf("up after %d ticks, the longest chain takes %d and has %d hops", got, bound, hops)
	}
	s.Run(s.Now() + 5_000)
	by, packets, _ := s.Sent()
	links := s.links()
	if total := by[object.Request] + by[object.Grant] + by[object.Release] + by[object.Revoke]; total != 3*links {
		t.Errorf("%d messages %v in %d packets for %d dependencies between hosts", total, by, packets, links)
	}
	for i, n := range s.Ran {
		if n != 1 {
			t.Fatalf("%s made %d transitions", first.Defs[i].Name, n)
		}
	}
	clear(s.Ran)
	next := storageSite(t, installation.Config{Servers: servers, Base: 1}, first)
	s.Apply(next)
	mustRest(t, s)
	moved := 0
	for i, n := range s.Ran {
		if n > 2 || n > 0 && !strings.HasPrefix(next.Defs[i].Name, "s0/") {
			t.Errorf("%s made %d transitions", next.Defs[i].Name, n)
		}
		if n > 0 {
			moved++
		}
	}
	// The file, the array, and eight each of volumes, targets, resources and monitors.
	if moved != 34 {
		t.Errorf("%d objects moved for one changed file", moved)
	}
}

// links counts the dependencies between agents that are used when everything comes up.
func (s *Sim) links() int {
	n := 0
	for i := range s.site.Defs {
		d := &s.site.Defs[i]
		for slot, p := range d.Out {
			used := false
			for _, need := range d.Needs {
				used = used || int(need.Slot) == slot && !need.Drives
			}
			if used && s.owner[p] != s.owner[i] {
				n++
			}
		}
	}
	return n
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkStorage brings up servers of 50 objects each. SERVERS sets other sizes.
func BenchmarkStorage(b *testing.B) {
	sizes := []int{20, 200, 1000}
	if v := os.Getenv("SERVERS"); v != "" {
		sizes = nil
		for _, f := range strings.Fields(v) {
			n, err := strconv.Atoi(f)
			if err != nil {
				b.Fatal(err)
			}
			sizes = append(sizes, n)
		}
	}
	for _, n := range sizes {
		b.Run(fmt.Sprintf("objects=%d", n*installation.ObjectsPerServer), func(b *testing.B) {
			empty := heap()
			built := storageSite(b, installation.Config{Servers: n}, nil)
			objects := float64(n * installation.ObjectsPerServer)
			compiled := heap()
			var s *Sim
			decisions, took := 0, time.Duration(0)
			for b.Loop() {
				s = New(Config{Site: built, Agents: n, Delay: 1, CheckTime: 1, MoveTime: 10, Lenient: true})
				start := time.Now()
				if !s.RunUntilRest(1_000_000) {
					b.Fatal("not at rest")
				}
				took += time.Since(start)
				decisions += s.Decisions()
			}
			bound, hops := critical(built, 1, 10)
			ticks := s.Last()
			s.Run(s.Now() + 5_000)
			by, packets, rode := s.Sent()
			total := 0
			for _, m := range by {
				total += m
			}
			links := float64(s.links())
			// Only the runtimes are measured.
			s.q, s.world, s.Ran, s.incs, s.owner, s.names, s.byName, s.timers, s.dirty, s.acts = queue{}, nil, nil, nil, nil, nil, nil, nil, nil, nil
			idle := heap()
			b.ReportMetric(objects*float64(b.N)/b.Elapsed().Seconds(), "objects/s")
			b.ReportMetric(float64(decisions)/took.Seconds(), "decisions/s")
			b.ReportMetric(float64(idle-compiled)/objects, "B/object")
			b.ReportMetric(float64(compiled-empty)/objects, "B/definition")
			b.ReportMetric(float64(total)/links, "messages/link")
			b.ReportMetric(float64(total-rode)/links, "not-riding/link")
			b.ReportMetric(float64(packets)/links, "packets/link")
			b.ReportMetric(float64(ticks)/float64(bound), "of-critical-path")
			b.ReportMetric(float64(ticks-bound)/float64(hops), "ticks/hop")
			runtime.KeepAlive(s)
		})
	}
}
