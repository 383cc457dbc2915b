package runs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/coopr/coopr/consensus/duty/orchestrate"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/engine/solver"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Starter creates and deletes clusters and runs programs on them; the orchestrator
// implements it.
type Starter interface {
	Provision(ctx context.Context, who model.Caller, run string, req model.CreateCluster, own model.Set) (*operation.Prepared, error)
	Deprovision(ctx context.Context, who model.Caller, run, cluster string) (*operation.Prepared, error)
	RunProgram(ctx context.Context, who model.Caller, run, cluster string, steps []operation.ProgramStep) (*operation.Prepared, error)
}

// Clusters is the Provisioner that creates clusters of this mesh, through the solver, the
// planner and the provider plugins. It also runs programs on them.
type Clusters struct {
	Machine *state.Machine
	Propose func(ctx context.Context, commands ...*pb.Command) ([]state.Answer, error)
	Start   Starter
	// Opener decrypts secrets.
	Opener state.Opener
}

// Provisioner returns the provisioner of a run: "native", "cluster", or a provider
// plugin.
func (c *Clusters) Provisioner(v *state.View, r *profile.Run) (Provisioner, profile.Spec, bool) {
	for _, s := range v.Provisioners(r.Tenant) {
		if s.Name == r.Provisioner {
			return c, s, true
		}
	}
	return nil, profile.Spec{}, false
}

// who returns the user who started the run. Everything for the run is done in that
// user's name.
func who(r *profile.Run) model.Caller {
	return model.Caller{Tenant: r.Tenant, Actor: r.Actor, Role: model.RoleAdmin, Follows: true}
}

// find returns the run's cluster, terminated or not, or nil.
func (c *Clusters) find(r *profile.Run) *model.Cluster {
	v := c.Machine.View()
	// By its name first: the latest try may not have been noted yet.
	if cl, ok := v.Cluster(r.Tenant, r.Cluster.Name); ok {
		return cl
	}
	return nil
}

// Create begins to create the run's cluster, unless it exists.
func (c *Clusters) Create(ctx context.Context, in Request) (Made, error) {
	r := in.Run
	made := func(cl *model.Cluster) Made {
		return Made{Cluster: &profile.RunCluster{Name: cl.Name, Status: profile.SeenCreating}, ID: cl.ID, Operation: cl.Operation}
	}
	if cl := c.find(r); cl != nil && cl.Status != model.ClusterTerminated {
		return made(cl), nil
	}
	req, own, err := request(r, in.Properties)
	if err == nil {
		req.Config, err = c.Machine.View().RunConfig(c.Opener, r)
	}
	if err == nil {
		err = model.CheckSealedRefs("properties."+profile.PropConfig, req.Config).Err()
	}
	if err != nil {
		return Made{}, err
	}
	p, err := c.Start.Provision(ctx, who(r), r.ID, req, own)
	if err != nil {
		if cl := c.find(r); errors.Is(err, problem.Conflict) && cl != nil && cl.Status != model.ClusterTerminated {
			return made(cl), nil
		}
		return Made{}, sorted(err)
	}
	return made(&p.Cluster), nil
}

// sorted marks an error by Again if another attempt may succeed.
func sorted(err error) error {
	var faults model.Faults
	var unsolvable *solver.Unsolvable
	switch {
	case errors.As(err, &faults), errors.As(err, &unsolvable), errors.Is(err, solver.ErrBudget), errors.Is(err, operation.ErrState),
		errors.Is(err, problem.Forbidden):
		return err
	}
	return Again(err)
}

// request returns the request for a run's cluster. The definitions in own exist for this
// request only.
func request(r *profile.Run, p map[string]string) (model.CreateCluster, model.Set, error) {
	n := 1
	if s := p[profile.PropNodes]; s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil || n < 1 {
			return model.CreateCluster{}, nil, fmt.Errorf("property %s must be a whole number of nodes, but is %q", profile.PropNodes, s)
		}
	}
	forever := model.Millis(0)
	req := model.CreateCluster{
		Name: r.Cluster.Name, Description: "run " + r.ID + " of program " + r.Program.Name, NumMachines: model.Int(n),
		ClusterTemplate: p[profile.PropTemplate], Provider: p["provider"], HardwareType: p["hardwaretype"], ImageType: p["imagetype"],
		DNSSuffix: p["dnsSuffix"],
	}
	for _, s := range strings.Split(p["services"], ",") {
		if s = strings.TrimSpace(s); s != "" {
			req.Services = append(req.Services, s)
		}
	}
	fields := map[string]any{}
	for name, value := range p {
		if f, ok := strings.CutPrefix(name, profile.PropField); ok {
			fields[f] = value
		}
	}
	if err := model.CheckSealedRefs("properties", fields).Err(); err != nil {
		return req, nil, err
	}
	if r.Provisioner == "cluster" {
		if req.ProviderFields = fields; len(fields) == 0 {
			req.ProviderFields = nil
		}
		return req, nil, nil
	}
	// A cluster of plain nodes: its definitions belong to no tenant.
	provider, _ := profile.Plain(r.Provisioner, p)
	req.ClusterTemplate, req.InitialLeaseDuration = profile.PlainNodes, &forever
	return req, plainSet(provider, p), nil
}

// plainSet returns the definitions of a cluster of plain nodes.
func plainSet(provider model.Provider, p map[string]string) model.Set {
	const plain = profile.PlainNodes
	entry := func(keys ...string) map[string]map[string]any {
		m := map[string]any{keys[0]: "default"} // an entry without any key is not valid
		for _, k := range keys {
			if p[k] != "" {
				m[k] = p[k]
			}
		}
		return map[string]map[string]any{plain: m}
	}
	base := model.Base{Name: plain}
	return model.NewSet(
		model.Define(model.KindProvider, &provider),
		model.Define(model.KindHardwareType, &model.HardwareType{Base: base, ProviderMap: entry("flavor")}),
		model.Define(model.KindImageType, &model.ImageType{Base: base, ProviderMap: entry("image", "sshuser")}),
		model.Define(model.KindService, &model.Service{Base: model.Base{Name: plain, HostExec: true}}), // it has no code
		model.Define(model.KindClusterTemplate, &model.ClusterTemplate{
			Base:          base,
			Defaults:      model.Defaults{Services: []model.DefaultService{{Name: plain}}, Provider: plain, HardwareType: plain, ImageType: plain},
			Compatibility: model.Compatibility{Services: []string{plain}, HardwareTypes: []string{plain}, ImageTypes: []string{plain}},
		}),
	)
}

// Status returns the status of the run's cluster according to the replicated state.
func (c *Clusters) Status(_ context.Context, in Request) (profile.Seen, string, error) {
	cl := c.find(in.Run)
	if cl == nil || cl.Status == model.ClusterTerminated {
		return profile.SeenNotExists, "", nil
	}
	op, ok := c.Machine.View().Operation(cl.Tenant, cl.Operation)
	deletes := ok && op.Type == model.OpDelete
	switch cl.Status {
	case model.ClusterPending:
		if deletes {
			return profile.SeenDeleting, "", nil
		}
		return profile.SeenCreating, "", nil
	case model.ClusterIncomplete:
		if in.Deprovision {
			return profile.SeenRunning, "", nil // its remains have to be deleted by another request
		}
		return profile.SeenFailed, cl.Message, nil
	default:
	}
	return profile.SeenRunning, "", nil
}

// Initialize returns the nodes. Their services were set up when they were created.
func (c *Clusters) Initialize(_ context.Context, in Request) (*profile.RunCluster, error) {
	cl := c.find(in.Run)
	if cl == nil || cl.Status == model.ClusterTerminated {
		return nil, fmt.Errorf("cluster %s is gone", in.Run.Cluster.Name)
	}
	out := &profile.RunCluster{Name: cl.Name, Status: profile.SeenRunning}
	for _, n := range c.Machine.View().Nodes(cl.Tenant, cl.ID) {
		node := profile.RunNode{ID: n.ID, Created: cl.CreatedAt, Properties: map[string]string{"hostname": n.Hostname}}
		for kind, ip := range n.IPAddresses {
			node.Properties[kind] = ip
		}
		out.Nodes = append(out.Nodes, node)
	}
	return out, nil
}

// Delete begins to delete the run's cluster, once no other operation is under way on it.
func (c *Clusters) Delete(ctx context.Context, in Request) (string, error) {
	cl := c.find(in.Run)
	if cl == nil || cl.Status == model.ClusterTerminated {
		return "", nil
	}
	if op, ok := c.Machine.View().Operation(cl.Tenant, cl.Operation); ok {
		switch {
		case !op.Status.Ended() && op.Type == model.OpDelete:
			return op.ID, nil
		case !op.Status.Ended():
			return "", c.abort(ctx, in.Run, op)
		case op.Type == model.OpDelete && time.Since(time.UnixMilli(op.EndedAt)) < deletePause:
			return "", Againf("operation %s could not delete it: %s", op.ID, op.Message)
		}
	}
	p, err := c.Start.Deprovision(ctx, who(in.Run), in.Run.ID, cl.ID)
	if err != nil {
		return "", Again(err)
	}
	return p.Operation.ID, nil
}

// deletePause is the pause after a failed deletion.
const deletePause = 10 * time.Second

// abort aborts an operation that is under way on the cluster.
func (c *Clusters) abort(ctx context.Context, r *profile.Run, op *model.Operation) error {
	if op.Status == model.OpAborting || op.Status == model.OpRollingBack {
		return ErrLater
	}
	w := who(r)
	answers, err := c.Propose(ctx, &pb.Command{Tenant: w.Tenant, Actor: w.Actor, Change: &pb.Command_ControlOperation{
		ControlOperation: &pb.ControlOperation{Operation: op.ID, Order: pb.OperationOrder_OPERATION_ORDER_ABORT,
			Reason: "run " + r.ID + " is being deprovisioned"},
	}})
	if err == nil {
		err = answers[0].Err
	}
	if err != nil {
		return Again(err)
	}
	return ErrLater
}

// Poll returns a long pause, as changes of operations add their runs.
func (c *Clusters) Poll() time.Duration { return followPause }

// Begin starts a run's program.
func (c *Clusters) Begin(ctx context.Context, r *profile.Run) (string, error) {
	cl := c.find(r)
	if cl == nil {
		return "", fmt.Errorf("cluster %s is gone", r.Cluster.Name)
	}
	v := c.Machine.View()
	steps := make([]operation.ProgramStep, len(r.Program.Steps))
	for i := range r.Program.Steps {
		s := &r.Program.Steps[i]
		steps[i] = operation.ProgramStep{Name: s.Name, One: s.On == profile.OnOne}
		if _, _, err := v.StepEnv(c.Opener, r, s); err != nil {
			return "", err
		}
	}
	w := who(r)
	w.Request = "program of run " + r.ID
	p, err := c.Start.RunProgram(ctx, w, r.ID, cl.ID, steps)
	switch {
	case err == nil:
		return p.Operation.ID, nil
	case errors.Is(err, problem.NotFound), errors.Is(err, operation.ErrState):
		return "", err
	}
	return "", Again(err)
}

// ProgramStatus returns the status of the program's plan.
func (c *Clusters) ProgramStatus(v *state.View, r *profile.Run) (profile.Status, string, bool) {
	op, ok := v.Operation(r.Tenant, r.Operation)
	if !ok {
		return "", "", false
	}
	switch op.Status {
	case model.OpSucceeded:
		return profile.Completed, "", true
	case model.OpFailed:
		return profile.Failed, op.Message, true
	case model.OpAborted, model.OpRolledBack, model.OpSuperseded:
		return profile.Killed, op.Message, true
	case model.OpPaused:
		return profile.Suspended, op.Message, true
	default:
	}
	if r.Status == profile.Suspended {
		return profile.Resuming, "", true
	}
	return profile.Running, "", true
}

// Abort aborts a run's program.
func (c *Clusters) Abort(ctx context.Context, r *profile.Run) error {
	w := who(r)
	answers, err := c.Propose(ctx, &pb.Command{Tenant: w.Tenant, Actor: r.Halt.Actor, Change: &pb.Command_ControlOperation{
		ControlOperation: &pb.ControlOperation{Operation: r.Operation, Order: pb.OperationOrder_OPERATION_ORDER_ABORT, Reason: r.Halt.Reason},
	}})
	if err == nil {
		err = answers[0].Err
	}
	if errors.Is(err, problem.Conflict) {
		return nil // it has ended since
	}
	return err
}

// programs implements Programs by Clusters.
type programs struct{ *Clusters }

// Status returns the status of the program's plan.
func (p programs) Status(v *state.View, r *profile.Run) (profile.Status, string, bool) {
	return p.ProgramStatus(v, r)
}

// Programs returns the part that runs programs on clusters of this mesh.
func (c *Clusters) Programs() Programs { return programs{c} }

var _ Starter = (*orchestrate.Orchestrator)(nil)
var _ Provisioner = (*Clusters)(nil)
