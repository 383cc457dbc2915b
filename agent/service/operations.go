package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coopr/coopr/consensus/duty/orchestrate"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Peers connects to other agents; *peer.Pool implements it.
type Peers interface {
	Client(addr string) (pb.PeerClient, error)
}

// Operations controls operations and their plans.
type Operations struct {
	Supervisor Supervisor
	Peers      Peers
	Logger     *slog.Logger
	forwards   forwards
}

// Order carries out an order about an operation.
func (o *Operations) Order(ctx context.Context, who model.Caller, operation, order, reason string) (api.Written, error) {
	if order != "pause" && order != "abort" {
		if err := o.permitAgentTasks(who, operation); err != nil {
			return api.Written{}, err
		}
	}
	return write(ctx, o.Supervisor, who, logformat.Control(operation, order, reason))
}

// BeginPlan creates the operation of a plan of a cluster's template, which is interrupted.
func (o *Operations) BeginPlan(ctx context.Context, who model.Caller, cluster, plan string) (string, api.Written, error) {
	_, l, err := leader(o.Supervisor)
	if err != nil {
		return "", api.Written{}, err
	}
	p, ans, err := l.Orchestrator.Custom(ctx, who, cluster, plan)
	if err != nil {
		return "", api.Written{}, err
	}
	return p.Operation.ID, api.Written{Index: ans.Index}, nil
}

// OrderPlan carries out an order about an operation's plan.
func (o *Operations) OrderPlan(ctx context.Context, who model.Caller, operation string, order tree.Order) (api.Written, error) {
	// To complete a part of a plan lets the parts after it begin. To complete the whole plan ends it.
	ends := order.Command == "forceComplete" && order.Phase == ""
	if holds := order.Command == "interrupt" || order.Command == "stop" || ends; !holds {
		if err := o.permitAgentTasks(who, operation); err != nil {
			return api.Written{}, err
		}
	}
	return write(ctx, o.Supervisor, who, logformat.OrderPlan(operation, order))
}

// permitAgentTasks returns problem.Forbidden if the caller may not let an operation go on because of its tasks on agents.
func (o *Operations) permitAgentTasks(who model.Caller, operation string) error {
	m, _, err := leader(o.Supervisor)
	if err != nil {
		return err
	}
	v := m.Machine.View()
	op, ok := v.Operation(who.Tenant, operation)
	s, kept := v.Plan(operation)
	if !ok || !kept {
		return nil // the state refuses the order
	}
	cl, ok := v.Cluster(op.Tenant, op.Cluster)
	if !ok {
		return nil
	}
	return orchestrate.PermitAgentTasks(who, cl, s.Graph)
}

// Explain returns the reasons why steps of an operation's plan wait. Only the leader's
// answer includes waits for workers.
func (o *Operations) Explain(ctx context.Context, tenant, operation string, steps int) (*tree.Explanation, error) {
	m, err := voter(o.Supervisor)
	if err != nil {
		return nil, err
	}
	v, now := m.Machine.View(), time.Now().UnixMilli()
	op, ok := v.Operation(tenant, operation)
	t, hasTree := v.PlanTree(tenant, operation, now)
	p, kept := v.Plan(operation)
	if ok && op.Status == model.OpAccepted {
		return nil, problem.New(problem.NotFound, "operation %s has no plan before its turn comes: %s", operation, op.Message)
	}
	if !ok || !hasTree || !kept {
		return nil, problem.New(problem.NotFound, "the plan of operation %s is not kept any more", operation)
	}
	e := t.Explain(p, steps, now, func(tasks []uint32) map[uint32]tree.Wait {
		out := o.workerWaits(ctx, operation, tasks)
		for _, u := range tasks {
			if w, ok := concurrentWait(v, op, p.Graph.NodeID(int(u))); ok {
				out[u] = w
			}
		}
		return out
	})
	for _, id := range op.Skipped {
		name := id
		if n, ok := v.Node(op.Tenant, id); ok {
			name = n.ShortName()
		}
		e.Skipped = append(e.Skipped, name)
	}
	return e, nil
}

// workerWaits returns the tasks that wait for a worker.
func (o *Operations) workerWaits(ctx context.Context, operation string, tasks []uint32) map[uint32]tree.Wait {
	if _, l, ok := o.Supervisor.Leader(); ok {
		if waits, err := l.Dispatcher.Why(ctx, operation, tasks); err == nil {
			return waits
		}
	}
	return map[uint32]tree.Wait{}
}

// concurrentWait returns the plan of its cluster that a node waits for; ok is false if there is none.
func concurrentWait(v *state.View, op *model.Operation, node string) (tree.Wait, bool) {
	p, ok := v.Elsewhere(op, node)
	if !ok {
		return tree.Wait{}, false
	}
	text := fmt.Sprintf("plan %s (operation %s) is at work on its node", p.Name, p.Operation.ID)
	return tree.Wait{Kind: tree.WaitsPlan, What: p.Operation.ID, Text: text}, true
}

// TaskLog copies the log of a task from the agent that ran it. If that agent does not send it, the error is an *api.LogMissing with the end
// of the log that the state has. Any other error may come after a part of the log.
func (o *Operations) TaskLog(ctx context.Context, who model.Caller, task string, attempt int, follow bool, w io.Writer) error {
	m, err := voter(o.Supervisor)
	if err != nil {
		return err
	}
	v := m.Machine.View()
	t, ok := v.Task(who.Tenant, task)
	if !ok {
		return problem.New(problem.NotFound, "there is no task %q", task)
	}
	var at *model.TaskAttempt
	for i := range t.Attempts {
		if a := &t.Attempts[i]; attempt == 0 || a.Number == attempt {
			at = a
		}
	}
	if at == nil {
		return problem.New(problem.NotFound, "task %s has had no attempt %d yet", task, attempt)
	}
	missing := &api.LogMissing{Why: fmt.Sprintf("agent %s, which has it, is not in the mesh any more", at.Agent), Tail: at.Log}
	for _, a := range v.Agents() {
		if a.Name != at.Agent {
			continue
		}
		begun, err := o.copyLog(ctx, a.PeerAddr, &pb.TaskLogRequest{Task: task, Fence: at.Fence, Follow: follow}, w)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err() // the reader is gone, or may not read any more
		case begun:
			return fmt.Errorf("agent %s did not send all of the log of task %s; ask again: %w", a.Name, task, err)
		case status.Code(err) != codes.NotFound:
			missing.Why = fmt.Sprintf("agent %s, which has it, cannot be reached", a.Name)
		case at.Log == "":
			return nil // the task has written nothing
		default:
			missing.Why = fmt.Sprintf("agent %s does not have it any more", a.Name)
		}
		o.Logger.Debug("the agent that ran a task did not send its log", "task", task, "agent", a.Name, "error", err)
		break
	}
	return missing
}

// copyLog copies a log from an agent. begun reports whether there was any of it.
func (o *Operations) copyLog(ctx context.Context, addr string, r *pb.TaskLogRequest, w io.Writer) (begun bool, err error) {
	c, err := o.Peers.Client(addr)
	if err != nil {
		return false, err
	}
	s, err := c.TaskLog(ctx, r)
	for err == nil {
		var piece *pb.TaskLogResponse
		if piece, err = s.Recv(); err == nil {
			begun = true
			_, err = w.Write(piece.Data)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return begun, err
}
