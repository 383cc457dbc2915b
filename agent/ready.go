package agent

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/coopr/coopr/plugins/host"
	pb "github.com/coopr/coopr/rpc/proto"
)

// untilReady repeats readiness checks until they succeed, or their time is over: a
// service that is not ready yet has not failed.
type untilReady struct{ host.Executor }

// Execute carries out a task.
func (u untilReady) Execute(ctx context.Context, t *pb.Task, sink host.Sink) *pb.Result {
	if t.Ready == nil {
		return u.Executor.Execute(ctx, t, sink)
	}
	within, cancel := context.WithTimeout(ctx, time.Duration(t.TimeoutMs)*time.Millisecond)
	defer cancel()
	one := proto.CloneOf(t)
	one.Ready, one.TimeoutMs = nil, t.Ready.TimeoutMs
	last := &pb.Result{Task: t.Id, Fence: t.Fence, Outcome: pb.Outcome_OUTCOME_RETRYABLE, Message: "it was not ready in time"}
	wait := time.Duration(t.Ready.DelayMs) * time.Millisecond
	for {
		timer := time.NewTimer(wait)
		select {
		case <-within.Done():
			timer.Stop()
			if ctx.Err() != nil {
				last.Outcome, last.Message = pb.Outcome_OUTCOME_CANCELLED, "stopped before it was ready"
			}
			return last
		case <-timer.C:
		}
		res := u.Executor.Execute(within, one, sink)
		if res.Outcome == pb.Outcome_OUTCOME_SUCCEEDED {
			return res
		}
		if within.Err() == nil {
			last.Message, last.LogTail = "it is not ready: "+res.Message, res.LogTail
		}
		wait = time.Duration(t.Ready.IntervalMs) * time.Millisecond
	}
}
