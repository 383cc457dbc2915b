package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/coopr/coopr/engine/hostexec"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/host"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Guard refuses what would run on this agent's machine for a tenant and is not allowed by the
// agent's settings. It is a host.Executor that also lists and removes machines.
type Guard struct {
	plugins *host.Host
	rules   hostexec.Rules
}

// NewGuard returns a guard of the plugins of an agent.
func NewGuard(plugins *host.Host, rules hostexec.Rules) *Guard { return &Guard{plugins, rules} }

// Types returns the plugin types that the agent offers.
func (g *Guard) Types() []host.Type { return g.plugins.Types() }

// Execute carries out a task, or returns a result that nothing was done.
func (g *Guard) Execute(ctx context.Context, t *pb.Task, sink host.Sink) *pb.Result {
	if err := g.task(t); err != nil {
		return &pb.Result{Task: t.Id, Fence: t.Fence, Outcome: pb.Outcome_OUTCOME_NOTHING_DONE, Message: err.Error()}
	}
	return g.plugins.Execute(ctx, t, sink)
}

func (g *Guard) task(t *pb.Task) error {
	if g.rules.HostExec && !g.rules.Unconfined {
		return nil
	}
	var in model.TaskInput
	if len(t.Input) > 0 {
		if err := json.Unmarshal(t.Input, &in); err != nil {
			return fmt.Errorf("the task's input cannot be read: %w", err)
		}
	}
	return g.rules.Run(t.Tenant, hostexec.Task(t.Plugin, t.Automator, &in.Config))
}

// List lists the machines that a provider made. See host.Host.List.
func (g *Guard) List(ctx context.Context, provider string, req *pb.ListRequest, found func(*pb.Resource) error) error {
	if err := g.provider(req.GetTenant(), provider, req.GetFields()); err != nil {
		return err
	}
	return g.plugins.List(ctx, provider, req, found)
}

// Remove removes a machine that a provider made. See host.Host.Remove.
func (g *Guard) Remove(ctx context.Context, provider string, req *pb.RemoveRequest) error {
	if err := g.provider(req.GetTenant(), provider, req.GetFields()); err != nil {
		return err
	}
	return g.plugins.Remove(ctx, provider, req)
}

func (g *Guard) provider(tenant, name string, encoded []byte) error {
	var fields map[string]any
	if len(encoded) > 0 {
		if err := json.Unmarshal(encoded, &fields); err != nil {
			return errors.New("the provider's fields cannot be read")
		}
	}
	return g.rules.Run(tenant, hostexec.Provider(name, fields))
}
