package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

// afterUnsealed is the pause before results are reported again that could not be encrypted, as this leader lacks a key of the mesh,
// or no majority of the voters has one yet.
const afterUnsealed = 5 * time.Second

// sealer encrypts the sensitive ones among the results and saved values of tasks. Any goroutine may use it.
type sealer struct {
	cfg *Config

	mu sync.Mutex
	// waits has the results that wait until they can be encrypted, each with the session that delivered it last. A worker delivers
	// its results in each new session.
	waits map[attempt]string
}

// attempt is a lease of a task.
type attempt struct {
	task  string
	fence uint64
}

// results returns results for the log, which a session has delivered: references to encrypted values stand in place of the sensitive ones.
// waiting are the results that cannot be encrypted now, and begin to wait. Those that wait already are in neither list.
func (e *sealer) results(ctx context.Context, session string, results []*pb.Result) (ready, waiting []*pb.Result) {
	for _, r := range results {
		if e.delivered(r, session, false) {
			continue
		}
		encrypted, err := e.result(ctx, r)
		switch {
		case err == nil:
			ready = append(ready, encrypted)
		case !e.delivered(r, session, true):
			waiting = append(waiting, r)
		}
	}
	return ready, waiting
}

// delivered reports whether a result waits already, and notes the session for it then. A result that does not wait begins to, if wait is
// true.
func (e *sealer) delivered(r *pb.Result, session string, wait bool) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, waits := e.waits[attempt{r.Task, r.Fence}]
	if waits || wait {
		e.waits[attempt{r.Task, r.Fence}] = session
	}
	return waits
}

// again is like results, for results that wait. Those that are ready wait no more, and are returned by the sessions that delivered them
// last.
func (e *sealer) again(ctx context.Context, results []*pb.Result) (ready map[string][]*pb.Result, waiting []*pb.Result) {
	ready = map[string][]*pb.Result{}
	for _, r := range results {
		encrypted, err := e.result(ctx, r)
		if err != nil {
			waiting = append(waiting, r)
			continue
		}
		e.mu.Lock()
		session := e.waits[attempt{r.Task, r.Fence}]
		delete(e.waits, attempt{r.Task, r.Fence})
		e.mu.Unlock()
		ready[session] = append(ready[session], encrypted)
	}
	return ready, waiting
}

// over reports whether the lease of a task has ended, so that the state refuses its results. The fence is the index of an entry: a view
// that has the entry cannot miss the lease.
func over(v *state.View, op string, u uint32, fence uint64) bool {
	p, ok := v.Plan(op)
	return v.Index() >= fence && (!ok || !p.Valid(u, fence))
}

// keepsNothing reports whether a task is on no node: there is no record for what it returns.
func keepsNothing(v *state.View, op string, u uint32) bool {
	p, ok := v.Plan(op)
	return ok && int(u) < p.Graph.Len() && p.Graph.OnAgent(int(u))
}

// result returns a result for the log, or a failure in its place if it must not be stored.
func (e *sealer) result(ctx context.Context, r *pb.Result) (*pb.Result, error) {
	op, u, err := model.TaskID(r.Task).Split()
	if err != nil || len(r.Output) == 0 {
		return r, nil
	}
	v := e.cfg.Machine.View()
	if over(v, string(op), u, r.Fence) {
		return &pb.Result{Task: r.Task, Fence: r.Fence, Outcome: r.Outcome}, nil // the state refuses it, and the log needs no secrets of it
	}
	if r = checked(v, string(op), u, r); len(r.Output) == 0 {
		return r, nil
	}
	if keepsNothing(v, string(op), u) {
		return &pb.Result{Task: r.Task, Fence: r.Fence, Outcome: r.Outcome, Message: r.Message, LogTail: r.LogTail, Adopted: r.Adopted}, nil
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
		e.cfg.Logger.Warn("a result waits until it can be encrypted", "task", r.Task, "error", err)
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
func (e *sealer) saved(ctx context.Context, s *pb.SaveState, op string, u uint32) (*pb.SaveState, error) {
	var value any
	if err := json.Unmarshal(s.Value, &value); err != nil {
		return s, nil // the plugin's kit writes JSON; nothing else can be a reference
	}
	values := map[string]any{s.Key: value}
	if why := refusedResult(values); why != "" {
		e.cfg.Logger.Warn("a value that a plugin saved for its task was refused", "task", s.Task, "error", "it "+why)
		return nil, nil
	}
	if v := e.cfg.Machine.View(); over(v, op, u, s.Fence) || keepsNothing(v, op, u) {
		return nil, nil // the state would refuse it
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
func (e *sealer) values(ctx context.Context, op string, u uint32, values map[string]any) (map[string]any, error) {
	v := e.cfg.Machine.View()
	o, ok := v.Operation("", op)
	p, has := v.Plan(op)
	if e.cfg.Seal == nil || !ok || !has || int(u) >= p.Graph.Len() {
		return values, nil // the state refuses the report of a task that is unknown
	}
	return e.cfg.Seal(ctx, o.Tenant, e.cfg.Tasks.Needs(v, o, p.Graph, u).Plugin, values)
}
