package watch

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/coopr/coopr/consensus/duty/loop"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Tasks makes the tasks with which workers observe a node.
type Tasks interface {
	// Check returns the task that checks a service on a node ("" for none), and the task
	// that asks the node's provider about its machine. Either may be nil.
	Check(v *state.View, cl *model.Cluster, n *model.Node, service string) (check, machine *pb.Task, err error)
	// Needs returns the keys of the plugins that carry these tasks out, and the machine
	// that their agent must be on, or "".
	Needs(cl *model.Cluster, n *model.Node, service string) (automator, provider, machine string)
	// Version returns a number that changes when the check of a service of the cluster may
	// have changed while the records of the nodes are the same.
	Version(v *state.View, cl *model.Cluster, nodes []*model.Node) uint64
}

// Config configures a Controller. Zero times take the defaults.
type Config struct {
	Machine *state.Machine
	Propose func(ctx context.Context, commands ...*pb.Command) ([]state.Answer, error)
	Tasks   Tasks
	Logger  *slog.Logger
	// TTL is how long a worker whose session ended may go on checking; 0 means 5 s.
	TTL time.Duration
	// Gather is how long changes of a cluster are gathered; 0 means 250 ms.
	Gather time.Duration
}

// Worker is an agent's worker, as its session began.
type Worker struct {
	Agent, Machine string
	Plugins        map[string]bool
	// Send sends a message to the worker. It reports false once the session is over.
	Send func(*pb.LeaderMessage) bool
}

// Controller assigns watches. It is made for one term. Its queue reconciles one key at a
// time, so that everything but mail needs no lock.
type Controller struct {
	cfg   Config
	queue *loop.Queue[key]
	mail  loop.Mailbox[func()]

	// Owned by reconcile, or by Restore and Run before it.
	ctx      context.Context
	workers  map[string]*worker          // by agent
	clusters map[string]map[string]*want // by cluster and key
	out      orders                      // messages to workers that were not sent yet
	rested   time.Time                   // before then, no further cluster is refreshed: see share
	work     sync.WaitGroup              // proposals that are under way
}

// key names what is reconciled: a cluster by its id, or a chore.
type key struct {
	cluster string
	chore   chore
}

type chore int

const (
	_      chore = iota
	mail         // handle calls in the order in which they came
	send         // send workers what refreshed clusters have for them
	expire       // reassign the watches of workers that are gone for good
)

// worker is a Worker and the state of its session.
type worker struct {
	Worker
	session string
	left    time.Time // when its session ended; zero while it lasts
}

// want is one watch and its owner.
type want struct {
	head                         *pb.Watch
	tenant, cluster, node, short string
	automator, provider, machine string
	owner                        *worker
}

// New returns the controller of one term.
func New(cfg Config) *Controller {
	if cfg.TTL == 0 {
		cfg.TTL = 5 * time.Second
	}
	if cfg.Gather == 0 {
		cfg.Gather = 250 * time.Millisecond
	}
	w := &Controller{cfg: cfg, workers: map[string]*worker{}, clusters: map[string]map[string]*want{}, out: orders{}}
	w.queue = loop.New(loop.Config[key]{Reconcile: w.reconcile})
	return w
}

// Name returns the name of the duty.
func (w *Controller) Name() string { return "watcher" }

// Restore adds the workers of all agents that had sessions with an earlier leader. These
// workers continue their watches, so nobody else takes these over until the workers have
// joined again or the TTL has passed. It began when the term of the session ended, whatever
// terms have followed: otherwise a dead agent would keep its watches where terms are short.
func (w *Controller) Restore(context.Context) error {
	v, now := w.cfg.Machine.View(), time.Now()
	sessions := v.Sessions()
	for _, a := range v.Agents() {
		in, ok := sessions[a.Session]
		if !ok {
			continue
		}
		ended, ok := w.cfg.Machine.TermEnded(in.Epoch)
		if !ok {
			ended = now // not seen by this machine
		}
		x := &worker{Worker: Worker{Agent: a.ID, Plugins: map[string]bool{}}, left: ended}
		for key := range a.Plugins {
			x.Plugins[key] = true
		}
		w.workers[a.ID] = x
	}
	return nil
}

// Run assigns watches until ctx ends.
func (w *Controller) Run(ctx context.Context) error {
	w.ctx = ctx
	defer w.work.Wait()
	stop := w.cfg.Machine.Watch(func(b state.Batch) {
		if b.Anew() || len(b.Operations) > 0 || len(b.Health) > 0 {
			w.post(func() { w.changed(b) })
		}
	})
	defer stop()
	w.post(w.addAll) // after Watch, so that no change falls between
	w.queue.Add(key{chore: expire})
	return w.queue.Run(ctx)
}

// post has the owner make a call.
func (w *Controller) post(fn func()) {
	if w.mail.Post(fn) {
		w.queue.Add(key{chore: mail})
	}
}

// reconcile refreshes a cluster or does a chore.
func (w *Controller) reconcile(_ context.Context, k key) (time.Time, error) {
	switch k.chore {
	case mail:
		w.sendAll() // before a call makes other orders
		for _, call := range w.mail.Take() {
			call()
		}
	case send:
		w.sendAll()
	case expire:
		w.sendAll()
		return w.expire(time.Now()), nil
	default:
		begin := time.Now()
		v := w.cfg.Machine.View()
		cl, _ := v.ClusterByID(k.cluster)
		if v.Hold() != nil {
			cl = nil // nothing is watched, and all are added when the hold ends
		}
		w.refresh(v, k.cluster, cl, w.out)
		if len(w.out) > 0 {
			w.queue.Add(key{chore: send}) // behind the clusters that are due already
		}
		end := time.Now()
		if w.rested.Before(end) {
			w.rested = end
		}
		w.rested = w.rested.Add(share * end.Sub(begin))
	}
	return time.Time{}, nil
}

// share bounds the cost of refreshing clusters, however many there are and however often
// they change: to a twentieth of a processor.
const share = 20

// add schedules the refresh of a cluster. The refresh waits until Config.Gather has passed,
// and until w.rested, which share determines.
func (w *Controller) add(cluster string) {
	at := time.Now().Add(w.cfg.Gather)
	if at.Before(w.rested) {
		at = w.rested
	}
	w.queue.AddAt(key{cluster: cluster}, at)
}

func (w *Controller) addAll() {
	for _, cl := range w.cfg.Machine.View().Clusters("") {
		w.add(cl.ID)
	}
	for id := range w.clusters {
		w.add(id)
	}
}

func (w *Controller) changed(b state.Batch) {
	if b.Anew() {
		w.addAll()
		return
	}
	for _, id := range b.Health {
		w.add(id)
	}
	for op := range b.Operations {
		w.add(string(model.OperationID(op).Cluster()))
	}
}

// expire removes the workers whose TTL has passed and gives their watches to others. It
// returns the time at which the next worker expires, or the zero time.
func (w *Controller) expire(now time.Time) (next time.Time) {
	lost := false
	for agent, x := range w.workers {
		if x.left.IsZero() {
			continue
		}
		at := x.left.Add(w.cfg.TTL + time.Millisecond)
		if !now.Before(at) {
			delete(w.workers, agent)
			lost = true
		} else if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	if lost {
		w.rebalance("")
	}
	return next
}

// Join begins the session of a worker.
func (w *Controller) Join(session string, x Worker) {
	w.post(func() {
		w.workers[x.Agent] = &worker{Worker: x, session: session}
		w.rebalance(x.Agent)
	})
}

// Leave ends the session of a worker. The worker keeps its watches until the TTL has
// passed, as it may go on checking.
func (w *Controller) Leave(session string) {
	w.post(func() {
		for _, x := range w.workers {
			if x.session == session {
				x.left = time.Now()
			}
		}
		w.queue.Add(key{chore: expire})
	})
}

// Wanted sends a worker the tasks of the watches that it asks for.
func (w *Controller) Wanted(session string, keys []string) {
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

// Watches reports whether an agent has a watch on a node of a tenant.
func (w *Controller) Watches(ctx context.Context, agent, tenant string) bool {
	answer := make(chan bool, 1)
	w.post(func() {
		for _, list := range w.clusters {
			for _, t := range list {
				if t.tenant == tenant && t.owner != nil && t.owner.Agent == agent {
					answer <- true
					return
				}
			}
		}
		answer <- false
	})
	select {
	case yes := <-answer:
		return yes
	case <-ctx.Done():
		return false
	}
}

// Reaches returns the id of the best agent for work on a node: one that has a session, an automator's plugin, and, unless machine is "", is
// on that machine. It returns "" if there is none.
func (w *Controller) Reaches(ctx context.Context, automator, machine, node string) string {
	answer := make(chan string, 1)
	w.post(func() {
		if x := w.best(&want{automator: automator, machine: machine, node: node}); x != nil && x.left.IsZero() {
			answer <- x.Agent
			return
		}
		answer <- ""
	})
	select {
	case agent := <-answer:
		return agent
	case <-ctx.Done():
		return ""
	}
}

func (w *Controller) bySession(session string) *worker {
	for _, x := range w.workers {
		if x.session == session {
			return x
		}
	}
	return nil
}

// find returns the watch with this key, a model.PlacementID.
func (w *Controller) find(key string) *want {
	return w.clusters[string(model.PlacementID(key).Node().Cluster())][key]
}

// full returns a watch with its tasks. If they cannot be made, the worker asks again
// later.
func (w *Controller) full(v *state.View, t *want) *pb.Watch {
	out := copyOf(t.head)
	cl, ok := v.Cluster(t.tenant, t.cluster)
	n, has := v.Node(t.tenant, t.node)
	if !ok || !has {
		return out
	}
	var err error
	if out.Check, out.Machine, err = w.cfg.Tasks.Check(v, cl, n, t.short); err != nil {
		w.cfg.Logger.Warn("the task of a health check cannot be made", "cluster", t.cluster, "node", t.node, "service", t.short, "error", err)
	}
	if out.Machine != nil && t.owner != nil && !t.owner.Plugins[t.provider] {
		out.Machine = nil // the agent lacks the provider's plugin
	}
	return out
}

// copyOf returns a copy of a watch without its tasks. The original is shared.
func copyOf(h *pb.Watch) *pb.Watch {
	return &pb.Watch{
		Key: h.Key, Version: h.Version, NodeVersion: h.NodeVersion, Known: h.Known, Gone: h.Gone,
		IntervalMs: h.IntervalMs, DelayMs: h.DelayMs, GraceMs: h.GraceMs, Failures: h.Failures,
	}
}

// Health records the verdicts of a worker's checks.
func (w *Controller) Health(session string, list []*pb.Health) {
	w.post(func() {
		if w.cfg.Machine.View().Hold() != nil {
			return // the order to drop the watches is on its way
		}
		x := w.bySession(session)
		r := &pb.ReportHealth{}
		var said []*want
		for _, h := range list {
			t := w.find(h.Key)
			if t == nil || x == nil || t.owner != x {
				continue // another worker watches by now
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
		w.work.Go(func() {
			answers, err := w.cfg.Propose(w.ctx, &pb.Command{Actor: model.Self, Change: &pb.Command_ReportHealth{ReportHealth: r}})
			if err != nil || answers[0].Err != nil {
				w.post(func() { w.remind(x, said) }) // the worker assumes that the leader has them
			}
		})
	})
}

// remind sends a worker the verdicts that the state holds for some of its watches. The
// worker then reports again where its own verdict differs.
func (w *Controller) remind(x *worker, list []*want) {
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

// lot bounds the number of watches in a message.
const lot = 500

func (w *Controller) send(x *worker, watches []*pb.Watch, drop []string, anew bool) {
	if x == nil || x.Send == nil || !x.left.IsZero() || !anew && len(watches)+len(drop) == 0 {
		return
	}
	for first := true; first || len(watches) > 0; first = false {
		n := min(lot, len(watches))
		if anew {
			n = len(watches) // the worker drops every watch that the message lacks
		}
		if !x.Send(&pb.LeaderMessage{Watches: watches[:n], Unwatch: drop, WatchAnew: anew}) {
			return
		}
		watches, drop, anew = watches[n:], nil, false
	}
}
