package operation

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/engine/planner"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/solver"
	"github.com/coopr/coopr/internal/words"
)

// Prepared is an operation that is ready to start. Nothing has been written yet.
type Prepared struct {
	Operation model.Operation
	// Cluster and Nodes are the future records. Nodes has all nodes of the cluster.
	Cluster model.Cluster
	Nodes   []model.Node
	Graph   *plan.Graph
	// Done are the tasks of the graph that are done already: those that the operation takes over from the one that it supersedes.
	Done []uint32
	// Tree names the phases of the graph's steps.
	Tree *tree.Tree
	// Version is the version of the cluster that the operation was prepared from; 0: a new
	// cluster.
	Version uint64
	// LeaseEnded is the end of the cluster's lease, in Unix milliseconds, if the cluster is deleted because that lease is over: the
	// deletion is refused if the lease ends at another time by then. 0: the operation has another reason.
	LeaseEnded int64
	// Write are the nodes whose records change when the operation starts: new ones, and those
	// that gain or lose services.
	Write []model.Node
	does  map[string]map[model.Action]bool
	// rollout is how nodes take turns. If turns is set, the tasks of a node wait only for tasks of
	// the same node.
	rollout model.Rollout
	turns   bool
	// only are the nodes that the operation is about, if it leaves all others at the targets that
	// they have reached; nil: it is about the whole cluster. If apart is set, the others are only
	// configured for the new addresses.
	only  map[string]bool
	apart bool
	// own are the phases of recoveries by plans of the template.
	own []tree.OutlinePhase
	// gone are the nodes whose machines no longer exist.
	gone map[string]bool
	// spared are the nodes that the request leaves alone.
	spared map[string]bool
	// Answer is the solver's answer, for operations that change the layout.
	Answer *solver.Answer
}

// ErrState means that the cluster's status does not allow the operation.
var ErrState = problem.New(problem.Conflict, "the cluster's status does not allow it")

// IDs are the ids that the caller chose for a new cluster or operation.
type IDs struct {
	Cluster   string // only for a create
	Operation string
}

// Create prepares the creation of a cluster. It fails with model.Faults if the request is
// invalid, *solver.Unsolvable if no layout exists, and solver.ErrBudget if the search took too
// long.
func Create(ctx context.Context, who model.Caller, req model.CreateCluster, known model.Lookup, ids IDs) (*Prepared, error) {
	if err := req.Check().Err(); err != nil {
		return nil, err
	}
	d, ok := known.Definition(model.KindClusterTemplate, req.ClusterTemplate)
	if !ok {
		return nil, missing("clusterTemplate", "cluster template", req.ClusterTemplate, known.Names(model.KindClusterTemplate))
	}
	tpl, err := model.ResolveTemplate(*d.Value.(*model.ClusterTemplate), known)
	if err != nil {
		return nil, err
	}
	choice, err := req.Choose(tpl)
	if err != nil {
		return nil, err
	}
	pd, ok := known.Definition(model.KindProvider, choice.Provider)
	if !ok {
		return nil, missing("provider", "provider", choice.Provider, known.Names(model.KindProvider))
	}
	provider, err := withUserFields(*pd.Value.(*model.Provider), req.ProviderFields, known)
	if err != nil {
		return nil, err
	}
	services := lookupAll[model.Service](known, model.KindService)
	zones, hosts := provider.Places()
	answer, err := solver.Solve(ctx, solver.Input{
		Template: tpl, Provider: provider.Name, Services: services,
		HardwareTypes: slices.Collect(maps.Values(lookupAll[model.HardwareType](known, model.KindHardwareType))),
		ImageTypes:    slices.Collect(maps.Values(lookupAll[model.ImageType](known, model.KindImageType))),
		Nodes:         int(req.NumMachines), Wanted: choice.Services,
		HardwareType: choice.HardwareType, ImageType: choice.ImageType, Comparator: choice.Comparator,
		Zones: zones, Hosts: hosts,
	})
	if err != nil {
		return nil, err
	}
	cl := model.Cluster{
		ID: ids.Cluster, Tenant: who.Tenant, Name: req.Name, Description: req.Description, Owner: who.Actor,
		Status: model.ClusterPending, Template: tpl, Provider: provider, Services: answer.Services,
		Definitions: map[string]model.Service{}, Config: choice.Config, DNSSuffix: choice.DNSSuffix,
		ExpiresAt: int64(choice.Lease), // a duration until the state sets the time of creation
		Operation: ids.Operation, Operations: 1, NextNode: model.FirstNodeNumber, Labels: req.Labels,
	}
	for _, s := range answer.Services {
		cl.Definitions[s] = services[s]
	}
	nodes, err := newNodes(&cl, answer, answer.Layout, known)
	if err != nil {
		return nil, err
	}
	assignPlaces(&cl, nodes, func(*model.Node) bool { return true })
	p := &Prepared{Cluster: cl, Nodes: nodes, Write: nodes, Answer: answer, rollout: req.Rollout, Operation: model.Operation{
		ID: ids.Operation, Tenant: who.Tenant, Cluster: cl.ID, Type: model.OpCreate, Status: model.OpRunning,
		Actor: who.Actor, Request: who.Request, OnFailure: cmp.Or(req.OnFailure, "delete"), Priority: int(req.Priority),
	}}
	p.retries(Request{
		Retries: int(req.ResolveOnFailure), Nodes: int(req.NumMachines), HardwareType: req.HardwareType,
		ImageType: req.ImageType, Comparator: req.Comparator,
	})
	return p.plan(nodes, planner.Input{})
}

// Request is a request for an operation on an existing cluster.
type Request struct {
	Type model.OperationType
	// Services are the services to start, stop, restart, upgrade, add or remove. For the first
	// four, an empty list means all.
	Services []string
	// Nodes is the number of nodes to add (grow, add-services) or to remove (shrink).
	Nodes int
	// Victims are the nodes to remove or replace: ids, numbers or names.
	Victims []string
	// Config, ConfigMode and Restart are the parameters of configure. The first two also apply to sync-template.
	Config     map[string]any
	ConfigMode string
	Restart    bool
	// Graceful is a parameter of delete.
	Graceful bool
	// Comparator, HardwareType and ImageType choose the kind of new nodes, as in a create.
	Comparator, HardwareType, ImageType string
	// ProviderFields are user fields that override the provider's for this and later
	// operations.
	ProviderFields map[string]any
	// To is the number of the snapshot to roll back to, or the version of the template (sync-template), where 0 is the newest.
	To        int
	OnFailure string
	Follows   string
	// Retries is how many other layouts may be tried if this operation fails. Tried are the
	// layouts so far, which the solver excludes.
	Retries  int
	Tried    []model.Layout
	Priority int
	// Provider replaces the cluster's provider from now on; nil keeps it.
	Provider *model.Provider
	// Forced deletes the machines of nodes that are replaced or named in a shrink without stopping
	// services first. A forced replacement is shown as recovery.
	Forced bool
	// Rollout is how nodes take turns.
	model.Rollout
	// NodeChoice limits a start, stop or restart to some nodes.
	model.NodeChoice
}

// Input is the state of a cluster when an operation is requested. The functions of this
// package do not change it.
type Input struct {
	Cluster *model.Cluster
	Nodes   []*model.Node
	// Gone are the ids of the nodes whose machines no longer exist.
	Gone map[string]bool
	// Superseded is the plan of the operation that this one supersedes, and Complete the snapshot of the last complete target, or nil.
	Superseded *plan.State
	Complete   *model.Snapshot
	// Snapshot returns a snapshot of the cluster by its number.
	Snapshot func(number int) (*model.Snapshot, bool)
	// Lost returns the parameters about the lost node of a replacement by a plan of the template that has not got a service of the node,
	// both by id and name, to run again. It returns nil if there is none.
	Lost func(node, service string) map[string]string
}

// Prepare prepares an operation with this id on an existing cluster. It fails with ErrState if
// the cluster's status does not allow it, model.Faults if the request is invalid,
// *solver.Unsolvable if no layout exists, and solver.ErrBudget if the search took too long.
func Prepare(ctx context.Context, who model.Caller, req Request, at Input, known model.Lookup, id string) (*Prepared, error) {
	cl := at.Cluster
	if err := allowed(req, cl); err != nil {
		return nil, err
	}
	if err := req.check(cl); err != nil {
		return nil, err
	}
	p := &Prepared{Version: cl.Version, Cluster: *cl, rollout: req.Rollout, gone: at.Gone, Operation: model.Operation{
		ID: id, Tenant: cl.Tenant, Cluster: cl.ID, Type: req.Type, Status: model.OpRunning, Actor: who.Actor,
		Request: who.Request, Priority: req.Priority, Services: req.Services, OnFailure: req.OnFailure, Follows: req.Follows, To: req.To,
	}}
	if req.Type == model.OpReplaceNode && req.Forced {
		p.Operation.Plan = model.RecoveryPlan
	}
	if req.Type != model.OpRollback {
		p.Operation.To = 0
	}
	if p.Operation.OnFailure == "" {
		p.Operation.OnFailure = policy(req.Type)
	}
	if p.apart = Apart(req.Type, cl.Status); p.apart && p.Operation.OnFailure == "rollback" {
		p.Operation.OnFailure = "leave" // the state before is no state to return to
	}
	p.Cluster.Operation = id
	p.Cluster.Operations++
	if req.Provider != nil {
		p.Cluster.Provider = *req.Provider
	}
	p.Cluster.Provider = withCredentials(p.Cluster.Provider, known)
	var err error
	if p.Cluster.Provider, err = withUserFields(p.Cluster.Provider, req.ProviderFields, known); err != nil {
		return nil, err
	}
	for _, n := range at.Nodes {
		p.Nodes = append(p.Nodes, *n)
	}
	switch req.Type {
	case model.OpCreate:
		return p.createAgain(ctx, req, at, known)
	case model.OpGrow, model.OpShrink, model.OpAddServices, model.OpRemoveServices, model.OpReplaceNode:
		return p.relayout(ctx, req, at, known)
	case model.OpUpgrade:
		return p.upgrade(ctx, req, at, known)
	case model.OpSyncTemplate:
		return p.syncTemplate(ctx, req, at, known)
	case model.OpRollback:
		return p.rollback(req, at, known)
	case model.OpConfigure:
		// One that supersedes a rollout finishes it, and nodes take turns as in it.
		finishes := req.Supersede && cl.Status == model.ClusterInconsistent
		if req.Config != nil || finishes {
			p.Cluster.Config = model.CombineConfig(cl.Config, req.Config, req.ConfigMode)
			p.Operation.Config = p.Cluster.Config
			return p.converge(at, change{quiet: !req.Restart, local: finishes})
		}
	}
	if p.spared, err = spared(req, at); err != nil {
		return nil, err
	}
	// With a strategy, nodes take turns as far as possible, so the order between services
	// applies within each node only.
	in := planner.Input{Restart: req.Restart, Graceful: req.Graceful, NodeLocal: req.Strategy != ""}
	if len(req.Services) > 0 {
		in.PlannedServices = req.Services
	}
	return p.plan(p.Nodes, in)
}

// check checks a request by itself.
func (r *Request) check(cl *model.Cluster) error {
	var fs model.Faults
	if r.Type != model.OpAddServices {
		for i, s := range r.Services {
			if !slices.Contains(cl.Services, s) {
				fs.Add(fmt.Sprintf("services[%d]", i), fmt.Sprintf("cluster %s has no service %q%s", cl.Name, s, near(s, cl.Services)))
			}
		}
	}
	if r.Nodes < 0 || r.Nodes > model.MaxClusterSize {
		fs.Add("nodes", fmt.Sprintf("must be from 0 to %d, but is %d", model.MaxClusterSize, r.Nodes))
	}
	switch r.OnFailure {
	case "", "rollback", "pause", "leave":
	default:
		fs.Add("onFailure", fmt.Sprintf("must be \"rollback\", \"pause\" or \"leave\", but is %q", r.OnFailure))
	}
	switch {
	case r.Supersede && !targets(r.Type):
		fs.Add("supersede", fmt.Sprintf("a %s takes no other operation's place: only configure, upgrade and sync-template do", r.Type))
	case r.Supersede && r.Queue:
		fs.Add("supersede", "excludes queue: wait for the operation that is under way, or take its place")
	}
	r.NodeChoice.Check(&fs)
	if r.Chosen() && r.Type != model.OpStart && r.Type != model.OpStop && r.Type != model.OpRestart {
		fs.Add("nodeNames", fmt.Sprintf("a %s is about the whole cluster: only start, stop and restart can be limited to some nodes", r.Type))
	}
	if r.Retries != 0 {
		switch r.Type {
		case model.OpGrow, model.OpAddServices:
			model.CheckRetries(&fs, r.Retries, r.OnFailure, "rollback")
		case model.OpCreate:
		default:
			fs.Add("resolveOnFailure", fmt.Sprintf("a %s has no other layout to try: only create, grow and add-services have", r.Type))
		}
	}
	return fs.Err()
}

// policy returns the default for what happens when a task has no attempt left
// (docs/spec/planner.md, "Transactions" 7).
func policy(op model.OperationType) string {
	switch op {
	case model.OpCreate:
		return "delete"
	case model.OpGrow, model.OpShrink, model.OpConfigure, model.OpUpgrade, model.OpAddServices, model.OpRemoveServices,
		model.OpReplaceNode, model.OpSyncTemplate:
		return "rollback"
	}
	return "leave"
}

// Apart reports whether an operation of this type is about the named nodes alone, because the
// operation before it left the cluster in this status: half made, or half rolled back.
func Apart(op model.OperationType, status model.ClusterStatus) bool {
	return (op == model.OpReplaceNode || op == model.OpShrink) && (status == model.ClusterFailed || status == model.ClusterIncomplete)
}

// allowed checks that the cluster's status allows the operation (docs/spec/coopr.md 1.3).
func allowed(req Request, cl *model.Cluster) error {
	op := req.Type
	ok := cl.Status == model.ClusterActive || cl.Status == model.ClusterInconsistent
	switch op {
	case model.OpDelete:
		ok = cl.Status != model.ClusterTerminated
	case model.OpCreate: // tried again with another layout
		ok = req.Follows != "" && cl.Status == model.ClusterIncomplete
	case model.OpRollback:
		ok = ok || cl.Status == model.ClusterFailed || cl.Status == model.ClusterPending && req.Follows != ""
	case model.OpReplaceNode, model.OpShrink:
		ok = ok || Apart(op, cl.Status)
	case model.OpConfigure, model.OpStart, model.OpStop, model.OpRestart, model.OpGrow, model.OpAddServices, model.OpRemoveServices,
		model.OpUpgrade, model.OpSyncTemplate:
	default:
		return fmt.Errorf("there is no operation type %q", op)
	}
	if !ok {
		return fmt.Errorf("%w: cluster %s is %s, so operation %s is refused", ErrState, cl.Name, cl.Status, op)
	}
	return nil
}

// plan makes the graph of an operation that keeps the layout, or of a new cluster. It checks
// that the configuration can be expanded before any task runs.
func (p *Prepared) plan(nodes []model.Node, in planner.Input) (*Prepared, error) {
	in.Operation = p.Operation.Type
	in.Services = p.Cluster.Definitions
	p.turns = in.NodeLocal
	in.Nodes = make([]planner.Node, len(nodes))
	for i := range nodes {
		n := &nodes[i]
		in.Nodes[i] = planner.Node{ID: n.ID, Number: n.Number, Services: n.Services, States: n.States, Created: n.Created}
		switch gone := p.gone[n.ID]; {
		case p.Operation.Type == model.OpDelete:
			// If the end of a machine's creation was not observed, the machine may exist although
			// the node's record has none. Deleting a missing machine is not a fault.
			if in.Nodes[i].Created = true; gone {
				in.Nodes[i].States = removed(n)
			}
		case p.spared[n.ID]:
			in.Nodes[i].Created = false // nothing is done on it, not even for services that need it
		case gone:
			in.Nodes[i].Created = false // nothing can be done on it
			p.Operation.Skipped = append(p.Operation.Skipped, n.ID)
		}
	}
	after, err := expand(&p.Cluster, pointers(nodes), nil)
	if err != nil && p.Operation.Type != model.OpDelete {
		return nil, err
	}
	if p.Operation.Type == model.OpCreate {
		in.GatherFrom = after.gather(pointers(nodes))
		in.Gather = len(in.GatherFrom) > 0
	}
	if p.Graph, err = planned(in); err != nil {
		return nil, err
	}
	return p.grouped()
}

// removed returns the states of a node whose services are gone with its machine.
func removed(n *model.Node) map[string]string {
	out := map[string]string{}
	for _, s := range n.Services {
		out[s] = model.Remove.String()
	}
	return out
}

// planned returns a graph with readiness checks, in which nodes that need not take turns are
// marked.
func planned(in planner.Input) (*plan.Graph, error) {
	g, err := planner.Plan(in)
	if err != nil {
		return nil, err
	}
	if g, err = planner.WithReadiness(g, in.Services); err != nil {
		return nil, err
	}
	return planner.WithIndependence(g, in.Services)
}

func pointers(nodes []model.Node) []*model.Node {
	out := make([]*model.Node, len(nodes))
	for i := range nodes {
		out[i] = &nodes[i]
	}
	return out
}

// newNodes returns the records of an answer's new nodes, numbered in this order.
func newNodes(cl *model.Cluster, a *solver.Answer, layout model.Layout, known model.Lookup) ([]model.Node, error) {
	var out []model.Node
	var fs model.Faults
	for _, g := range layout {
		flavor, _ := entry[model.HardwareType](known, model.KindHardwareType, g.HardwareType, cl.Provider.Name)
		image, _ := entry[model.ImageType](known, model.KindImageType, g.ImageType, cl.Provider.Name)
		automators := automatorsOf(cl, g.Services)
		for _, at := range a.Places(g) {
			n := model.Node{
				ID: string(model.ClusterID(cl.ID).Node(cl.NextNode)), Cluster: cl.ID, Tenant: cl.Tenant, Number: cl.NextNode,
				HardwareType: g.HardwareType, ImageType: g.ImageType, Services: g.Services, Automators: automators,
				Flavor: text(flavor["flavor"]), Image: text(image["image"]), SSHUser: text(image["sshuser"]),
				Zone: at.Zone, Host: at.Host,
			}
			n.Hostname = hostname(cl.Name, cl.ID, n.Number, cl.DNSSuffix)
			cl.NextNode++
			out = append(out, n)
		}
	}
	return out, fs.Err()
}

// automatorsOf returns the automators that the services' actions name.
func automatorsOf(cl *model.Cluster, services []string) []string {
	set := map[string]bool{}
	for _, s := range services {
		for _, a := range cl.Definitions[s].Provisioner.Actions {
			if a.Type != "" {
				set[a.Type] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(set))
}

func entry[T any](known model.Lookup, kind model.Kind, name, provider string) (map[string]any, bool) {
	d, ok := known.Definition(kind, name)
	if !ok {
		return nil, false
	}
	switch v := d.Value.(type) {
	case *model.HardwareType:
		return v.ProviderMap[provider], true
	case *model.ImageType:
		return v.ProviderMap[provider], true
	}
	return nil, false
}

func text(v any) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(v)
}

func lookupAll[T any](known model.Lookup, kind model.Kind) map[string]T {
	out := map[string]T{}
	for _, name := range known.Names(kind) {
		if d, ok := known.Definition(kind, name); ok {
			if v, ok := d.Value.(*T); ok {
				out[name] = *v
			}
		}
	}
	return out
}

// near returns a suggestion for a misspelt name, or "".
func near(name string, known []string) string {
	if n := words.Nearest(name, known); n != "" {
		return fmt.Sprintf(": did you mean %q?", n)
	}
	return ""
}

func missing(path, what, name string, known []string) error {
	fs := model.Faults{}
	fs.Add(path, fmt.Sprintf("there is no %s %q%s", what, name, near(name, known)))
	return fs
}

// withUserFields returns a provider with the request's provider fields applied.
func withUserFields(p model.Provider, fields map[string]any, known model.Lookup) (model.Provider, error) {
	if len(fields) == 0 {
		return p, nil
	}
	p.Provisioner = maps.Clone(p.Provisioner)
	if p.Provisioner == nil {
		p.Provisioner = map[string]any{}
	}
	var fs model.Faults
	var schema *model.PluginType
	if d, ok := known.Definition(model.KindProviderType, p.ProviderType); ok {
		schema, _ = d.Value.(*model.PluginType)
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if schema != nil {
			admin, isAdmin := schema.Parameters.Admin.Fields[name]
			_, isUser := schema.Parameters.User.Fields[name]
			if !isUser && (!isAdmin || !admin.Override) {
				fs.Add("providerFields."+name, fmt.Sprintf("provider type %s has no field %q that a user may give", p.ProviderType, name))
				continue
			}
		}
		p.Provisioner[name] = fields[name]
	}
	return p, fs.Err()
}
