package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/coopr/coopr/internal/uptime"
	"github.com/coopr/coopr/plugins/sdk/tasklog"
	"github.com/coopr/coopr/rpc/proto"
)

// Causes with which a task's context is cancelled.
var (
	errCancelled = errors.New("cancelled")
	errGone      = errors.New("the agent is gone")
)

// verbFunc carries out one task. adopted is true if an earlier attempt had made the task's effect already.
type verbFunc func(ctx context.Context, p *proto.Task, t *Task) (out *Output, adopted bool, err error)

// attempt identifies one attempt at a task.
type attempt struct {
	task  string
	fence uint64
}

// session is one Execute stream with its running tasks.
type session struct {
	do  verbFunc
	out *outbox

	mu      sync.Mutex
	running map[attempt]context.CancelCauseFunc
	tasks   sync.WaitGroup
}

// serveExecute serves the tasks of one stream until the host closes it.
func serveExecute(stream grpc.BidiStreamingServer[proto.ExecuteRequest, proto.ExecuteResponse], process *lifetime, do verbFunc) error {
	process.sessions.Add(1)
	defer process.sessions.Done()
	s := &session{do: do, out: newOutbox(stream.Send), running: map[attempt]context.CancelCauseFunc{}}
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(errGone)
	stop := context.AfterFunc(process, func() { cancel(errGone) })
	defer stop()

	done, sent := make(chan struct{}), make(chan error, 1)
	go func() {
		err := s.out.run(done)
		if err != nil {
			cancel(errGone)
		}
		sent <- err
	}()
	var failed error
	for {
		req, err := stream.Recv()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				failed = err
				cancel(errGone)
			}
			break
		}
		for _, t := range req.Tasks {
			s.start(ctx, t, time.Duration(req.BeginBefore))
		}
		for _, c := range req.Cancels {
			s.cancel(attempt{c.Task, c.Fence}, c.Reason)
		}
	}
	s.tasks.Wait()
	close(done)
	return errors.Join(failed, <-sent)
}

// start runs a task in a goroutine, unless the machine's uptime has reached end, if that is not 0: the task may belong to another agent by
// then, whose work must not be undone. An attempt that is running already is not started again.
func (s *session) start(ctx context.Context, t *proto.Task, end time.Duration) {
	key := attempt{t.Id, t.Fence}
	ctx, cancel := context.WithCancelCause(ctx)
	s.mu.Lock()
	if _, twice := s.running[key]; twice {
		s.mu.Unlock()
		cancel(nil)
		return
	}
	s.running[key] = cancel
	s.mu.Unlock()
	s.tasks.Go(func() {
		defer cancel(nil)
		r := &proto.Result{Task: t.Id, Fence: t.Fence, Outcome: proto.Outcome_OUTCOME_NOTHING_DONE, Message: tooLate}
		if end == 0 || uptime.Now() < end {
			r = s.run(ctx, t)
		}
		s.mu.Lock()
		delete(s.running, key)
		s.mu.Unlock()
		s.out.result(r)
	})
}

// tooLate is the message of a task that was not begun because its lease has ended on the way.
const tooLate = "not begun: the agent was suspended for so long that the task may belong to another agent by now"

func (s *session) cancel(key attempt, reason string) {
	s.mu.Lock()
	cancel := s.running[key]
	s.mu.Unlock()
	if cancel != nil {
		cancel(fmt.Errorf("%w: %s", errCancelled, reason))
	}
}

// run carries out one task and returns its result.
func (s *session) run(ctx context.Context, p *proto.Task) *proto.Result {
	if p.TimeoutMs > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(p.TimeoutMs)*time.Millisecond)
		defer cancel()
	}
	log := tasklog.New(func(text string, stderr bool) {
		s.out.log(&proto.LogLine{Task: p.Id, Fence: p.Fence, Text: text, Stderr: stderr})
	})
	t := newTask(p, log, func(key string, value []byte) {
		s.out.save(&proto.SaveState{Task: p.Id, Fence: p.Fence, Key: key, Value: value})
	})
	out, adopted, err := s.guarded(ctx, p, t)
	r := &proto.Result{Task: p.Id, Fence: p.Fence}
	tail := log.Close()
	if err == nil {
		r.Output, err = encodeOutput(out)
	}
	if err == nil {
		r.Outcome, r.Adopted = proto.Outcome_OUTCOME_SUCCEEDED, adopted
		return r
	}
	r.Outcome, r.Message, r.LogTail = outcomeOf(err), err.Error(), tail
	if body, e := encodeOutput(out); e == nil {
		r.Output = body // a failure has output too, such as an exit status
	}
	var marked *failure
	if !errors.As(err, &marked) && ctx.Err() != nil {
		// An unmarked error after the end of the context is taken for that end.
		cause := context.Cause(ctx)
		switch {
		case errors.Is(cause, errCancelled):
			r.Outcome, r.Message = proto.Outcome_OUTCOME_CANCELLED, cause.Error()
		case errors.Is(cause, context.DeadlineExceeded):
			r.Outcome, r.Message = proto.Outcome_OUTCOME_RETRYABLE, fmt.Sprintf("timed out after %s: %v", t.Timeout, err)
		default:
			r.Outcome = proto.Outcome_OUTCOME_UNKNOWN
		}
	}
	return r
}

// guarded turns a panic into a failure with the outcome UNKNOWN.
func (s *session) guarded(ctx context.Context, p *proto.Task, t *Task) (out *Output, adopted bool, err error) {
	defer func() {
		if v := recover(); v != nil {
			for line := range strings.Lines(string(debug.Stack())) {
				t.log.Line(strings.TrimRight(line, "\n"), true)
			}
			out, adopted, err = nil, false, Unknown(fmt.Errorf("the plugin panicked: %v", v))
		}
	}()
	return s.do(ctx, p, t)
}
