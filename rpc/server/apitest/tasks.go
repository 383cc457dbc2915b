package apitest

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Tasks returns the tasks of an operation.
func (s *Store) Tasks(op string) []model.Task {
	all := s.member.Machine.View().Tasks("", op)
	return all
}

// Next returns the task of an operation that can be carried out next: one that a worker holds, or else the first that a worker may get.
// ok is false if the operation has ended or is held.
func (s *Store) Next(op string) (t model.Task, ok bool) {
	_, p, ok := s.plan(op)
	if !ok {
		return model.Task{}, false
	}
	next := p.Leased("")
	if len(next) == 0 {
		next = p.Leasable()
	}
	if len(next) == 0 {
		return model.Task{}, false
	}
	return s.member.Machine.View().Task("", string(model.OperationID(op).Task(next[0])))
}

// Does returns the action that a worker carries out for a task now, or "" if it changes nothing: a service that is launched anew is stopped
// first, a machine that exists is found, and a task that is not repeated is left out.
func (s *Store) Does(t model.Task) string {
	_, u, err := model.TaskID(t.ID).Split()
	check(err)
	_, p, ok := s.plan(t.Operation)
	if !ok {
		return ""
	}
	switch n := p.Note(u); {
	case n == nil:
	case n.Skip, n.Observe && t.Action == model.Create:
		return ""
	case n.Undo && t.Service != "":
		return model.Stop.String()
	case n.Undo:
		return model.Delete.String()
	}
	return t.Action.String()
}

// Work carries out the tasks of an operation in their order, until the operation has ended or is
// held. result returns the message of a task that fails, or "".
func (s *Store) Work(op string, result func(model.Task) string) {
	for {
		t, ok := s.Next(op)
		if !ok {
			return
		}
		status, message := model.TaskSucceeded, result(t)
		if message != "" {
			status = model.TaskFailed
		}
		if !s.report(t.ID, status, message) {
			return
		}
	}
}

// Finish lets all tasks of an operation succeed.
func (s *Store) Finish(op string) { s.Work(op, func(model.Task) string { return "" }) }

// Report leases a task, unless it is leased already, and reports that it has begun or ended with
// a status. A failed task that is ready is tried again much later. A task that waits for another
// cannot be leased.
func (s *Store) Report(task string, status model.TaskStatus, message string) {
	if !s.report(task, status, message) {
		panic(fmt.Sprintf("apitest: task %s cannot be %s", task, status))
	}
}

// plan returns the plan of an operation that runs tasks.
func (s *Store) plan(op string) (*model.Operation, *plan.State, bool) {
	v := s.member.Machine.View()
	o, ok := v.Operation("", op)
	p, kept := v.Plan(op)
	if !ok || !kept || !v.Leases(o, p) && o.Status != model.OpAborting {
		return nil, nil, false
	}
	return o, p, true
}

func (s *Store) report(task string, status model.TaskStatus, message string) bool {
	op, u, err := model.TaskID(task).Split()
	check(err)
	o, p, ok := s.plan(string(op))
	if !ok {
		return false
	}
	if !p.Status(u).Held() {
		a := s.Must(&pb.Command{Change: &pb.Command_Lease{Lease: &pb.Lease{
			Operation: string(op), Sessions: []string{worker}, Tasks: []uint32{u}, SessionOf: []uint32{0},
		}}})
		if len(a.Refused) > 0 {
			return false
		}
		_, p, _ = s.plan(string(op))
	}
	r := &pb.Report{Operation: string(op), Tasks: []uint32{u}, Fences: []uint64{p.Fence(u)}}
	switch status {
	case model.TaskLeased:
		return true
	case model.TaskRunning:
		r.Started = true
	case model.TaskSucceeded:
		r.Outputs = []*pb.Outputs{{Outcome: pb.Outcome_OUTCOME_SUCCEEDED, Message: message, Output: s.made(o, p, u)}}
	case model.TaskFailed:
		r.Outputs = []*pb.Outputs{{Outcome: pb.Outcome_OUTCOME_FATAL, Message: message, LogTail: s.logs.tail(task)}}
	case model.TaskReady:
		r.Outputs = []*pb.Outputs{{Outcome: pb.Outcome_OUTCOME_RETRYABLE, Message: message, RetryAtMs: time.Now().Add(forever).UnixMilli()}}
	default:
		return false
	}
	return len(s.Must(&pb.Command{Change: &pb.Command_Report{Report: r}}).Refused) == 0
}

// made returns the output of a task. A machine has an address and a password.
func (s *Store) made(op *model.Operation, p *plan.State, u uint32) []byte {
	if p.Graph.Action[u] != model.Create || op.Type == model.OpDelete {
		return nil
	}
	n, _ := s.member.Machine.View().Node(op.Tenant, p.Graph.NodeID(int(u)))
	i := n.Number - 1000
	return fmt.Appendf(nil, `{"ipaddresses":{"access_v4":"10.0.%d.%d"},"result":{"providerid":"vm-%d",`+
		`"ssh-auth":{"user":"root","password":"hunter2"}}}`, i/250, i%250+1, i)
}

// taskLogs are the logs of tasks on the disk of agent a.
type taskLogs struct {
	mu      sync.Mutex
	texts   map[string][]byte
	changed chan struct{} // closed when a text or the state has changed
	broken  bool
	most    int
}

// tail returns the last two lines of a log without their times, as the state keeps them of a failed task.
func (l *taskLogs) tail(task string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := strings.SplitAfter(string(l.texts[task]), "\n")
	lines = lines[max(0, len(lines)-3):]
	for i, line := range lines {
		lines[i] = line[min(len(line), len("15:04:05.000   ")):]
	}
	return strings.Join(lines, "")
}

func (l *taskLogs) notify() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.changed)
	l.changed = make(chan struct{})
}

// Log appends text to the log of a task. It leases the task if it has not run yet.
func (s *Store) Log(task, text string) {
	if t, ok := s.member.Machine.View().Task("", task); ok && len(t.Attempts) == 0 {
		s.Report(task, model.TaskLeased, "")
	}
	s.logs.mu.Lock()
	s.logs.texts[task] = slices.Concat(s.logs.texts[task], []byte(text))
	s.logs.mu.Unlock()
	s.logs.notify()
}

// Break lets agent a break every log after so many bytes of it from now on. With 0 the agent cannot be reached. Reconnect ends that.
func (s *Store) Break(most int) {
	s.logs.mu.Lock()
	s.logs.broken, s.logs.most = true, most
	s.logs.mu.Unlock()
	s.logs.notify()
}

// Reconnect lets agent a send all logs again.
func (s *Store) Reconnect() {
	s.logs.mu.Lock()
	defer s.logs.mu.Unlock()
	s.logs.broken = false
}

// peers connects to agent a, the only one that runs tasks.
type peers struct{ *Store }

// Client returns the client of agent a.
func (p peers) Client(string) (pb.PeerClient, error) { return logClient{Store: p.Store}, nil }

type logClient struct {
	pb.PeerClient
	*Store
}

// TaskLog sends the log of a task.
func (c logClient) TaskLog(ctx context.Context, r *pb.TaskLogRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[pb.TaskLogResponse],
	error) {
	return &logStream{ctx: ctx, store: c.Store, r: r}, nil
}

type logStream struct {
	grpc.ClientStream
	ctx   context.Context
	store *Store
	r     *pb.TaskLogRequest
	sent  int
}

// Recv returns the next piece of the log. If the reader follows the log, it ends with the task.
func (l *logStream) Recv() (*pb.TaskLogResponse, error) {
	for {
		l.store.logs.mu.Lock()
		text, changed := l.store.logs.texts[l.r.Task], l.store.logs.changed
		broken := l.store.logs.broken && (l.sent >= l.store.logs.most || len(text) > l.store.logs.most)
		if broken {
			text = text[:max(l.sent, min(len(text), l.store.logs.most))]
		}
		l.store.logs.mu.Unlock()
		t, ok := l.store.member.Machine.View().Task("", l.r.Task)
		switch {
		case l.sent < len(text):
			piece := text[l.sent:]
			l.sent = len(text)
			return &pb.TaskLogResponse{Data: piece}, nil
		case broken:
			return nil, status.Error(codes.Unavailable, "the connection broke")
		case !l.r.Follow || !ok || t.Status.Ended():
			return nil, io.EOF
		}
		select {
		case <-l.ctx.Done():
			return nil, l.ctx.Err()
		case <-changed:
		}
	}
}
