package mesh

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// These benchmarks run real gossip on loopback sockets, 127.1.x.y, with all agents in one process. All
// agents share the cores of one machine, which is much worse than any real mesh.
//
//	go test ./agent/mesh -run xxx -bench Mesh -benchtime 1x -timeout 30m
//
// ready-ms is the time from the start of the last agent until every view has every agent, and most-ms
// the time until the views have 99.9 % of all pairs of agents. death-first-ms and death-all-ms are the
// times from a crash until the first agent and until all agents know of it. false counts entries of
// views in which a living agent is not alive. idle-ms/s/agent is the CPU time of one idle agent.

func BenchmarkMesh5(b *testing.B)   { benchmarkMesh(b, 5, Profile{}, true) }
func BenchmarkMesh50(b *testing.B)  { benchmarkMesh(b, 50, Profile{}, true) }
func BenchmarkMesh200(b *testing.B) { benchmarkMesh(b, 200, Profile{}, true) }
func BenchmarkMesh500(b *testing.B) { benchmarkMesh(b, 500, Profile{}, true) }

// These benchmarks measure gossip without the agent registry.
func BenchmarkGossipOnly50(b *testing.B)  { benchmarkMesh(b, 50, Profile{}, false) }
func BenchmarkGossipOnly500(b *testing.B) { benchmarkMesh(b, 500, Profile{}, false) }

// profileFromEnv returns the profile in the environment, for experiments, or p if there is none:
// MESH_PROFILE="probe timeout mult max gossip nodes retransmit pushpull reconnect slowdown", with
// durations in ms.
func profileFromEnv(b *testing.B, p Profile) Profile {
	text := os.Getenv("MESH_PROFILE")
	if text == "" {
		return p
	}
	var probe, timeout, gossip, pushPull, reconnect time.Duration
	if _, err := fmt.Sscan(text, (*int64)(&probe), (*int64)(&timeout), &p.SuspicionMult, &p.SuspicionMaxMult, (*int64)(&gossip),
		&p.GossipNodes,
		&p.RetransmitMult, (*int64)(&pushPull), (*int64)(&reconnect), &p.SlowDown); err != nil {
		b.Fatal(err)
	}
	p.ProbeInterval, p.ProbeTimeout, p.GossipInterval = probe*time.Millisecond, timeout*time.Millisecond, gossip*time.Millisecond
	p.PushPullInterval, p.ReconnectInterval, p.StreamTimeout = pushPull*time.Millisecond, reconnect*time.Millisecond, 5*time.Second
	return p
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

type benchMesh struct {
	b      *testing.B
	nodes  []*Mesh
	cancel []context.CancelFunc
	done   []chan struct{}
	dead   atomic.Int64 // index of the killed agent, or -1
	false_ atomic.Int64
}

func benchmarkMesh(b *testing.B, n int, profile Profile, record bool) {
	for range b.N {
		runBenchMesh(b, n, profile, record)
	}
}

func runBenchMesh(b *testing.B, n int, profile Profile, record bool) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // the garbage collection of hundreds of agents in one heap would distort the results
	mesh := &benchMesh{b: b}
	mesh.dead.Store(-1)
	pace := 60 * time.Millisecond
	if text := os.Getenv("MESH_PACE"); text != "" {
		pace, _ = time.ParseDuration(text)
	}
	idle := 5 * time.Second
	if text := os.Getenv("MESH_IDLE"); text != "" {
		idle, _ = time.ParseDuration(text)
	}
	profile = profileFromEnv(b, profile)
	stopRecord := make(chan struct{})
	var recorder sync.WaitGroup
	var mu sync.Mutex
	if record {
		recorder.Go(func() { mesh.keepRecord(&mu, stopRecord) })
	}
	cpu0, begin := cpuTime(), time.Now()
	for i := range n {
		cfg := Config{
			ID: idOf(i), Bind: fmt.Sprintf("127.1.%d.%d:0", i/250, i%250+1), GossipKeys: [][]byte{testKey}, Profile: profile, Agents: n,
			Self: Self{Name: fmt.Sprint("agent-", i), RPCAddr: fmt.Sprintf("127.1.%d.%d:55055", i/250, i%250+1), APIAddr: "127.1.1.1:55054",
				Build: "0.1.0", FeatureLevel: 1, Zone: "a", Eligible: true, PluginsHash: "0123456789abcdef"},
		}
		if i > 0 {
			cfg.Join = []string{mesh.nodes[0].Addr(), mesh.nodes[(i-1)/2].Addr(), mesh.nodes[i-1].Addr()}
		}
		m, err := New(cfg)
		if err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); m.Run(ctx) }()
		mu.Lock()
		mesh.nodes, mesh.cancel, mesh.done = append(mesh.nodes, m), append(mesh.cancel, cancel), append(mesh.done, done)
		mu.Unlock()
		if i < n-1 {
			time.Sleep(pace)
		}
	}
	last := time.Now()
	most, all := mesh.await(2*time.Minute, n)
	b.ReportMetric(float64(last.Sub(begin).Milliseconds()), "ramp-ms")
	b.ReportMetric(float64(most.Sub(last).Milliseconds()), "most-ms")
	b.ReportMetric(float64(all.Sub(last).Milliseconds()), "ready-ms")
	b.ReportMetric((cpuTime() - cpu0).Seconds(), "join-cpu-s")
	mesh.watchFalse()

	time.Sleep(3 * time.Second) // until the queues are empty
	cpu1, t1 := cpuTime(), time.Now()
	time.Sleep(idle)
	b.ReportMetric((cpuTime()-cpu1).Seconds()/time.Since(t1).Seconds()/float64(n)*1000, "idle-ms/s/agent")
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	b.ReportMetric(float64(mem.HeapInuse)/float64(n)/1024, "heap-KiB/agent")

	victim := n / 2
	mesh.dead.Store(int64(victim))
	crash := time.Now()
	mesh.nodes[victim].transport.Shutdown()
	first, everybody := mesh.awaitDeath(time.Minute, victim)
	b.ReportMetric(float64(first.Sub(crash).Milliseconds()), "death-first-ms")
	b.ReportMetric(float64(everybody.Sub(crash).Milliseconds()), "death-all-ms")
	time.Sleep(time.Second)
	mesh.countFalse()
	b.ReportMetric(float64(mesh.false_.Load()), "false")

	close(stopRecord)
	recorder.Wait()
	for _, cancel := range mesh.cancel {
		cancel()
	}
	defer time.Sleep(Linger / 3) // memberlist's last probes
	for _, done := range mesh.done {
		<-done
	}
}

// keepRecord simulates the leader, which records every agent that has joined. When the session of a
// crashed agent breaks, the first agent probes it, and records it as failed if it does not answer.
// keepRecord sends a changed registry to all agents.
func (m *benchMesh) keepRecord(mu *sync.Mutex, stop chan struct{}) {
	known := map[string]bool{}
	var list []Member // in the order of ids, like the registry
	gone := make(chan string, 1)
	broken, buried := false, false
	for {
		select {
		case <-time.After(50*time.Millisecond + time.Duration(len(list))*time.Millisecond):
		case <-stop:
			return
		}
		mu.Lock()
		nodes := m.nodes
		mu.Unlock()
		changed := false
		list = slices.Clone(list)
		for _, n := range nodes {
			if id := n.cfg.ID; !known[id] && (len(nodes) == 1 || n.view.hears() > 1) {
				known[id], changed = true, true
				list = append(list, Member{ID: id, Self: n.Self(), Addr: n.Addr(), Epoch: n.Epoch(), Status: StatusAlive})
			}
		}
		if i := m.dead.Load(); i >= 0 && !broken {
			broken = true
			go func() {
				if id := idOf(int(i)); !nodes[0].Answers(context.Background(), id) {
					gone <- id
				}
			}()
		}
		if broken && !buried {
			select {
			case id := <-gone:
				buried, changed = true, true
				list[slices.IndexFunc(list, func(r Member) bool { return r.ID == id })].Status = StatusFailed
			case <-stop:
				return
			}
		}
		if !changed {
			continue
		}
		slices.SortFunc(list, byID)
		for _, n := range nodes {
			n.Repair(list, nil)
		}
	}
}

func countStatus(m *Mesh, status Status) (n int) {
	m.view.mu.Lock()
	defer m.view.mu.Unlock()
	for _, member := range m.view.merged {
		if member.Status == status {
			n++
		}
	}
	return n
}

// await waits until every view has n agents alive. It returns the time at which the views had 99.9 %
// of the pairs, and the time at which they had all.
func (m *benchMesh) await(limit time.Duration, n int) (most, all time.Time) {
	end := time.Now().Add(limit)
	told, cpu := time.Now(), cpuTime()
	for time.Now().Before(end) {
		if os.Getenv("MESH_TRACE") != "" && time.Since(told) > 2*time.Second {
			calmOnes, byGossip, failed, score := 0, 0, 0, 0
			for _, node := range m.nodes {
				h := node.Health()
				calmOnes += count(h.Profile == calm)
				score += h.Score
				for _, member := range node.Members() {
					byGossip += count(member.Gossip == StatusAlive)
					failed += count(member.Gossip == StatusFailed)
				}
			}
			fmt.Printf("  calm %d, pairs by gossip %d, failed %d, health %.1f, cpu %.2f, goroutines %d\n", calmOnes, byGossip, failed,
				float64(score)/float64(len(m.nodes)), (cpuTime()-cpu).Seconds()/time.Since(told).Seconds(), runtime.NumGoroutine())
			told, cpu = time.Now(), cpuTime()
		}
		pairs := 0
		for _, node := range m.nodes {
			pairs += node.view.living()
		}
		if most.IsZero() && float64(pairs) >= 0.999*float64(n*n) {
			most = time.Now()
		}
		if pairs == n*n {
			return most, time.Now()
		}
		time.Sleep(5 * time.Millisecond)
	}
	m.b.Errorf("views not complete in %v", limit)
	return time.Now(), time.Now()
}

func (m *benchMesh) awaitDeath(limit time.Duration, victim int) (first, all time.Time) {
	end := time.Now().Add(limit)
	id := m.nodes[victim].cfg.ID
	waiting := slices.Delete(slices.Clone(m.nodes), victim, victim+1)
	for time.Now().Before(end) {
		before := len(waiting)
		waiting = slices.DeleteFunc(waiting, func(n *Mesh) bool {
			member, ok := n.Member(id)
			return !ok || !member.Alive()
		})
		if len(waiting) < before && first.IsZero() {
			first = time.Now()
		}
		if len(waiting) == 0 {
			return first, time.Now()
		}
		time.Sleep(5 * time.Millisecond)
	}
	m.b.Errorf("a death not known to all in %v", limit)
	return time.Now(), time.Now()
}

// watchFalse is countFalse. Both count the entries of the present views in which a living agent is not alive.
func (m *benchMesh) watchFalse() { m.countFalse() }

func (m *benchMesh) countFalse() {
	for i, node := range m.nodes {
		if int64(i) == m.dead.Load() {
			continue
		}
		for _, member := range node.Members() {
			if !member.Alive() && (m.dead.Load() < 0 || member.ID != idOf(int(m.dead.Load()))) {
				m.false_.Add(1)
			}
		}
	}
}
