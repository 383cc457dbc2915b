package executor

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/coopr/coopr/engine/hostexec"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/mask"
	"github.com/coopr/coopr/plugins/host"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Resources lays out plugin resources; *blobs.Cache implements it. Both methods
// return a folder, or "" if the plugin has no resources, and a function that
// releases the folder.
type Resources interface {
	// Planned lays out the resources of set number of a tenant.
	Planned(ctx context.Context, tenant string, number uint64, kind model.Kind, plugin string) (dir string, release func(), err error)
	// Current lays out the resources that are in force now.
	Current(ctx context.Context, tenant string, kind model.Kind, plugin string) (dir string, release func(), err error)
}

// Config configures an Executor. All fields are required.
type Config struct {
	// Plugins carries out one task with one plugin.
	Plugins   host.Executor
	Resources Resources
	// Machine names the machine on which this agent's local nodes live.
	Machine string
	// Own is the folder in which tasks without a node are done, that of this machine as the host of change objects.
	Own string
	// LeaseEnds returns until when this agent's leases certainly hold. It is called at the
	// last moment before a plugin starts.
	LeaseEnds func() time.Time
}

// Executor carries out tasks. It implements host.Executor.
type Executor struct{ cfg Config }

// New returns an Executor.
func New(cfg Config) *Executor { return &Executor{cfg} }

// Types returns the plugin types that this agent offers now.
func (e *Executor) Types() []host.Type { return e.cfg.Plugins.Types() }

// Execute carries out a leased task:
//
//   - a BOOTSTRAP once with each automator that the node needs (perAutomator),
//   - with the plugin resources that the task was planned with (withResources),
//   - a readiness check until it succeeds (untilReady).
//
// The result of a CREATE names this agent's machine if the node lives on it.
func (e *Executor) Execute(ctx context.Context, t *pb.Task, sink host.Sink) *pb.Result {
	t, err := e.onAgent(t)
	if err != nil {
		return &pb.Result{Task: t.Id, Fence: t.Fence, Outcome: pb.Outcome_OUTCOME_NOTHING_DONE, Message: err.Error()}
	}
	res := e.perAutomator(host.WithLease(ctx, e.cfg.LeaseEnds), t, sink)
	if t.Action == model.Create.String() {
		e.addMachine(res)
	}
	return res
}

// ExecuteUnplanned carries out a task that belongs to no plan, with the plugin
// resources that are in force now. Change objects use it. The leader names only those secrets of such a task that the object's content
// has encrypted: others in its input are found here, and all are hidden in what it says.
func (e *Executor) ExecuteUnplanned(ctx context.Context, t *pb.Task, sink host.Sink) *pb.Result {
	ctx = host.WithLease(ctx, e.cfg.LeaseEnds)
	dir, release, err := e.cfg.Resources.Current(ctx, t.Tenant, kindOf(t), t.Plugin)
	if err != nil {
		return withoutResources(ctx, t, err)
	}
	defer release()
	t = proto.CloneOf(inFolder(t, dir))
	t.Secrets = append(t.Secrets, e.secretsIn(t)...)
	hide := mask.New(t.Secrets...)
	res := e.cfg.Plugins.Execute(ctx, t, host.Hiding(sink, hide))
	res.Message, res.LogTail = hide.Text(res.Message), "" // the tail may begin within a secret
	return res
}

// secretsIn returns the secrets in the input of a task: the sensitive fields of its action, and those among the results of its node that
// sound like secrets, or have the name of a sensitive field of a provider here.
func (e *Executor) secretsIn(t *pb.Task) []string {
	var in model.TaskInput
	if err := json.Unmarshal(t.Input, &in); err != nil {
		return nil // the plugin refuses it
	}
	var automator model.PluginType
	marks := map[string]model.FieldSchema{}
	for _, offered := range e.Types() {
		switch {
		case offered.Kind == model.KindAutomatorType && offered.Name == t.Plugin:
			automator = offered.PluginType
		case offered.Kind == model.KindProviderType:
			for _, scope := range []model.PluginFields{offered.Parameters.Admin, offered.Parameters.User} {
				for name, field := range scope.Fields {
					if field.Secret() {
						marks[name] = field
					}
				}
			}
		}
	}
	var fields map[string]any
	if in.Config.Service != nil {
		fields = in.Config.Service.Action.Fields
	}
	provider := model.PluginType{Parameters: model.PluginParameters{Admin: model.PluginFields{Fields: marks}}}
	return append(host.SecretTexts(automator, fields), host.SecretTexts(provider, in.Config.Results)...)
}

// onAgent returns a task without a node as one of this machine, which Guard and the plugin treat like a node of provider type local. Other
// tasks are returned unchanged.
func (e *Executor) onAgent(t *pb.Task) (*pb.Task, error) {
	if t.Node != "" || !t.Automator {
		return t, nil
	}
	var in, config map[string]json.RawMessage
	if err := json.Unmarshal(t.Input, &in); err != nil {
		return t, fmt.Errorf("the task's input cannot be read: %w", err)
	}
	if err := json.Unmarshal(in["config"], &config); err != nil {
		return t, fmt.Errorf("the configuration in the task's input cannot be read: %w", err)
	}
	var err error
	if config["results"], err = json.Marshal(map[string]string{"transport": hostexec.Transport, "providerid": e.cfg.Own}); err != nil {
		return t, err
	}
	if in["config"], err = json.Marshal(config); err != nil {
		return t, err
	}
	out := proto.CloneOf(t)
	out.Input, err = json.Marshal(in)
	return out, err
}

// perAutomator bootstraps a node with each of its automators: its services may need
// several, and BOOTSTRAP is one task of the node (docs/spec/planner.md). It stops at
// the first automator that does not succeed. Bootstraps are idempotent, so the next
// attempt starts with the first automator again.
func (e *Executor) perAutomator(ctx context.Context, t *pb.Task, sink host.Sink) *pb.Result {
	if t.Action != model.Bootstrap.String() {
		return e.withResources(ctx, t, sink)
	}
	var in struct {
		Config struct{ Automators []string }
	}
	if err := json.Unmarshal(t.Input, &in); err != nil || len(in.Config.Automators) < 2 {
		return e.withResources(ctx, t, sink)
	}
	for _, name := range in.Config.Automators {
		if !e.offers(name) {
			return &pb.Result{Task: t.Id, Fence: t.Fence, Outcome: pb.Outcome_OUTCOME_NOTHING_DONE,
				Message: fmt.Sprintf("this agent has no plugin for automator %s, which the node needs in addition to %s", name, t.Plugin)}
		}
	}
	var all model.TaskOutput
	for _, name := range in.Config.Automators {
		one := proto.CloneOf(t)
		one.Plugin = name
		res := e.withResources(ctx, one, sink)
		if res.Outcome != pb.Outcome_OUTCOME_SUCCEEDED {
			res.Message = "automator " + name + ": " + res.Message
			return res
		}
		var out model.TaskOutput
		if len(res.Output) > 0 {
			if err := json.Unmarshal(res.Output, &out); err != nil {
				return res // the leader reports what is wrong with the output
			}
		}
		all.Hostname = cmp.Or(out.Hostname, all.Hostname)
		all.IPAddresses = merged(all.IPAddresses, out.IPAddresses)
		all.Result = merged(all.Result, out.Result)
	}
	res := &pb.Result{Task: t.Id, Fence: t.Fence, Outcome: pb.Outcome_OUTCOME_SUCCEEDED}
	if b, err := json.Marshal(all); err == nil && string(b) != "{}" {
		res.Output = b
	}
	return res
}

// merged adds the entries of b to a, which may be nil, and returns the result.
func merged[V any](a, b map[string]V) map[string]V {
	if a == nil {
		return b
	}
	maps.Copy(a, b)
	return a
}

func (e *Executor) offers(automator string) bool {
	return slices.ContainsFunc(e.Types(), func(t host.Type) bool {
		return t.Kind == model.KindAutomatorType && t.Name == automator
	})
}

// withResources lays out the resources that a task was planned with. If they are not
// available now, nothing has been done, and a later attempt may find them.
func (e *Executor) withResources(ctx context.Context, t *pb.Task, sink host.Sink) *pb.Result {
	if t.Resources == 0 {
		return e.untilReady(ctx, t, sink)
	}
	dir, release, err := e.cfg.Resources.Planned(ctx, t.Tenant, t.Resources, kindOf(t), t.Plugin)
	if err != nil {
		return withoutResources(ctx, t, err)
	}
	defer release()
	return e.untilReady(ctx, inFolder(t, dir), sink)
}

func kindOf(t *pb.Task) model.Kind {
	if t.Automator {
		return model.KindAutomatorType
	}
	return model.KindProviderType
}

// inFolder returns a task with the folder of its resources.
func inFolder(t *pb.Task, dir string) *pb.Task {
	if dir == "" {
		return t
	}
	t = proto.CloneOf(t)
	t.ResourcesDir = dir
	return t
}

// withoutResources returns the result of a task whose resources are not available.
func withoutResources(ctx context.Context, t *pb.Task, err error) *pb.Result {
	res := &pb.Result{Task: t.Id, Fence: t.Fence, Outcome: pb.Outcome_OUTCOME_NOTHING_DONE, Message: "plugin resources: " + err.Error()}
	if ctx.Err() != nil {
		res.Outcome = pb.Outcome_OUTCOME_CANCELLED
	}
	return res
}

// untilReady repeats a readiness check until it succeeds or its time is over: a
// service that is not ready yet has not failed. Other tasks are carried out once.
func (e *Executor) untilReady(ctx context.Context, t *pb.Task, sink host.Sink) *pb.Result {
	if t.Ready == nil {
		return e.cfg.Plugins.Execute(ctx, t, sink)
	}
	within, cancel := context.WithTimeout(ctx, time.Duration(t.TimeoutMs)*time.Millisecond)
	defer cancel()
	one := proto.CloneOf(t)
	one.Ready, one.TimeoutMs = nil, t.Ready.TimeoutMs
	last := &pb.Result{Task: t.Id, Fence: t.Fence, Outcome: pb.Outcome_OUTCOME_RETRYABLE, Message: "the service did not become ready in time"}
	wait := time.Duration(t.Ready.DelayMs) * time.Millisecond
	for {
		timer := time.NewTimer(wait)
		select {
		case <-within.Done():
			timer.Stop()
			if ctx.Err() != nil {
				last.Outcome, last.Message = pb.Outcome_OUTCOME_CANCELLED, "the check was stopped before the service became ready"
			}
			return last
		case <-timer.C:
		}
		res := e.cfg.Plugins.Execute(within, one, sink)
		if res.Outcome == pb.Outcome_OUTCOME_SUCCEEDED {
			return res
		}
		if within.Err() == nil {
			last.Message, last.LogTail = "the service is not ready: "+res.Message, res.LogTail
		}
		wait = time.Duration(t.Ready.IntervalMs) * time.Millisecond
	}
}

// addMachine adds this agent's machine to the results of a node that lives in a
// folder of that machine, so that the node's later tasks go to an agent on it.
func (e *Executor) addMachine(res *pb.Result) {
	var out model.TaskOutput
	if len(res.Output) == 0 || json.Unmarshal(res.Output, &out) != nil || out.Result["transport"] != "local" {
		return
	}
	out.Result[model.ResultMachine] = e.cfg.Machine
	if b, err := json.Marshal(out); err == nil {
		res.Output = b
	}
}
