package watch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/roster"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/doubles/logtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// noTasks makes checks that have only the names of their node and service.
type noTasks struct{}

func (noTasks) Check(_ *state.View, _ *model.Cluster, n *model.Node, service string) (check, machine *pb.Task, err error) {
	return &pb.Task{Node: n.ID, Service: service, Automator: true}, &pb.Task{Node: n.ID}, nil
}

func (noTasks) Needs(*model.Cluster, *model.Node, string) (automator, provider, machine string) {
	return "automator/x", "provider/x", ""
}

func (noTasks) Version(*state.View, *model.Cluster, []*model.Node) uint64 { return 1 }

// running returns a machine with a cluster of that many nodes on which a service runs.
func running(t testing.TB, nodes int) (*state.Machine, func(*pb.Command) state.Answer) {
	m, err := state.New(state.Config{})
	if err != nil {
		t.Fatal(err)
	}
	index := uint64(0)
	do := func(c *pb.Command) state.Answer {
		index++
		b, err := proto.Marshal(&pb.Entry{Format: state.Format, FeatureLevel: state.FeatureLevel, MustUnderstand: true, NowMs: int64(index),
			Commands: []*pb.Command{c}})
		if err != nil {
			t.Fatal(err)
		}
		return m.Apply(&raft.Log{Type: raft.LogCommand, Index: index, Data: b}).([][]state.Answer)[0][0]
	}
	do(&pb.Command{Change: &pb.Command_PutTenant{PutTenant: &pb.PutTenant{Tenant: logtest.Tenant(model.Tenant{Name: "t"})}}})
	g, err := plan.NewBuilder(nil, nil).Build()
	if err != nil {
		t.Fatal(err)
	}
	s := &pb.StartOperation{Graph: g.Encode(), Operation: logtest.Operation(
		model.Operation{ID: "1-001", Tenant: "t", Cluster: "1", Type: model.OpCreate}), Cluster: logtest.Cluster(model.Cluster{
		ID:     "1",
		Tenant: "t",
		Name:   "c",
		Definitions: map[string]model.Service{
			"s": {Provisioner: model.ServiceProvisioner{Actions: map[string]model.ServiceAction{"check": {Type: "x"}}}},
		},
	})}
	for i := range nodes {
		s.Nodes = append(s.Nodes, logtest.Node(model.Node{
			ID: fmt.Sprintf("1-%d", 1000+i), Cluster: "1", Tenant: "t", Number: 1000 + i, Services: []string{"s"},
			States: map[string]string{"s": "START"}, Created: true, Confirmed: true,
		}))
	}
	if a := do(&pb.Command{Tenant: "t", Change: &pb.Command_StartOperation{StartOperation: s}}); a.Err != nil {
		t.Fatal(a.Err)
	}
	return m, do
}

// agent is a worker that records its watches.
type agent struct {
	mu      sync.Mutex
	watches map[string]uint64
	sent    int
}

func (a *agent) send(m *pb.LeaderMessage) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if m.WatchAnew || a.watches == nil {
		a.watches = map[string]uint64{}
	}
	for _, k := range m.Unwatch {
		delete(a.watches, k)
	}
	for _, w := range m.Watches {
		a.sent++
		a.watches[w.Key] = w.NodeVersion
	}
	return true
}

func (a *agent) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sent
}

func (a *agent) versionOf(key string) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.watches[key]
}

func (a *agent) has() map[string]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := map[string]bool{}
	for k := range a.watches {
		out[k] = true
	}
	return out
}

// term runs a watcher until the test ends it.
func term(m *state.Machine, do func(*pb.Command) state.Answer) (w *Controller, end func()) {
	w = New(Config{Machine: m, Tasks: noTasks{}, Logger: slog.New(slog.DiscardHandler),
		Propose: func(_ context.Context, cs ...*pb.Command) ([]state.Answer, error) {
			return []state.Answer{do(cs[0])}, nil
		}})
	_ = w.Restore(context.Background())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = w.Run(ctx) }()
	return w, func() { cancel(); <-done }
}

var offer = map[string]bool{"automator/x": true, "provider/x": true}

// Every node has one watcher. A new worker gets its share, and no other watches move. The watches
// of a worker that left go to others once it has certainly stopped. A new leader assigns them in
// the same way.
func TestEveryNodeHasOneWatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, do := running(t, 300)
		w, end := term(m, do)
		agents := map[string]*agent{"a": {}, "b": {}, "c": {}}
		join := func(w *Controller, name string) {
			w.Join("session of "+name, Worker{Agent: name, Plugins: offer, Send: agents[name].send})
		}
		covered := func(when string, names ...string) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			seen := map[string]string{}
			for _, n := range names {
				has := agents[n].has()
				if len(has) < 300/len(names)/2 {
					t.Errorf("%s: %s has %d of 300", when, n, len(has))
				}
				for k := range has {
					if by := seen[k]; by != "" {
						t.Errorf("%s: %s is watched by %s and %s", when, k, by, n)
					}
					seen[k] = n
				}
			}
			if len(seen) != 300 {
				t.Errorf("%s: %d are watched", when, len(seen))
			}
		}
		join(w, "a")
		covered("one", "a")
		join(w, "b")
		covered("two", "a", "b")
		before := agents["a"].has()
		join(w, "c")
		covered("three", "a", "b", "c")
		for k := range agents["a"].has() {
			if !before[k] {
				t.Errorf("%s came to a because c came", k)
			}
		}
		w.Leave("session of c")
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if n := len(agents["a"].has()) + len(agents["b"].has()); n == 300 {
			t.Error("the health checks of c were given away while c may still run them")
		}
		time.Sleep(2 * time.Second)
		covered("c has left", "a", "b")

		end()
		had := agents["a"].has()
		w, end = term(m, do)
		defer end()
		join(w, "a")
		join(w, "b")
		covered("another leader", "a", "b")
		for k := range agents["a"].has() {
			if !had[k] {
				t.Errorf("%s moved to a with the leader", k)
			}
		}

		// An operation's change of a node makes its watch new; a verdict does not.
		sent := agents["a"].sent
		var key string
		for key = range had {
			break
		}
		w.Health("session of a", []*pb.Health{{Key: key, NodeVersion: agents["a"].watches[key], Healthy: true}})
		w.Health("session of b", []*pb.Health{{Key: key, NodeVersion: agents["a"].watches[key], Healthy: false}}) // not its own
		time.Sleep(time.Second)
		synctest.Wait()
		if h := m.View().Health("t", key[:len(key)-2]); h.Status() != "healthy" {
			t.Errorf("%s: %+v", key, h)
		}
		if agents["a"].sent != sent {
			t.Errorf("%d watches sent because of a verdict", agents["a"].sent-sent)
		}
	})
}

// A verdict that the log did not take is asked for again: the worker is sent what the state has.
func TestVerdictThatWasNotTaken(t *testing.T) {
	for name, refuse := range map[string]func() ([]state.Answer, error){
		"failed":  func() ([]state.Answer, error) { return nil, errors.New("no quorum") },
		"refused": func() ([]state.Answer, error) { return []state.Answer{{Err: errors.New("not this one")}}, nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, do := running(t, 1)
				var asked atomic.Int64
				w := New(Config{Machine: m, Tasks: noTasks{}, Logger: slog.New(slog.DiscardHandler),
					Propose: func(_ context.Context, cs ...*pb.Command) ([]state.Answer, error) {
						if asked.Add(1) == 1 {
							return refuse()
						}
						return []state.Answer{do(cs[0])}, nil
					}})
				ctx, cancel := context.WithCancel(t.Context())
				var done sync.WaitGroup
				done.Go(func() { _ = w.Run(ctx) })
				defer func() { cancel(); done.Wait() }()
				a := &agent{}
				w.Join("s", Worker{Agent: "a", Plugins: offer, Send: a.send})
				time.Sleep(time.Second)
				sent := a.count()
				w.Health("s", []*pb.Health{{Key: "1-1000/s", NodeVersion: a.versionOf("1-1000/s"), Healthy: true}})
				time.Sleep(time.Second)
				if n := a.count() - sent; n != 1 {
					t.Fatalf("the worker was sent %d watches after its verdict was not taken", n)
				}
				w.Health("s", []*pb.Health{{Key: "1-1000/s", NodeVersion: a.versionOf("1-1000/s"), Healthy: true}})
				time.Sleep(time.Second)
				if h := m.View().Health("t", "1-1000"); h.Status() != "healthy" {
					t.Errorf("%+v", h)
				}
			})
		})
	}
}

// BenchmarkRefresh is what a change of a cluster of 10,000 nodes costs the leader.
// A verdict that arrives after a restore, before its watch is dropped, is not recorded: recovery would act on it when the mesh is resumed.
func TestVerdictWhileHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, do := running(t, 1)
		w, end := term(m, do)
		defer end()
		a := &agent{}
		w.Join("s", Worker{Agent: "a", Plugins: offer, Send: a.send})
		time.Sleep(time.Second)
		var saved, held bytes.Buffer
		if err := m.View().Write(&saved); err != nil {
			t.Fatal(err)
		}
		v, err := state.Restored(&saved, func(string) bool { return true }, time.Now(), nil, &roster.Hold{Since: 1})
		if err == nil {
			err = errors.Join(v.Write(&held), m.Restore(io.NopCloser(&held)))
		}
		if err != nil {
			t.Fatal(err)
		}
		w.Health("s", []*pb.Health{{Key: "1-1000/s", NodeVersion: a.versionOf("1-1000/s"), Healthy: false}})
		time.Sleep(time.Second)
		if h := m.View().Health("t", "1-1000"); h.Status() == "unhealthy" {
			t.Errorf("the verdict was recorded: %+v", h)
		}
		if n := len(a.has()); n > 0 {
			t.Errorf("%d watches while the mesh is held", n)
		}
	})
}

func BenchmarkRefresh(b *testing.B) {
	m, _ := running(b, 10_000)
	w := New(Config{Machine: m, Tasks: noTasks{}, Logger: slog.New(slog.DiscardHandler)})
	for i := range 10 {
		name := fmt.Sprint("agent-", i)
		w.workers[name] = &worker{Worker: Worker{Agent: name, Plugins: offer, Send: func(*pb.LeaderMessage) bool { return true }}, session: name}
	}
	refresh := func() {
		_, _ = w.reconcile(b.Context(), key{cluster: "1"})
		w.sendAll()
	}
	refresh()
	b.ReportAllocs()
	for b.Loop() {
		refresh()
	}
}

// A dead agent's watches go to another one although no term lasts for a TTL. A living agent that
// joins in every term keeps its own.
func TestWatchesOfTheDeadMoveThoughNoTermLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, do := running(t, 100)
		index := uint64(1000)
		open := func(term uint64, name string) {
			index++
			b, err := proto.Marshal(&pb.Entry{Format: state.Format, FeatureLevel: state.FeatureLevel, MustUnderstand: true, NowMs: int64(index),
				Commands: []*pb.Command{{Change: &pb.Command_OpenSession{OpenSession: &pb.OpenSession{
					Session: fmt.Sprintf("%s in %d", name, term), Agent: name,
					Record: logtest.Agent(model.Agent{ID: name, Name: name, Plugins: map[string]string{"automator/x": "x", "provider/x": "x"}}),
				}}}}})
			if err != nil {
				t.Fatal(err)
			}
			if a := m.Apply(&raft.Log{Type: raft.LogCommand, Index: index, Term: term, Data: b}).([][]state.Answer)[0][0]; a.Err != nil {
				t.Fatal(a.Err)
			}
		}
		agents := map[string]*agent{"dead": {}, "lives": {}, "more": {}}
		var kept map[string]bool
		for number := uint64(1); number < 12; number++ {
			w, end := term(m, do)
			for name, a := range agents {
				if number > 1 && name == "dead" {
					continue
				}
				open(number, name)
				w.Join(fmt.Sprintf("%s in %d", name, number), Worker{Agent: name, Plugins: offer, Send: a.send})
			}
			time.Sleep(2 * time.Second)
			end()
			if number == 1 {
				kept = agents["lives"].has()
			}
		}
		if n := len(agents["lives"].has()) + len(agents["more"].has()); n != 100 {
			t.Errorf("%d of 100 nodes are watched by living agents", n)
		}
		for k := range kept {
			if !agents["lives"].has()[k] {
				t.Errorf("%s was taken from a living agent", k)
			}
		}
	})
}
