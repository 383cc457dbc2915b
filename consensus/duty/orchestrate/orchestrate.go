// Package orchestrate is the leader's controller that turns requests into operations.
// It solves and plans outside the state machine, proposes the result as data, and
// starts what follows from the end of an operation.
package orchestrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/coopr/coopr/consensus/duty/loop"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/access"
	"github.com/coopr/coopr/engine/hostexec"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Config configures an Orchestrator. Machine, Propose and Logger are required.
type Config struct {
	Machine *state.Machine
	Propose func(ctx context.Context, commands ...*pb.Command) ([]state.Answer, error)
	Logger  *slog.Logger
	// Rank asks plugins for the comparators that they offer; nil if there are none.
	Rank func(context.Context, model.RankingQuestion) (*model.Ranking, error)
	// First chooses workers for the first tasks of an operation, so that their leases
	// are committed with its start; may be nil. See dispatch.Dispatcher.First.
	First func(ctx context.Context, p *operation.Prepared) (*pb.Lease, func())
	// Seal encrypts the sensitive fields of a provider of a tenant, and others by name, before they are proposed; nil leaves them
	// as they are.
	Seal func(ctx context.Context, tenant string, p *model.Provider, also ...string) error
	// SealHidden encrypts the values of a configuration that come from secrets, before an operation is planned with it. Without it such a
	// configuration is refused.
	SealHidden func(ctx context.Context, tenant string, config map[string]any) (map[string]any, error)
	// HostExec decides which users may request work that runs on control hosts.
	HostExec hostexec.Rules
}

// parallel is how many clusters the orchestrator plans follow-up operations for at a
// time. Solving one layout may take seconds, and must not delay other clusters.
const parallel = 4

// Orchestrator prepares and starts operations. As a duty of the leader it starts what
// follows from the end of an operation. It is made for one term.
type Orchestrator struct {
	cfg   Config
	queue *loop.Queue[string] // of the ids of clusters
	sets  access.Sets         // the policies by which operations are permitted

	mu   sync.Mutex
	last int // number of the latest cluster
}

// New returns the orchestrator of one term.
func New(cfg Config) *Orchestrator {
	o := &Orchestrator{cfg: cfg}
	o.queue = loop.New(loop.Config[string]{Reconcile: o.reconcile, Parallel: parallel,
		Failed: func(cluster string, err error, pause time.Duration) {
			cfg.Logger.Warn("the next operation of a cluster could not be started", "cluster", cluster, "error", err, "again_in", pause)
		}})
	return o
}

// Name returns the name of the duty.
func (o *Orchestrator) Name() string { return "orchestrator" }

// Restore finds the highest number that a cluster has or had. It runs after the barrier, so
// that no number of an earlier leader is used twice.
func (o *Orchestrator) Restore(context.Context) error {
	o.learn()
	return nil
}

func (o *Orchestrator) learn() {
	last := o.cfg.Machine.View().LastCluster()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = max(o.last, last)
}

// Run starts follow-up and queued operations until ctx ends.
func (o *Orchestrator) Run(ctx context.Context) error {
	stop := o.cfg.Machine.Watch(func(b state.Batch) {
		if b.Anew() {
			o.learn() // the snapshot may have higher numbers
			o.addAll()
		}
		o.queue.Add(b.Health...) // a machine may be gone on which a rollback failed
		for op := range b.Operations {
			o.queue.Add(string(model.OperationID(op).Cluster()))
		}
	})
	defer stop()
	o.addAll() // after Watch, so that no change falls between
	return o.queue.Run(ctx)
}

func (o *Orchestrator) addAll() {
	for _, c := range o.cfg.Machine.View().Clusters("") {
		o.queue.Add(c.ID)
	}
}

// reconcile starts what follows the last main operation of a cluster, or else the
// first operation that is queued for the cluster.
func (o *Orchestrator) reconcile(ctx context.Context, cluster string) (time.Time, error) {
	v := o.cfg.Machine.View()
	cl, ok := v.ClusterByID(cluster)
	if !ok || v.Hold() != nil { // all are added when the hold ends
		return time.Time{}, nil
	}
	if err := o.follow(ctx, cl.Operation); err != nil {
		return time.Time{}, fmt.Errorf("follow operation %s: %w", cl.Operation, err)
	}
	if err := o.dequeue(ctx, cl.Operation); err != nil {
		return time.Time{}, fmt.Errorf("start the operation that is queued after %s: %w", cl.Operation, err)
	}
	return time.Time{}, nil
}

// follow starts what the end of an operation asks for (docs/spec/planner.md,
// "Transactions" 7): the deletion of what a failed or aborted create left, or the
// rollback of an operation that could not be finished. It does nothing if the
// operation is not its cluster's last one any more.
func (o *Orchestrator) follow(ctx context.Context, id string) error {
	v := o.cfg.Machine.View()
	op, ok := v.Operation("", id)
	if !ok {
		return nil
	}
	cl, ok := v.Cluster(op.Tenant, op.Cluster)
	if !ok || cl.Operation != op.ID {
		return nil // another operation came since
	}
	req := operation.Request{Follows: op.ID}
	next, retried := retryOf(v, op)
	switch {
	case retried:
		req = next
	case mustDelete(op):
		req.Type = model.OpDelete
	case op.Status == model.OpRollingBack:
		req.Type, req.To = model.OpRollback, op.Before
	case cl.Status == model.ClusterFailed && metGone(v, op):
		req.Type, req.To, req.Follows = model.OpRollback, op.To, op.Follows
	default:
		return nil
	}
	o.cfg.Logger.Info("an operation did not succeed", "cluster", cl.ID, "operation", op.ID, "status", op.Status, "follows", req.Type)
	who := model.Caller{Tenant: op.Tenant, Actor: model.Self, Role: model.RoleAdmin, Follows: true, Request: "follows " + op.ID}
	_, _, err := o.Operate(ctx, who, cl.ID, req)
	if retried && hopeless(err) {
		// There is no other layout, or it cannot be planned. Proceed as if no other
		// layout had been asked for.
		o.cfg.Logger.Info("no other layout is tried", "cluster", cl.ID, "operation", op.ID, "error", err)
		if !mustDelete(op) {
			_, err = o.cfg.Propose(ctx, &pb.Command{Tenant: op.Tenant, Actor: model.Self, Change: &pb.Command_ControlOperation{
				ControlOperation: &pb.ControlOperation{Operation: next.Follows, Order: pb.OperationOrder_OPERATION_ORDER_STOP_RETRYING},
			}})
			return err
		}
		_, _, err = o.Operate(ctx, who, cl.ID, operation.Request{Type: model.OpDelete, Follows: op.ID})
	}
	switch {
	case err == nil, errors.Is(err, problem.Conflict), errors.Is(err, problem.Stale), errors.Is(err, problem.NotFound),
		errors.Is(err, operation.ErrState):
		return nil // another operation was faster
	}
	if op.Type == model.OpRollback && op.Status == model.OpFailed && hopeless(err) {
		o.cfg.Logger.Warn("a rollback cannot be repeated without the machines that are gone", "cluster", cl.ID, "operation", op.ID, "error", err)
		return nil
	}
	if op.Status == model.OpRollingBack && hopeless(err) {
		// Another attempt would fail in the same way: a person has to intervene.
		_, err = o.cfg.Propose(ctx, &pb.Command{Tenant: op.Tenant, Actor: who.Actor, Change: &pb.Command_ControlOperation{
			ControlOperation: &pb.ControlOperation{Operation: op.ID, Order: pb.OperationOrder_OPERATION_ORDER_GIVE_UP, Reason: err.Error()},
		}})
	}
	return err
}

// lookup reads a tenant's definitions.
type lookup struct {
	v      *state.View
	tenant string
}

func (l lookup) Definition(kind model.Kind, name string) (model.Definition, bool) {
	row, ok := l.v.Definition(l.tenant, kind, name, 0)
	if !ok {
		return model.Definition{}, false
	}
	d, err := model.Restore(kind, row.Body)
	if err != nil {
		return model.Definition{}, false // it was decoded before it was stored: this does not happen
	}
	d.SetOrigin(row)
	return d, true
}

func (l lookup) Names(kind model.Kind) []string {
	var out []string
	for _, d := range l.v.Definitions(l.tenant, kind) {
		out = append(out, d.Name)
	}
	return out
}

// Lookup returns the definitions of a tenant. Where the tenant has no definition of a
// plugin type, it returns the plugin type that agents offer.
func Lookup(v *state.View, tenant string) model.Lookup {
	offered := model.Set{}
	for _, t := range v.PluginTypes() {
		kind := model.KindProviderType
		if t.Class == "automator" {
			kind = model.KindAutomatorType
		}
		offered.Add(model.Define(kind, &t))
	}
	return model.Over(lookup{v, tenant}, offered)
}

// lookup is like Lookup, and can ask plugins for comparators.
func (o *Orchestrator) lookup(v *state.View, tenant string) model.Lookup {
	if o.cfg.Rank == nil {
		return Lookup(v, tenant)
	}
	return model.WithRanker(Lookup(v, tenant), o.cfg.Rank)
}

// Create prepares and starts the creation of a cluster. With dryRun it prepares the creation and
// finds out whether it would be refused now.
func (o *Orchestrator) Create(ctx context.Context, who model.Caller, req model.CreateCluster, dryRun bool) (*operation.Prepared,
	state.Answer, error) {
	for try := 1; ; try++ {
		v := o.cfg.Machine.View()
		if !dryRun {
			if p, ans, ok, err := Repeated(v, who); ok {
				return p, ans, err
			}
		}
		id := o.nextCluster(!dryRun)
		p, err := operation.Create(ctx, who, req, o.lookup(v, who.Tenant), operation.IDs{Cluster: string(id), Operation: string(id.Operation(1))})
		if err != nil {
			return nil, state.Answer{}, err
		}
		if err := o.permit(who, p); err != nil {
			return nil, state.Answer{}, err
		}
		if dryRun {
			return p, state.Answer{}, o.try(who, p)
		}
		ans, err := o.start(ctx, who, p, madeFrom(v, p, nil)...)
		if errors.Is(err, problem.Stale) && try < stale {
			continue // a definition was deleted while this cluster was planned
		}
		return o.outcome(who, p, ans, err)
	}
}

// nextCluster returns the id of the next cluster. With take, no other cluster gets it.
func (o *Orchestrator) nextCluster(take bool) model.ClusterID {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.last + 1
	if take {
		o.last = n
	}
	return model.NewClusterID(n)
}

// madeFrom returns the definitions that a new cluster was planned from and that the state had, except
// those of own. The cluster is refused if one of them is deleted before it begins.
func madeFrom(v *state.View, p *operation.Prepared, own model.Set) []*pb.DefinitionVersion {
	var out []*pb.DefinitionVersion
	seen := map[[2]string]bool{}
	add := func(kind model.Kind, name string) {
		key := [2]string{string(kind), name}
		if _, ok := own.Definition(kind, name); ok || seen[key] {
			return
		}
		seen[key] = true
		if _, ok := v.Definition(p.Cluster.Tenant, kind, name, 0); ok {
			out = append(out, &pb.DefinitionVersion{Kind: string(kind), Name: name})
		}
	}
	add(model.KindClusterTemplate, p.Cluster.Template.Name)
	add(model.KindProvider, p.Cluster.Provider.Name)
	for _, name := range slices.Sorted(maps.Keys(p.Cluster.Definitions)) {
		add(model.KindService, name)
	}
	for i := range p.Write {
		add(model.KindHardwareType, p.Write[i].HardwareType)
		add(model.KindImageType, p.Write[i].ImageType)
	}
	return out
}

// Operate prepares and starts an operation on a cluster.
func (o *Orchestrator) Operate(ctx context.Context, who model.Caller, cluster string, req operation.Request) (*operation.Prepared,
	state.Answer, error) {
	return o.operate(ctx, who, cluster, req, "")
}

// operate is like Operate; id is the operation's id if it has one already, or "".
func (o *Orchestrator) operate(ctx context.Context, who model.Caller, cluster string, req operation.Request,
	id string) (*operation.Prepared, state.Answer, error) {
	for try := 1; ; try++ {
		if req.Supersede && id == "" {
			p, ans, open, err := o.supersede(ctx, who, cluster, req)
			if errors.Is(err, problem.Stale) && try < stale {
				continue
			}
			if open {
				return p, ans, err
			}
		}
		if v := o.cfg.Machine.View(); req.Queue {
			if p, ans, ok, err := Repeated(v, who); ok {
				return p, ans, err
			}
			if cl, ok := v.Cluster(who.Tenant, cluster); ok && mustWait(v, cl) {
				p, ans, err := o.enqueue(ctx, who, cl, req, "")
				if errors.Is(err, problem.Stale) && try < stale {
					continue
				}
				return o.outcome(who, p, ans, err)
			}
		}
		p, err := o.prepare(ctx, who, cluster, req, id)
		if err != nil {
			v := o.cfg.Machine.View()
			if p, ans, ok, err := Repeated(v, who); ok {
				return p, ans, err
			}
			return nil, state.Answer{}, maySupersede(v, who, cluster, req, err)
		}
		ans, err := o.start(ctx, who, p)
		if errors.Is(err, problem.Stale) && try < stale {
			continue // a recovery began or ended while this operation was planned
		}
		return o.outcome(who, p, ans, err)
	}
}

// Prepare prepares an operation on a cluster without starting it.
func (o *Orchestrator) Prepare(ctx context.Context, who model.Caller, cluster string, req operation.Request) (*operation.Prepared, error) {
	return o.prepare(ctx, who, cluster, req, "")
}

// Preview prepares an operation on a cluster, and finds out whether its start would be refused now.
func (o *Orchestrator) Preview(ctx context.Context, who model.Caller, cluster string, req operation.Request) (*operation.Prepared, error) {
	for try := 1; ; try++ {
		v := o.cfg.Machine.View()
		if req.Supersede {
			p, c, err := o.superseding(ctx, who, v, cluster, req)
			if err == nil && c != nil {
				err = o.tryCommand(c)
			}
			if errors.Is(err, problem.Stale) && try < stale {
				continue
			}
			if c != nil || err != nil {
				return p, err
			}
		}
		if cl, ok := v.Cluster(who.Tenant, cluster); ok && req.Queue && mustWait(v, cl) {
			p, c, err := queued(who, cl, req, "")
			if err == nil {
				err = o.tryCommand(c)
			}
			if errors.Is(err, problem.Stale) && try < stale {
				continue
			}
			return p, err
		}
		p, err := o.prepare(ctx, who, cluster, req, "")
		if err != nil {
			return nil, maySupersede(v, who, cluster, req, err)
		}
		if err = o.try(who, p); errors.Is(err, problem.Stale) && try < stale {
			continue
		}
		return p, err
	}
}

// PreviewConcurrent is Preview for an operation that runs concurrently with the others of its cluster.
func (o *Orchestrator) PreviewConcurrent(who model.Caller, cluster string, op model.OperationType,
	units []operation.Unit) (*operation.Prepared, error) {
	for try := 1; ; try++ {
		p, err := o.PrepareConcurrent(who, cluster, op, units)
		if err != nil {
			return nil, err
		}
		if err = o.try(who, p); errors.Is(err, problem.Stale) && try < stale {
			continue
		}
		return p, err
	}
}

// try returns the error with which the start of a prepared operation would be refused now, or nil.
func (o *Orchestrator) try(who model.Caller, p *operation.Prepared) error {
	s, err := startOf(p)
	if err != nil {
		return err
	}
	return o.tryCommand(&pb.Command{Tenant: who.Tenant, Actor: who.Actor, Change: &pb.Command_StartOperation{StartOperation: s}})
}

func (o *Orchestrator) tryCommand(c *pb.Command) error {
	c.RequestId = "" // a preview is no request
	return o.cfg.Machine.Try(c, time.Now().UnixMilli()).Err
}

func (o *Orchestrator) prepare(ctx context.Context, who model.Caller, cluster string, req operation.Request,
	id string) (*operation.Prepared, error) {
	v := o.cfg.Machine.View()
	cl, ok := v.Cluster(who.Tenant, cluster)
	if !ok {
		return nil, problem.New(problem.NotFound, "there is no cluster %q", cluster)
	}
	return o.prepareOn(ctx, who, v, cl, v.Nodes(cl.Tenant, cl.ID), req, id)
}

// prepareOn is prepare with these records of the cluster and its nodes.
func (o *Orchestrator) prepareOn(ctx context.Context, who model.Caller, v *state.View, cl *model.Cluster, nodes []*model.Node,
	req operation.Request, id string) (*operation.Prepared, error) {
	at := operation.Input{Cluster: cl, Nodes: nodes, Gone: v.Gone(cl), Snapshot: func(n int) (*model.Snapshot, bool) {
		return v.Snapshot(cl.Tenant, cl.ID, n)
	}, Lost: func(node, service string) map[string]string { return lost(v, cl, node, service) }}
	last, ok := v.Operation(cl.Tenant, cl.Operation)
	if ok && req.Supersede && (!last.Status.Ended() || last.SupersededBy != "" && last.SupersededBy == id) {
		at.Superseded, _ = v.Plan(last.ID)
		at.Complete, _ = at.Snapshot(last.Before)
	}
	known := o.lookup(v, cl.Tenant)
	if req.Type == model.OpSyncTemplate && req.To > 0 {
		pinned, err := versions(v, cl, req.To)
		if err != nil {
			return nil, err
		}
		known = model.Over(pinned, known)
	}
	p, err := operation.Prepare(ctx, who, req, at, known, cmp.Or(id, nextID(cl)))
	if err == nil {
		err = o.permit(who, p)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (o *Orchestrator) outcome(who model.Caller, p *operation.Prepared, ans state.Answer, err error) (*operation.Prepared,
	state.Answer, error) {
	if err != nil {
		return nil, ans, err
	}
	if ans.Repeated {
		return repeated(o.cfg.Machine.View(), who, ans)
	}
	if e := ans.Effect; e != nil && e.Operation != nil && e.Begun != nil {
		p.Operation, p.Cluster = *e.Operation, *e.Begun
	}
	return p, ans, ans.Err
}

// Repeated returns the outcome of the caller's request if it was carried out before.
func Repeated(v *state.View, who model.Caller) (p *operation.Prepared, ans state.Answer, ok bool, err error) {
	r, ok := v.Answered(who)
	if !ok {
		return nil, state.Answer{}, false, nil
	}
	p, ans, err = repeated(v, who, state.Answer{Index: r.Index, Subject: r.Subject, Repeated: true, Effect: r.Effect})
	return p, ans, true, err
}

// repeated returns the outcome of a request that was carried out before. The operation is as it was
// then. Its cluster is as it is now, and has only an id if it is gone.
func repeated(v *state.View, who model.Caller, ans state.Answer) (*operation.Prepared, state.Answer, error) {
	p := &operation.Prepared{}
	if ans.Effect != nil && ans.Effect.Operation != nil {
		p.Operation = *ans.Effect.Operation
	} else if op, ok := v.Operation(who.Tenant, ans.Subject); ok {
		p.Operation = *op
	} else {
		return nil, state.Answer{}, problem.New(problem.Conflict, "request %q was used for something else", who.Request)
	}
	p.Cluster.ID = p.Operation.Cluster
	if cl, ok := v.Cluster(p.Operation.Tenant, p.Operation.Cluster); ok {
		p.Cluster = *cl
	}
	for _, n := range v.Nodes(p.Operation.Tenant, p.Operation.Cluster) {
		p.Nodes = append(p.Nodes, *n)
	}
	if s, ok := v.Plan(p.Operation.ID); ok {
		p.Graph = s.Graph
	}
	return p, ans, nil
}

// newerFields returns the fields in the definitions of a cluster that voters below logformat.OrdersLevel would drop from its record, or "".
func newerFields(cl *model.Cluster) string {
	if slices.ContainsFunc(cl.Template.Plans, func(p model.Plan) bool { return p.Recovers != nil || p.Others != "" }) {
		return "plans with recovers"
	}
	for _, d := range cl.Definitions {
		if d.Provisioner.Actions[model.Initialize.Key()].Repeat {
			return "an action with repeat"
		}
	}
	return ""
}

// start proposes the start of a prepared operation. It is refused if one of the definitions is deleted
// first.
func (o *Orchestrator) start(ctx context.Context, who model.Caller, p *operation.Prepared,
	madeFrom ...*pb.DefinitionVersion) (state.Answer, error) {
	if p.Graph.HasOwnActions() && !o.cfg.Machine.View().Understands(logformat.OwnActionLevel) {
		return state.Answer{}, problem.New(problem.Conflict, "the plan has actions of its services' own, and some agents of the mesh are too "+
			"old for them: upgrade these agents (`coopr members -o wide` shows their versions)")
	}
	if fields := newerFields(&p.Cluster); fields != "" && !o.cfg.Machine.View().Understands(logformat.OrdersLevel) {
		return state.Answer{}, problem.New(problem.Conflict, "the cluster's definitions have %s, which some agents of the mesh are too old "+
			"to keep: upgrade these agents (`coopr members -o wide` shows their versions)", fields)
	}
	if err := o.seal(ctx, who, p); err != nil {
		return state.Answer{}, err
	}
	s, err := startOf(p)
	if err != nil {
		return state.Answer{}, err
	}
	s.MadeFrom = madeFrom
	done := func() {}
	if o.cfg.First != nil && p.Operation.Status == model.OpRunning && len(p.Done) == 0 {
		s.Lease, done = o.cfg.First(ctx, p)
	}
	defer func() { done() }()
	answers, err := o.cfg.Propose(ctx, logformat.By(who, &pb.Command{KeepAnswer: true,
		Change: &pb.Command_StartOperation{StartOperation: s}}))
	if err != nil {
		return state.Answer{}, err
	}
	return answers[0], answers[0].Err
}

// seal encrypts the sensitive fields of the provider of a prepared operation, and others by name.
func (o *Orchestrator) seal(ctx context.Context, who model.Caller, p *operation.Prepared, also ...string) error {
	if o.cfg.Seal == nil {
		return nil
	}
	err := o.cfg.Seal(ctx, p.Cluster.Tenant, &p.Cluster.Provider, also...)
	if err != nil && who.Follows && p.Version != 0 {
		// The operation goes on. The state has these fields in the clear already.
		o.cfg.Logger.Warn("the passwords of a cluster's provider are not encrypted", "cluster", p.Cluster.ID, "error", err)
		return nil
	}
	return err
}

// startOf returns the message that starts a prepared operation.
func startOf(p *operation.Prepared) (*pb.StartOperation, error) {
	s := &pb.StartOperation{ClusterVersion: p.Version, Graph: p.Graph.Encode(), Done: p.Done, LeaseEndedMs: p.LeaseEnded}
	cl := p.Cluster
	if p.Version == 0 { // the time of its creation is known when the entry is applied
		s.LifetimeMs, cl.ExpiresAt = cl.ExpiresAt, 0
	}
	var errs [4]error
	s.Operation, errs[0] = logformat.EncodeOperation(&p.Operation)
	s.Cluster, errs[1] = logformat.EncodeCluster(&cl)
	if p.Tree != nil {
		s.Tree, errs[2] = logformat.EncodePlanTree(p.Tree)
	}
	for i := range p.Write {
		n, err := logformat.EncodeNode(&p.Write[i])
		s.Nodes, errs[3] = append(s.Nodes, n), errors.Join(errs[3], err)
	}
	return s, errors.Join(errs[:]...)
}
