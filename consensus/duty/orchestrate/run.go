package orchestrate

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/coopr/coopr/engine/hostexec"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/profile"
)

// ProvisionPlan returns the name of the plan that creates the cluster of a run
// (docs/spec/profiles.md).
func ProvisionPlan(run string) string { return "provision:" + run }

// ProgramPlan returns the name of the plan of a run's program.
func ProgramPlan(run string) string { return "program:" + run }

// DeprovisionPlan returns the name of the plan that deletes the cluster of a run.
func DeprovisionPlan(run string) string { return "deprovision:" + run }

// Provision creates the cluster on which a run of a program works (profile.Run); run is the
// run's id. The definitions in own take precedence over the tenant's. It fails with
// problem.Conflict if a cluster that is not terminated has the name already.
func (o *Orchestrator) Provision(ctx context.Context, who model.Caller, run string, req model.CreateCluster,
	own model.Set) (*operation.Prepared, error) {
	if model.HasHidden(req.Config) {
		if o.cfg.SealHidden == nil {
			return nil, problem.New(problem.Conflict, "the configuration refers to secrets, which cannot be encrypted here")
		}
		var err error
		if req.Config, err = o.cfg.SealHidden(ctx, who.Tenant, req.Config); err != nil {
			return nil, err
		}
	}
	for try := 1; ; try++ {
		v := o.cfg.Machine.View()
		id := o.nextCluster(true)
		known := o.lookup(v, who.Tenant)
		if own != nil {
			known = model.Over(own, known)
		}
		req.OnFailure = "leave" // the run decides what happens after a failure
		p, err := operation.Create(ctx, who, req, known, operation.IDs{Cluster: string(id), Operation: string(id.Operation(1))})
		if err != nil {
			return nil, err
		}
		// The run may have waited, or be a schedule's: its user has the rights that count now.
		if err := o.permit(v.Acting(who.Tenant, who.Actor), p); err != nil {
			return nil, err
		}
		if r, ok := v.Run(who.Tenant, run); ok {
			// Its program runs on the nodes.
			if err := o.hostExec().Ask(v.Acting(who.Tenant, r.Program.Author), hostexec.Cluster(&p.Cluster)); err != nil {
				return nil, fmt.Errorf("the author of program %s: %w", r.Program.Name, err)
			}
			if err := o.seal(ctx, who, p, secretFields(r)...); err != nil {
				return nil, err
			}
		}
		p.Named(ProvisionPlan(run))
		ans, err := o.start(ctx, who, p, madeFrom(v, p, own)...)
		if errors.Is(err, problem.Stale) && try < stale {
			continue
		}
		p, _, err = o.outcome(who, p, ans, err)
		return p, err
	}
}

// secretFields returns the fields of the provider whose values a run takes from secrets.
func secretFields(r *profile.Run) (fields []string) {
	for name, value := range profile.Values(r.Properties) {
		if f, ok := strings.CutPrefix(name, profile.PropField); ok && profile.Secure(value) {
			fields = append(fields, f)
		}
	}
	return fields
}

// Deprovision deletes the cluster of a run.
func (o *Orchestrator) Deprovision(ctx context.Context, who model.Caller, run, cluster string) (*operation.Prepared, error) {
	for try := 1; ; try++ {
		p, err := o.Prepare(ctx, who, cluster, operation.Request{Type: model.OpDelete})
		if err != nil {
			return nil, err
		}
		p.Named(DeprovisionPlan(run))
		ans, err := o.start(ctx, who, p)
		if errors.Is(err, problem.Stale) && try < stale {
			continue
		}
		p, _, err = o.outcome(who, p, ans, err)
		return p, err
	}
}

// RunProgram starts a run's program on its cluster, once for each request id.
func (o *Orchestrator) RunProgram(ctx context.Context, who model.Caller, run, cluster string,
	steps []operation.ProgramStep) (*operation.Prepared, error) {
	for try := 1; ; try++ {
		v := o.cfg.Machine.View()
		if p, _, ok, err := Repeated(v, who); ok {
			return p, err
		}
		cl, ok := v.Cluster(who.Tenant, cluster)
		if !ok {
			return nil, problem.New(problem.NotFound, "there is no cluster %q", cluster)
		}
		p, err := operation.Program(who, ProgramPlan(run), steps, operation.Input{Cluster: cl, Nodes: v.Nodes(cl.Tenant, cl.ID)}, nextID(cl))
		if err != nil {
			return nil, err
		}
		ans, err := o.start(ctx, who, p)
		if errors.Is(err, problem.Stale) && try < stale {
			continue
		}
		p, _, err = o.outcome(who, p, ans, err)
		return p, err
	}
}
