package watch

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Tasks makes what workers need to look at a node.
type Tasks interface {
	// Check makes the tasks that check a service on a node ("": none) and ask its
	// provider about its machine. Either may be nil.
	Check(v *state.View, cl *model.Cluster, n *model.Node, service string) (check, machine *pb.Task, err error)
	// Needs gives the keys of the plugins that do it, and the machine that their
	// agent must be on, or "".
	Needs(cl *model.Cluster, n *model.Node, service string) (automator, provider, machine string)
	// Version gives a number that changes when the check of any of a cluster's
	// services may be another, though their nodes' records are the same.
	Version(v *state.View, cl *model.Cluster, nodes []*model.Node) uint64
}

// Config of a Watcher.
type Config struct {
	Machine *state.Machine
	Propose func(ctx context.Context, commands ...*pb.Command) ([]state.Answer, error)
	Tasks   Tasks
	Logger  *slog.Logger
	// TTL is how long a worker whose session ended may still be checking; 0 means 5 s.
	TTL time.Duration
	// Settle is how long changes are gathered; 0 means 250 ms.
	Settle time.Duration
}

// Worker is an agent's worker, as its session began.
type Worker struct {
	Agent, Machine string
	Plugins        map[string]bool
	// Send gives false once the session is over.
	Send func(*pb.LeaderMessage) bool
}

// Watcher is the duty. It is made for one term.
type Watcher struct {
	cfg Config

	mu   sync.Mutex
	mail []func()
	wake chan struct{}

	// Owned by Run's goroutine.
	ctx      context.Context
	workers  map[string]*worker // by agent
	clusters map[string]map[string]*want
	dirty    map[string]bool
	work     sync.WaitGroup
}

// worker is a Worker and where it stands.
type worker struct {
	Worker
	session string
	left    time.Time // when its session ended; zero: it is there
}

// want is one watch, and who has it.
type want struct {
	head                         *pb.Watch
	tenant, cluster, node, short string
	automator, provider, machine string
	owner                        *worker
}

// New makes the watcher of one term.
func New(cfg Config) *Watcher {
	if cfg.TTL == 0 {
		cfg.TTL = 5 * time.Second
	}
	if cfg.Settle == 0 {
		cfg.Settle = 250 * time.Millisecond
	}
	return &Watcher{cfg: cfg, wake: make(chan struct{}, 1), workers: map[string]*worker{}, clusters: map[string]map[string]*want{}, dirty: map[string]bool{}}
}

// Name names the duty.
func (w *Watcher) Name() string { return "watcher" }

// Restore expects the agents that have sessions: they go on with what an earlier
// leader told them, and have it until they are back, or silent for too long.
func (w *Watcher) Restore(context.Context) error {
	v := w.cfg.Machine.View()
	for _, a := range v.Agents() {
		if a.Session == "" {
			continue
		}
		x := &worker{Worker: Worker{Agent: a.ID, Plugins: map[string]bool{}}, left: time.Now()}
		for key := range a.Plugins {
			x.Plugins[key] = true
		}
		w.workers[a.ID] = x
	}
	return nil
}

func (w *Watcher) post(fn func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mail = append(w.mail, fn)
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Run owns the watcher until ctx ends.
func (w *Watcher) Run(ctx context.Context) error {
	w.ctx = ctx
	defer w.work.Wait()
	stop := w.cfg.Machine.Watch(func(b state.Batch) {
		if b.Restored || len(b.Operations) > 0 || len(b.Health) > 0 {
			w.post(func() { w.changed(b) })
		}
	})
	defer stop()
	w.all()
	settle := time.NewTimer(w.cfg.Settle)
	defer settle.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.wake:
		case <-settle.C:
			begin := time.Now()
			w.settle()
			settle.Reset(max(w.cfg.Settle, share*time.Since(begin)))
		}
		w.mu.Lock()
		mail := w.mail
		w.mail = nil
		w.mu.Unlock()
		for _, fn := range mail {
			fn()
		}
	}
}

// share bounds what looking at clusters costs, however many there are and however
// often they change: a twentieth of a processor.
const share = 20

func (w *Watcher) all() {
	for _, cl := range w.cfg.Machine.View().Clusters("") {
		w.dirty[cl.ID] = true
	}
	for id := range w.clusters {
		w.dirty[id] = true
	}
}

func (w *Watcher) changed(b state.Batch) {
	if b.Restored {
		w.all()
		return
	}
	for _, id := range b.Health {
		w.dirty[id] = true
	}
	for op := range b.Operations {
		w.dirty[string(model.OperationID(op).Cluster())] = true
	}
}

// Join tells of a worker whose session began, Leave of one whose session ended.
func (w *Watcher) Join(session string, x Worker) {
	w.post(func() {
		w.workers[x.Agent] = &worker{Worker: x, session: session}
		w.rebalance(x.Agent)
	})
}

// Leave tells that nobody is behind a session now.
func (w *Watcher) Leave(session string) {
	w.post(func() {
		for _, x := range w.workers {
			if x.session == session {
				x.left = time.Now()
			}
		}
	})
}

// Wanted sends a worker the tasks of watches that it asks for.
func (w *Watcher) Wanted(session string, keys []string) {
	w.post(func() {
		x := w.bySession(session)
		if x == nil {
			return
		}
		v := w.cfg.Machine.View()
		out := make([]*pb.Watch, 0, len(keys))
		for _, key := range keys {
			if t := w.find(key); t != nil && t.owner == x {
				out = append(out, w.full(v, t))
			}
		}
		w.send(x, out, nil, false)
	})
}

func (w *Watcher) bySession(session string) *worker {
	for _, x := range w.workers {
		if x.session == session {
			return x
		}
	}
	return nil
}

// find returns the watch with this key: a node's id, a slash and a service.
func (w *Watcher) find(key string) *want {
	node, _, _ := strings.Cut(key, "/")
	return w.clusters[string(model.NodeID(node).Cluster())][key]
}

// full makes a watch with its tasks. Without them the worker asks again later.
func (w *Watcher) full(v *state.View, t *want) *pb.Watch {
	out := copyOf(t.head)
	cl, ok := v.Cluster(t.tenant, t.cluster)
	n, has := v.Node(t.tenant, t.node)
	if !ok || !has {
		return out
	}
	var err error
	if out.Check, out.Machine, err = w.cfg.Tasks.Check(v, cl, n, t.short); err != nil {
		w.cfg.Logger.Warn("a health check cannot be made", "cluster", t.cluster, "node", t.node, "service", t.short, "error", err)
	}
	if out.Machine != nil && t.owner != nil && !t.owner.Plugins[t.provider] {
		out.Machine = nil // nobody there could ask
	}
	return out
}

// copyOf copies a head, which others hold too.
func copyOf(h *pb.Watch) *pb.Watch {
	return &pb.Watch{
		Key: h.Key, Version: h.Version, NodeVersion: h.NodeVersion, Known: h.Known, Gone: h.Gone,
		IntervalMs: h.IntervalMs, DelayMs: h.DelayMs, GraceMs: h.GraceMs, Failures: h.Failures,
	}
}

// Health writes down what workers' checks say now.
func (w *Watcher) Health(session string, list []*pb.Health) {
	w.post(func() {
		x := w.bySession(session)
		r := &pb.ReportHealth{}
		var said []*want
		for _, h := range list {
			t := w.find(h.Key)
			if t == nil || x == nil || t.owner != x {
				continue // somebody else watches by now
			}
			said = append(said, t)
			r.Changes = append(r.Changes, &pb.HealthChange{
				Tenant: t.tenant, Node: t.node, Version: h.NodeVersion, Service: t.short,
				Healthy: h.Healthy, Message: h.Message, Machine: pb.Machine(h.Machine),
			})
		}
		if len(said) == 0 {
			return
		}
		w.work.Add(1)
		go func() {
			defer w.work.Done()
			if _, err := w.cfg.Propose(w.ctx, &pb.Command{Actor: model.Self, Change: &pb.Command_ReportHealth{ReportHealth: r}}); err != nil {
				w.post(func() { w.again(x, said) }) // the worker thinks that we know
			}
		}()
	})
}

// again reminds a worker of what the state has.
func (w *Watcher) again(x *worker, list []*want) {
	v := w.cfg.Machine.View()
	var out []*pb.Watch
	for _, t := range list {
		if t.owner == x && w.find(t.head.Key) == t {
			w.known(v, t)
			out = append(out, copyOf(t.head))
		}
	}
	w.send(x, out, nil, false)
}

// lot bounds the watches of a message.
const lot = 500

func (w *Watcher) send(x *worker, watches []*pb.Watch, drop []string, anew bool) {
	if x == nil || x.Send == nil || !x.left.IsZero() || !anew && len(watches)+len(drop) == 0 {
		return
	}
	for first := true; first || len(watches) > 0; first = false {
		n := min(lot, len(watches))
		if anew {
			n = len(watches) // what a message does not name is dropped
		}
		if !x.Send(&pb.LeaderMessage{Watches: watches[:n], Unwatch: drop, WatchAnew: anew}) {
			return
		}
		watches, drop, anew = watches[n:], nil, false
	}
}
