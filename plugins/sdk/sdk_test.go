package sdk

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/uptime"
	"github.com/coopr/coopr/plugins/sdk/wire"
	"github.com/coopr/coopr/rpc/proto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is an automator with a Run of the test.
type fake struct {
	run   func(context.Context, *Task) (*Output, error)
	check func() (bool, *Output, error)
}

func (f fake) Describe() model.PluginType { return model.PluginType{Base: model.Base{Name: "fake"}} }
func (f fake) Bootstrap(context.Context, *Task) (*Output, error) {
	return nil, nil
}
func (f fake) Run(ctx context.Context, t *Task) (*Output, error) { return f.run(ctx, t) }
func (f fake) Check(context.Context, *Task) (bool, *Output, error) {
	return f.check()
}

// serve serves an automator over memory and opens its stream.
func serve(t *testing.T, process *lifetime, f fake) grpc.BidiStreamingClient[proto.ExecuteRequest, proto.ExecuteResponse] {
	t.Helper()
	l := bufconn.Listen(1 << 20)
	s := grpc.NewServer()
	proto.RegisterAutomatorServer(s, &automatorServer{impl: f, process: process})
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	conn, err := grpc.NewClient("passthrough:x", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		s.Stop()
		<-done
		process.sessions.Wait()
	})
	stream, err := proto.NewAutomatorClient(conn).Execute(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// collect reads until every task has a result.
func collect(t *testing.T, stream grpc.BidiStreamingClient[proto.ExecuteRequest, proto.ExecuteResponse], n int) (map[string]*proto.Result,
	[]string) {
	t.Helper()
	results := map[string]*proto.Result{}
	var lines []string
	for len(results) < n {
		m, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range m.Logs {
			if results[l.Task] != nil {
				t.Errorf("a line of %s after its result", l.Task)
			}
			lines = append(lines, l.Text)
		}
		for _, r := range m.Results {
			if results[r.Task] != nil {
				t.Errorf("two results of %s", r.Task)
			}
			results[r.Task] = r
		}
	}
	return results, lines
}

// TestErrorsBecomeOutcomes checks the outcomes of marks, panics, timeouts and bad input.
func TestErrorsBecomeOutcomes(t *testing.T) {
	boom := errors.New("boom")
	f := fake{run: func(ctx context.Context, x *Task) (*Output, error) {
		x.Logf("in %s", x.ID)
		switch x.ID {
		case "ok":
			return &Output{Hostname: "h"}, nil
		case "plain":
			return nil, boom
		case "fatal":
			return nil, fmt.Errorf("wrapped: %w", Fatal(boom))
		case "nothing":
			return nil, NothingDone(boom)
		case "unknown":
			return nil, Unknown(boom)
		case "outermost":
			return nil, NothingDone(Fatal(boom))
		case "panic":
			panic("boom")
		case "nil pointer":
			var nobody *Task
			nobody.ID = "boom"
		case "slow":
			<-ctx.Done()
			return nil, fmt.Errorf("boom: %w", ctx.Err())
		case "input":
			_, err := x.Input()
			return nil, err
		case "output":
			return &Output{Result: map[string]any{"boom": func() {}}}, nil
		}
		return nil, nil
	}}
	want := map[string]proto.Outcome{
		"ok": proto.Outcome_OUTCOME_SUCCEEDED, "plain": proto.Outcome_OUTCOME_RETRYABLE, "fatal": proto.Outcome_OUTCOME_FATAL,
		"nothing": proto.Outcome_OUTCOME_NOTHING_DONE, "unknown": proto.Outcome_OUTCOME_UNKNOWN, "outermost": proto.Outcome_OUTCOME_NOTHING_DONE,
		"panic": proto.Outcome_OUTCOME_UNKNOWN, "nil pointer": proto.Outcome_OUTCOME_UNKNOWN, "slow": proto.Outcome_OUTCOME_RETRYABLE,
		"input": proto.Outcome_OUTCOME_FATAL, "output": proto.Outcome_OUTCOME_UNKNOWN,
	}
	stream := serve(t, &lifetime{Context: t.Context()}, f)
	req := &proto.ExecuteRequest{}
	for id := range want {
		x := &proto.Task{Id: id, Fence: 3, Action: "START", Input: []byte("no JSON")}
		if id == "slow" {
			x.TimeoutMs = 10
		}
		req.Tasks = append(req.Tasks, x)
	}
	if err := stream.Send(req); err != nil {
		t.Fatal(err)
	}
	results, lines := collect(t, stream, len(want))
	for id, o := range want {
		r := results[id]
		if r.Outcome != o || r.Fence != 3 || (o == proto.Outcome_OUTCOME_SUCCEEDED) != (r.Message == "") {
			t.Errorf("%s: %v", id, r)
		}
		if o != proto.Outcome_OUTCOME_SUCCEEDED && !strings.Contains(r.LogTail, "in "+id) && id != "panic" && id != "nil pointer" {
			t.Errorf("%s: tail %q", id, r.LogTail)
		}
	}
	if !strings.Contains(strings.Join(lines, "\n"), "sdk_test.go") {
		t.Error("a panic's stack is not in the log")
	}
}

// TestCancel checks that a cancelled task ends alone, and that the same attempt is not run twice.
// TestTooLate sends tasks with the time before which they are to begin, as an agent does that may be suspended before the plugin has them.
func TestTooLate(t *testing.T) {
	begun := make(chan string, 2)
	stream := serve(t, &lifetime{Context: t.Context()}, fake{run: func(_ context.Context, x *Task) (*Output, error) {
		begun <- x.ID
		return nil, nil
	}})
	now := uptime.Now()
	for id, end := range map[string]time.Duration{"in time": now + time.Hour, "late": now} {
		x := &proto.Task{Id: id, Fence: 3, Action: "START"}
		if err := stream.Send(&proto.ExecuteRequest{Tasks: []*proto.Task{x}, BeginBefore: int64(end)}); err != nil {
			t.Fatal(err)
		}
	}
	results, _ := collect(t, stream, 2)
	if r := results["in time"]; r.Outcome != proto.Outcome_OUTCOME_SUCCEEDED {
		t.Error(r)
	}
	if r := results["late"]; r.Outcome != proto.Outcome_OUTCOME_NOTHING_DONE || !strings.Contains(r.Message, "suspended") {
		t.Error(r)
	}
	if id := <-begun; id != "in time" || len(begun) > 0 {
		t.Errorf("%s has begun, and %d more", id, len(begun))
	}
}

func TestCancel(t *testing.T) {
	var mu sync.Mutex
	runs := map[string]int{}
	started := make(chan struct{}, 10)
	stream := serve(t, &lifetime{Context: t.Context()}, fake{run: func(ctx context.Context, x *Task) (*Output, error) {
		mu.Lock()
		runs[x.ID]++
		mu.Unlock()
		started <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	a, b := &proto.Task{Id: "a", Fence: 1, Action: "START"}, &proto.Task{Id: "b", Fence: 1, Action: "START"}
	if err := stream.Send(&proto.ExecuteRequest{Tasks: []*proto.Task{a, b, a}}); err != nil {
		t.Fatal(err)
	}
	<-started
	<-started
	for _, id := range []string{"b", "a"} {
		err := stream.Send(&proto.ExecuteRequest{Cancels: []*proto.Cancel{{Task: id, Fence: 2, Reason: "another attempt"},
			{Task: id, Fence: 1, Reason: "enough"}}})
		if err != nil {
			t.Fatal(err)
		}
		results, _ := collect(t, stream, 1)
		if r := results[id]; r == nil || r.Outcome != proto.Outcome_OUTCOME_CANCELLED || r.Message != "cancelled: enough" {
			t.Errorf("%s: %v", id, results)
		}
	}
	if runs["a"] != 1 || runs["b"] != 1 {
		t.Errorf("runs: %v", runs)
	}
}

// TestAgentGone checks that tasks are cancelled when the agent is gone.
func TestAgentGone(t *testing.T) {
	ctx, gone := context.WithCancel(t.Context())
	ended := make(chan struct{})
	stream := serve(t, &lifetime{Context: ctx}, fake{run: func(ctx context.Context, _ *Task) (*Output, error) {
		gone()
		<-ctx.Done()
		close(ended)
		return nil, ctx.Err()
	}})
	if err := stream.Send(&proto.ExecuteRequest{Tasks: []*proto.Task{{Id: "a", Action: "START"}}}); err != nil {
		t.Fatal(err)
	}
	<-ended
}

// TestObserve checks that an attempt whose end is unknown is observed before it is repeated.
func TestObserve(t *testing.T) {
	for _, done := range []bool{true, false} {
		ran := false
		stream := serve(t, &lifetime{Context: t.Context()}, fake{
			run:   func(context.Context, *Task) (*Output, error) { ran = true; return nil, nil },
			check: func() (bool, *Output, error) { return done, &Output{Hostname: "h"}, nil },
		})
		if err := stream.Send(&proto.ExecuteRequest{Tasks: []*proto.Task{{Id: "a", Action: "START", Observe: true}}}); err != nil {
			t.Fatal(err)
		}
		results, _ := collect(t, stream, 1)
		if r := results["a"]; r.Outcome != proto.Outcome_OUTCOME_SUCCEEDED || r.Adopted != done || ran == done || (len(r.Output) > 0) != done {
			t.Errorf("done %v: ran %v, %v", done, ran, r)
		}
	}
}

// TestLogPressure checks that a task that logs faster than the reader reads has to wait, that
// nothing is lost, and that the task ends when the reader is gone.
func TestLogPressure(t *testing.T) {
	const n = 200_000
	block := make(chan struct{})
	var sent int
	o := newOutbox(func(m *proto.ExecuteResponse) error {
		<-block
		sent += len(m.Logs)
		return nil
	})
	done, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- o.run(done) }()
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		for range n {
			o.log(&proto.LogLine{Text: "a line of some length, as they are"})
		}
	}()
	for full := false; !full; runtime.Gosched() {
		o.mu.Lock()
		full = o.queued >= wire.BatchBytes
		o.mu.Unlock()
	}
	select {
	case <-wrote:
		t.Error("the writer did not wait")
	default: // it has more lines than room for them
	}
	close(block)
	<-wrote
	close(done)
	if err := <-ended; err != nil || sent != n {
		t.Errorf("%d lines, %v", sent, err)
	}

	gone := newOutbox(func(*proto.ExecuteResponse) error { return errors.New("gone") })
	gone.log(&proto.LogLine{Text: "x"})
	if err := gone.run(nil); err == nil {
		t.Error("no error")
	}
	for range n {
		gone.log(&proto.LogLine{Text: "a line of some length, as they are"})
	}
}

func TestCheckFields(t *testing.T) {
	d := model.PluginType{Base: model.Base{Name: "aws"}, Parameters: model.PluginParameters{
		Admin: model.PluginFields{Fields: map[string]model.FieldSchema{
			"key": {Type: "password"}, "region": {Type: "select", Options: []string{"eu", "us"}}, "fast": {Type: "checkbox"}, "user": {Type: "text"},
		}, Required: [][]string{{"key", "region"}, {"user"}}},
	}}
	for _, c := range []struct {
		fields map[string]any
		want   int
	}{
		{map[string]any{"key": "k", "region": "eu", "fast": true, "unknown": 1}, 0},
		{map[string]any{"user": "u"}, 0},
		{map[string]any{"key": "k"}, 1},
		{map[string]any{"user": ""}, 1},
		{map[string]any{"user": "u", "region": "mars", "fast": "maybe", "key": 3}, 3},
	} {
		if got := CheckFields(d, ScopeAdmin, c.fields); len(got) != c.want {
			t.Errorf("%v: %v", c.fields, got)
		}
	}
	if got := CheckFields(d, ScopeUser, nil); len(got) != 0 {
		t.Errorf("user: %v", got)
	}
}
