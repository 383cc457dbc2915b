// Package recovery is the leader's controller that keeps clusters alive. For each
// cluster with failing nodes it asks engine/recovery what to do, and starts the
// operations that do it (docs/decisions/023-recovery.md).
package recovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/coopr/coopr/consensus/duty/loop"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/recovery"
)

// Starter starts operations; the orchestrator implements it.
type Starter interface {
	StartConcurrent(ctx context.Context, who model.Caller, cluster string, op model.OperationType,
		units []operation.Unit) (*operation.Prepared, state.Answer, error)
	Operate(ctx context.Context, who model.Caller, cluster string, req operation.Request) (*operation.Prepared, state.Answer, error)
}

// Config configures a Controller. Machine, Start and Logger are required.
type Config struct {
	Machine *state.Machine
	Start   Starter
	Logger  *slog.Logger
	// Gather is how long the controller waits after the first event of a cluster, so
	// that nodes which fail together are recovered together; 0 means 500 ms.
	Gather time.Duration
	// Retry is the pause after a recovery that could not be started; 0 means 5 s.
	Retry time.Duration
}

// parallel is how many clusters are decided about at a time. Planning the
// replacement of nodes may take seconds, and must not delay other clusters.
const parallel = 4

// Controller recovers clusters, one at a time for each cluster. It is made for one
// term and keeps no state of its own: its decisions depend on the replicated state
// and the time alone.
type Controller struct {
	cfg   Config
	queue *loop.Queue[string] // of the ids of clusters
}

// New returns the controller of one term.
func New(cfg Config) *Controller {
	if cfg.Gather == 0 {
		cfg.Gather = 500 * time.Millisecond
	}
	if cfg.Retry == 0 {
		cfg.Retry = 5 * time.Second
	}
	c := &Controller{cfg: cfg}
	c.queue = loop.New(loop.Config[string]{
		Reconcile: c.reconcile, Parallel: parallel, Gather: cfg.Gather, Backoff: cfg.Retry, MaxBackoff: cfg.Retry,
		Failed: func(cluster string, err error, pause time.Duration) {
			cfg.Logger.Warn("a recovery could not be started", "cluster", cluster, "error", err, "again_in", pause)
		},
	})
	return c
}

// Name returns the name of the duty.
func (c *Controller) Name() string { return "recovery" }

// Restore does nothing: Run adds all clusters.
func (c *Controller) Restore(context.Context) error { return nil }

func (c *Controller) addAll() {
	for _, cl := range c.cfg.Machine.View().Clusters("") {
		c.queue.Add(cl.ID)
	}
}

// Run recovers clusters until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	stop := c.cfg.Machine.Watch(c.changed)
	defer stop()
	c.addAll() // after Watch, so that no change falls between
	return c.queue.Run(ctx)
}

// changed adds the clusters that a batch touched.
func (c *Controller) changed(b state.Batch) {
	if b.Anew() {
		c.addAll()
	}
	c.queue.Add(b.Health...)
	for op := range b.Operations {
		c.queue.Add(string(model.OperationID(op).Cluster()))
	}
}

// reconcile starts the recoveries that are due for one cluster. It returns when a wait
// that recovery imposes is over.
func (c *Controller) reconcile(ctx context.Context, cluster string) (time.Time, error) {
	v, now := c.cfg.Machine.View(), time.Now()
	cl, ok := v.ClusterByID(cluster)
	if !ok || v.Hold() != nil { // all are added when the hold ends
		return time.Time{}, nil
	}
	s, ok := Snapshot(v, cl, now.UnixMilli())
	if !ok {
		return time.Time{}, nil
	}
	d := recovery.Decide(s)
	log := c.cfg.Logger.With("cluster", cl.ID)
	for _, w := range d.Waits {
		log.Debug("a node is not recovered now", "node", w.Node, "because", w.Why)
	}
	who := model.Caller{Tenant: cl.Tenant, Actor: model.Self, Role: model.RoleAdmin, Follows: true}
	var errs error
	for _, units := range together(cl, d.Restart) {
		for _, u := range units {
			log.Info("recovery restarts services", "node", u.Node, "services", u.Services)
		}
		_, _, err := c.cfg.Start.StartConcurrent(ctx, who, cl.ID, model.OpRecover, units)
		errs = errors.Join(errs, err)
	}
	for _, id := range d.Recreate {
		log.Info("recovery replaces a node while an operation is open", "node", id, "open", s.Main)
		units, err := operation.Whole(operation.Input{Cluster: cl, Nodes: s.Nodes}, []string{id})
		if err == nil {
			_, _, err = c.cfg.Start.StartConcurrent(ctx, who, cl.ID, model.OpRecreateNode, units)
		}
		errs = errors.Join(errs, err)
	}
	if nodes := replaceable(cl, s.Nodes, d.Replace); len(nodes) > 0 {
		log.Info("recovery replaces nodes", "nodes", nodes)
		_, _, err := c.cfg.Start.Operate(ctx, who, cl.ID, operation.Request{
			Type: model.OpReplaceNode, Victims: nodes, OnFailure: "leave", Forced: true, // a failing node may fail to stop, too
		})
		errs = errors.Join(errs, err)
	}
	if at := d.RetryAt(); at > 0 {
		return later(time.UnixMilli(at), now), errs
	}
	return time.Time{}, errs
}

// together returns the restarts that one operation does: those by plans of the template alone, and all others together.
func together(cl *model.Cluster, all []recovery.Unit) [][]operation.Unit {
	var usual []operation.Unit
	var out [][]operation.Unit
	for _, u := range all {
		if len(operation.Patterned(cl, u.Services, model.RecoversRestart)) > 0 {
			out = append(out, []operation.Unit{operation.Unit(u)})
		} else {
			usual = append(usual, operation.Unit(u))
		}
	}
	if len(usual) > 0 {
		out = append(out, usual)
	}
	return out
}

// replaceable returns those of the nodes to be replaced that the next operation replaces. A node that a plan of the template replaces is
// alone in it. The others follow when it has ended.
func replaceable(cl *model.Cluster, nodes []*model.Node, replace []string) []string {
	patterned := func(id string) bool {
		i := slices.IndexFunc(nodes, func(n *model.Node) bool { return n.ID == id })
		return i >= 0 && len(operation.Patterned(cl, nodes[i].Services, model.RecoversReplace)) > 0
	}
	if len(replace) > 1 && patterned(replace[0]) {
		return replace[:1]
	}
	return slices.DeleteFunc(slices.Clone(replace), func(id string) bool { return len(replace) > 1 && patterned(id) })
}

// later returns at, or soon after now if at has passed: a decision never spins.
func later(at, now time.Time) time.Time {
	if soon := now.Add(10 * time.Millisecond); at.Before(soon) {
		return soon
	}
	return at
}

// ends reports whether a cluster is on its way to its end: its deletion was begun, or follows the
// creation that failed.
func ends(v *state.View, cl *model.Cluster) bool {
	op, ok := v.Operation(cl.Tenant, cl.Operation)
	return ok && cl.Status == model.ClusterIncomplete && (op.Type == model.OpDelete || op.Type == model.OpCreate && op.OnFailure == "delete")
}

// held returns why failing nodes cannot be replaced before the open operation main of their cluster ends, by node id.
func held(v *state.View, cl *model.Cluster, main *model.Operation, s recovery.Input) map[string]string {
	out := map[string]string{}
	never := v.MayRecreate(cl)
	p, planned := v.Plan(main.ID)
	busy := func(id string) bool {
		if !planned {
			return false
		}
		_, occupied := v.Occupies(main, p, id)
		return occupied
	}
	at := operation.Input{Cluster: cl, Nodes: v.PresentNodes(cl), Gone: v.Gone(cl)}
	for _, n := range s.Nodes {
		if h := s.Health[n.ID]; h == nil || h.Machine == "" && len(h.Failing()) == 0 {
			continue
		}
		if never != nil {
			out[n.ID] = never.Error()
			continue
		}
		if busy(n.ID) {
			out[n.ID] = "operation " + main.ID + " is at work on it"
			continue
		}
		units := []operation.Unit{{Node: n.ID, Services: n.Staying()}}
		r, err := operation.Concurrent(model.Caller{Tenant: cl.Tenant}, model.OpRecreateNode, units, at, "")
		if err != nil {
			out[n.ID] = err.Error()
			continue
		}
		for _, other := range r.Nodes { // those that have its address in their configuration
			if busy(other.ID) {
				out[n.ID] = fmt.Sprintf("operation %s is at work on node %s, whose configuration has its address", main.ID, other.ShortName())
			}
		}
	}
	return out
}

// recovering counts the nodes that an operation recovers: one that replaces machines only configures the others.
func recovering(op *model.Operation, g *plan.Graph) (nodes int) {
	if op.Type != model.OpRecreateNode {
		return len(g.Nodes)
	}
	for _, action := range g.Action {
		if action == model.Delete {
			nodes++
		}
	}
	return nodes
}

// Snapshot returns recovery's input about a cluster. It reports false if nothing fails, or
// if recovery must not touch the cluster.
func Snapshot(v *state.View, cl *model.Cluster, now int64) (recovery.Input, bool) {
	s := recovery.Input{Cluster: cl, Now: now}
	if cl.Status == model.ClusterTerminated || ends(v, cl) {
		return s, false
	}
	s.Health = v.ClusterHealth(cl.Tenant, cl.ID)
	fails := func(h *model.NodeHealth) bool { return h.Machine != "" || len(h.Failing()) > 0 }
	if !slices.ContainsFunc(slices.Collect(maps.Values(s.Health)), fails) {
		return s, false
	}
	s.Nodes = v.Nodes(cl.Tenant, cl.ID)
	s.Busy = v.Busy(cl.Tenant, cl.ID)
	if op, ok := v.Operation(cl.Tenant, cl.Operation); ok && !op.Status.Ended() {
		s.Main = op.ID
		if op.Type == model.OpDelete {
			return s, false
		}
		s.Held = held(v, cl, op, s)
	}
	for _, op := range v.ActiveOperations() {
		if p, ok := v.Plan(op.ID); ok && op.Cluster == cl.ID && op.Tenant == cl.Tenant && op.Type.Concurrent() && op.Type != model.OpRun &&
			op.Type != model.OpPlan {
			s.Recovering += recovering(op, p.Graph)
			for _, id := range p.Graph.Nodes {
				s.Busy[id] = op.ID // begun or not
			}
		}
	}
	for _, h := range s.Health {
		if op, ok := v.Operation(cl.Tenant, h.Operation); ok && h.Replaced {
			s.Replaced = max(s.Replaced, op.CreatedAt)
		}
	}
	return s, true
}
