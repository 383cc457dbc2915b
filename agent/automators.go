package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/host"
	pb "github.com/coopr/coopr/rpc/proto"
)

// leased asks, right before a plugin begins, whether the lease still holds.
type leased struct {
	host.Executor
	holds func() bool
}

// Execute carries out a task.
func (l leased) Execute(ctx context.Context, t *pb.Task, sink host.Sink) *pb.Result {
	return l.Executor.Execute(host.WithLease(ctx, l.holds), t, sink)
}

// everyAutomator lets each automator of a node bootstrap it: its services may
// need several, and BOOTSTRAP is one task of the node (docs/spec/planner.md).
type everyAutomator struct{ host.Executor }

// Execute carries out a task. A bootstrap ends with the first automator that
// does not succeed; bootstraps are idempotent, so the next attempt begins anew.
func (e everyAutomator) Execute(ctx context.Context, t *pb.Task, sink host.Sink) *pb.Result {
	if t.Action != model.Bootstrap.String() {
		return e.Executor.Execute(ctx, t, sink)
	}
	var in struct {
		Config struct{ Automators []string }
	}
	if err := json.Unmarshal(t.Input, &in); err != nil || len(in.Config.Automators) < 2 {
		return e.Executor.Execute(ctx, t, sink)
	}
	for _, name := range in.Config.Automators {
		if !e.offers(name) {
			return &pb.Result{Task: t.Id, Fence: t.Fence, Outcome: pb.Outcome_OUTCOME_NOTHING_DONE,
				Message: fmt.Sprintf("no plugin here offers the automator %s, which the node needs beside %s", name, t.Plugin)}
		}
	}
	var all model.TaskOutput
	for _, name := range in.Config.Automators {
		one := proto.CloneOf(t)
		one.Plugin = name
		res := e.Executor.Execute(ctx, one, sink)
		if res.Outcome != pb.Outcome_OUTCOME_SUCCEEDED {
			res.Message = "automator " + name + ": " + res.Message
			return res
		}
		var out model.TaskOutput
		if len(res.Output) > 0 {
			if err := json.Unmarshal(res.Output, &out); err != nil {
				return res // whoever takes results says what is wrong with it
			}
		}
		all.Hostname = cmp.Or(out.Hostname, all.Hostname)
		all.IPAddresses = joined(all.IPAddresses, out.IPAddresses)
		all.Result = joined(all.Result, out.Result)
	}
	res := &pb.Result{Task: t.Id, Fence: t.Fence, Outcome: pb.Outcome_OUTCOME_SUCCEEDED}
	if b, err := json.Marshal(all); err == nil && string(b) != "{}" {
		res.Output = b
	}
	return res
}

// joined gives a with what b has.
func joined[V any](a, b map[string]V) map[string]V {
	if a == nil {
		return b
	}
	maps.Copy(a, b)
	return a
}

func (e everyAutomator) offers(name string) bool {
	return slices.ContainsFunc(e.Types(), func(t host.Type) bool {
		return t.Kind == model.KindAutomatorType && t.Name == name
	})
}
