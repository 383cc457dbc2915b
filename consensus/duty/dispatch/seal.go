package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

// afterUnsealed is the pause before results are reported again that could not be encrypted, as this leader lacks a key of the mesh,
// or no majority of the voters has one yet.
const afterUnsealed = 5 * time.Second

// sealer encrypts the sensitive ones among the results and saved values of tasks.
type sealer struct{ cfg *Config }

// results returns results for the log: references to encrypted values stand in place of the sensitive ones. waiting are the
// results that cannot be encrypted now.
func (e sealer) results(ctx context.Context, results []*pb.Result) (ready, waiting []*pb.Result) {
	for _, r := range results {
		encrypted, err := e.result(ctx, r)
		if err != nil {
			e.cfg.Logger.Warn("a result waits until it can be encrypted", "task", r.Task, "error", err)
			waiting = append(waiting, r)
			continue
		}
		ready = append(ready, encrypted)
	}
	return ready, waiting
}

// result returns a result for the log, or a failure in its place if it must not be stored.
func (e sealer) result(ctx context.Context, r *pb.Result) (*pb.Result, error) {
	op, u, err := model.TaskID(r.Task).Split()
	if err != nil || len(r.Output) == 0 {
		return r, nil
	}
	if r = checked(e.cfg.Machine.View(), string(op), u, r); len(r.Output) == 0 {
		return r, nil
	}
	var o model.TaskOutput
	if json.Unmarshal(r.Output, &o) != nil || len(o.Result) == 0 {
		return r, nil // the output of a step, whose form is its own
	}
	failed := &pb.Result{Task: r.Task, Fence: r.Fence, Outcome: pb.Outcome_OUTCOME_FATAL, LogTail: r.LogTail}
	if why := refusedResult(o.Result); why != "" {
		failed.Message = "a result of the task " + why
		return failed, nil
	}
	values, err := e.values(ctx, string(op), u, o.Result)
	if errors.Is(err, problem.Quota) {
		failed.Message = "the secrets among the task's results cannot be stored: " + err.Error()
		return failed, nil
	}
	if err != nil {
		return nil, err
	}
	if !model.HasSealedRef(values) {
		return r, nil
	}
	var all map[string]json.RawMessage // keeps what TaskOutput does not know
	if err := json.Unmarshal(r.Output, &all); err != nil {
		return nil, err
	}
	if all["result"], err = json.Marshal(values); err != nil {
		return nil, err
	}
	out := &pb.Result{Task: r.Task, Fence: r.Fence, Outcome: r.Outcome, Message: r.Message, LogTail: r.LogTail, Adopted: r.Adopted}
	out.Output, err = json.Marshal(all)
	return out, err
}

// refusedResult returns why results or saved values are refused, or "". Only the mesh writes references: a task that
// could return one would be sent the value of any secret of its tenant.
func refusedResult(values map[string]any) string {
	for _, v := range values {
		if why := model.RefusedRef(v); why != "" {
			return why
		}
	}
	return ""
}

// saved returns a saved value for the log, or nil if it must not be stored.
func (e sealer) saved(ctx context.Context, s *pb.SaveState, op string, u uint32) (*pb.SaveState, error) {
	var value any
	if err := json.Unmarshal(s.Value, &value); err != nil {
		return s, nil // the plugin's kit writes JSON; nothing else can be a reference
	}
	values := map[string]any{s.Key: value}
	if why := refusedResult(values); why != "" {
		e.cfg.Logger.Warn("a value that a plugin saved for its task was refused", "task", s.Task, "error", "it "+why)
		return nil, nil
	}
	sealed, err := e.values(ctx, op, u, values)
	if errors.Is(err, problem.Quota) {
		e.cfg.Logger.Warn("a value that a plugin saved for its task was refused", "task", s.Task, "error", err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !model.HasSealedRef(sealed) {
		return s, nil
	}
	text, err := json.Marshal(sealed[s.Key])
	if err != nil {
		return nil, err
	}
	return &pb.SaveState{Task: s.Task, Fence: s.Fence, Key: s.Key, Value: text}, nil
}

// values encrypts the sensitive ones among the values of a task.
func (e sealer) values(ctx context.Context, op string, u uint32, values map[string]any) (map[string]any, error) {
	v := e.cfg.Machine.View()
	o, ok := v.Operation("", op)
	p, has := v.Plan(op)
	if e.cfg.Seal == nil || !ok || !has || int(u) >= p.Graph.Len() {
		return values, nil // the state refuses the report of a task that is unknown
	}
	return e.cfg.Seal(ctx, o.Tenant, e.cfg.Tasks.Needs(v, o, p.Graph, u).Plugin, values)
}
