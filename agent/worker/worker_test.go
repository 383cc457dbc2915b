package worker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/coopr/coopr/agent/worker"
	"github.com/coopr/coopr/plugins/host"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/doubles/memjournal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// leader is the other end of a worker's sessions.
type leader struct {
	up   chan *pb.WorkerMessage
	down chan *pb.LeaderMessage
	cut  chan struct{} // closed: the connection is gone
	ctx  context.Context
	deaf chan struct{} // closed: what the worker sends fails
	// late, with lasts, is what the worker still receives when it has given up the session.
	late  chan *pb.LeaderMessage
	lasts atomic.Bool
}

func (l *leader) Send(m *pb.WorkerMessage) error {
	select {
	case l.up <- m:
		return nil
	case <-l.deaf:
		return io.ErrClosedPipe
	case <-l.ctx.Done():
		return l.ctx.Err()
	}
}

func (l *leader) Recv() (*pb.LeaderMessage, error) {
	select {
	case m := <-l.down:
		return m, nil
	case <-l.cut:
		return nil, io.EOF
	case <-l.ctx.Done():
		if l.lasts.Load() {
			if m, ok := <-l.late; ok {
				return m, nil
			}
		}
		return nil, l.ctx.Err()
	}
}

// plugins run until they are told to end.
type plugins struct {
	mu      sync.Mutex
	started []uint64
	sink    host.Sink     // of the last task
	slow    time.Duration // from the order to end until they have ended
}

func (p *plugins) Types() []host.Type { return nil }

func (p *plugins) Execute(ctx context.Context, t *pb.Task, sink host.Sink) *pb.Result {
	p.mu.Lock()
	p.started, p.sink = append(p.started, t.Fence), sink
	p.mu.Unlock()
	r := &pb.Result{Task: t.Id, Fence: t.Fence, Outcome: pb.Outcome_OUTCOME_SUCCEEDED}
	select {
	case <-ctx.Done():
		time.Sleep(p.slow)
		r.Outcome = pb.Outcome_OUTCOME_CANCELLED
	case <-time.After(time.Hour):
	}
	return r
}

func (p *plugins) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.started)
}

// run starts a worker and returns the leader's end of each of its sessions.
func run(t *testing.T, j worker.Journal) (p *plugins, sessions chan *leader, stop func()) {
	t.Helper()
	p, sessions = &plugins{}, make(chan *leader)
	w, err := worker.New(worker.Config{
		Hello: func() *pb.Hello { return &pb.Hello{Agent: "a", Slots: 4} },
		Connect: func(ctx context.Context) (worker.Stream, error) {
			l := &leader{up: make(chan *pb.WorkerMessage), down: make(chan *pb.LeaderMessage), cut: make(chan struct{}), ctx: ctx,
				deaf: make(chan struct{}), late: make(chan *pb.LeaderMessage)}
			select {
			case sessions <- l:
				return l, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
		Executor: p, Journal: j, Logs: worker.NewLogs(worker.LogsConfig{}), Logger: slog.New(slog.DiscardHandler), Drain: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	return p, sessions, func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

const ttl = 5 * time.Second

// welcome takes a hello and answers it.
func (l *leader) welcome() *pb.Hello {
	m := <-l.up
	l.down <- &pb.LeaderMessage{Welcome: &pb.Welcome{Session: "s", TtlMs: ttl.Milliseconds(), HeartbeatMs: 1000}}
	return m.Hello
}

// until reads what the worker sends, answering heartbeats where beat, until ok.
func (l *leader) until(beat bool, ok func(*pb.WorkerMessage) bool) {
	for m := range l.up {
		if beat && m.Heartbeat > 0 {
			l.down <- &pb.LeaderMessage{Heartbeat: m.Heartbeat}
		}
		if ok(m) {
			return
		}
	}
}

// A worker begins no task that a session sends after the hello of the next one: the task's lease is
// not in that hello, and may be another worker's.
func TestTasksOfAnEarlierSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, sessions, stop := run(t, memjournal.New())
		old := <-sessions
		old.lasts.Store(true)
		<-old.up
		old.down <- &pb.LeaderMessage{Welcome: &pb.Welcome{Session: "old", TtlMs: ttl.Milliseconds(), HeartbeatMs: 1000}}
		close(old.deaf)
		l := <-sessions
		l.welcome()
		old.late <- &pb.LeaderMessage{Tasks: []*pb.Task{{Id: "op/1", Fence: 7}}}
		close(old.late)
		synctest.Wait()
		if p.count() != 0 {
			t.Error("the task was begun")
		}
		go l.until(true, func(m *pb.WorkerMessage) bool { return false })
		stop()
		close(l.up)
	})
}

// An abandoned task is held and reported until it has really ended.
func TestAbandonedIsHeldUntilItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, sessions, stop := run(t, memjournal.New())
		p.slow = 2 * time.Second
		l := <-sessions
		l.welcome()
		l.down <- &pb.LeaderMessage{Tasks: []*pb.Task{{Id: "op/1", Fence: 7}}}
		synctest.Wait()
		for range 2 { // after the order to abandon the task, the worker reports it to the next leader too
			close(l.cut)
			l = <-sessions
			h := (<-l.up).Hello
			if len(h.Held) != 1 || h.Held[0].Fence != 7 || h.Held[0].Result != nil {
				t.Fatalf("it says that it holds %v", h.Held)
			}
			l.down <- &pb.LeaderMessage{Welcome: &pb.Welcome{Session: "s", TtlMs: ttl.Milliseconds(), HeartbeatMs: 1000,
				Verdicts: []*pb.Verdict{{Task: "op/1", Fence: 7}}}}
			synctest.Wait()
		}
		l.until(true, func(m *pb.WorkerMessage) bool {
			return len(m.Results) == 1 && m.Results[0].Fence == 7 && m.Results[0].Outcome == pb.Outcome_OUTCOME_CANCELLED
		})
		l.down <- &pb.LeaderMessage{Confirmed: []*pb.Verdict{{Task: "op/1", Fence: 7, Keep: true}}}
		// The worker does not have the task any more, and reports that.
		l.down <- &pb.LeaderMessage{Cancels: []*pb.Cancel{{Task: "op/1", Fence: 7}}}
		l.until(true, func(m *pb.WorkerMessage) bool { return len(m.Returned) == 1 && m.Returned[0].Fence == 7 })
		go func() { // its goodbye
			for {
				select {
				case <-l.up:
				case <-l.ctx.Done():
					return
				}
			}
		}()
		stop()
	})
}

// A worker whose heartbeats are not answered ends its tasks before its leases can end, and
// begins no task that arrives later: it gives the session up, and reports in the next one.
func TestSilentLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, sessions, stop := run(t, memjournal.New())
		l := <-sessions
		<-l.up
		l.down <- &pb.LeaderMessage{Welcome: &pb.Welcome{Session: "old", TtlMs: ttl.Milliseconds(), HeartbeatMs: 1000}}
		begin := time.Now()
		l.down <- &pb.LeaderMessage{Tasks: []*pb.Task{{Id: "op/1", Fence: 7}}}
		l.lasts.Store(true)
		next := l.silent(sessions)
		if took := time.Since(begin); took >= ttl {
			t.Errorf("it stopped after %v, its leases live for %v", took, ttl)
		}
		l.late <- &pb.LeaderMessage{Heartbeat: 1, Tasks: []*pb.Task{{Id: "op/2", Fence: 8}}}
		close(l.late)
		if h := next.welcome(); len(h.Held) != 1 || h.Held[0].Result.GetOutcome() != pb.Outcome_OUTCOME_CANCELLED {
			t.Errorf("it says that it holds %v", h.Held)
		}
		synctest.Wait()
		if p.count() != 1 {
			t.Errorf("%d tasks were begun", p.count())
		}
		go next.until(true, func(m *pb.WorkerMessage) bool { return false })
		stop()
		close(next.up)
	})
}

// A worker that had to cancel its tasks takes others in its next session, and cancels these as well when the
// leader falls silent again.
func TestFenceAfterSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, sessions, stop := run(t, memjournal.New())
		l := <-sessions
		for i := range 2 {
			l.welcome()
			l.down <- &pb.LeaderMessage{Tasks: []*pb.Task{{Id: fmt.Sprint("op/", i), Fence: 7}}}
			l = l.silent(sessions)
			if p.count() != i+1 {
				t.Fatalf("%d tasks were begun", p.count())
			}
		}
		l.welcome()
		go l.until(true, func(m *pb.WorkerMessage) bool { return false })
		stop()
		close(l.up)
	})
}

// silent reads what the worker sends and answers nothing, until the worker opens the next session.
func (l *leader) silent(sessions <-chan *leader) *leader {
	for {
		select {
		case <-l.up:
		case next := <-sessions:
			return next
		}
	}
}

// A worker that was killed reports after its return on every task that it held: the results
// that are in its journal, and that the other outcomes are unknown.
func TestComesBackFromTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := memjournal.New()
		if err := errors.Join(j.Put(held(1, 7, "")), j.Put(held(2, 7, "done"))); err != nil {
			t.Fatal(err)
		}
		p, sessions, stop := run(t, j)
		l := <-sessions
		h := l.welcome()
		got := map[string]pb.Outcome{}
		for _, x := range h.Held {
			got[x.Task] = x.Result.GetOutcome()
		}
		if len(got) != 2 || got["op/1"] != pb.Outcome_OUTCOME_CANCELLED || got["op/2"] != pb.Outcome_OUTCOME_SUCCEEDED {
			t.Errorf("it says %v", got)
		}
		l.down <- &pb.LeaderMessage{Confirmed: []*pb.Verdict{{Task: "op/1", Fence: 7}, {Task: "op/2", Fence: 7}}}
		synctest.Wait()
		if left, _ := j.Load(); len(left) != 0 {
			t.Errorf("the journal keeps %v", left)
		}
		if p.count() != 0 {
			t.Error("it was begun again")
		}
		go l.until(true, func(m *pb.WorkerMessage) bool { return false })
		stop()
		close(l.up)
	})
}

// With a full disk nothing is begun, and nothing is lost.
func TestFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := memjournal.New()
		p, sessions, stop := run(t, j)
		l := <-sessions
		l.welcome()
		j.SetFull(errors.New("no space left on device"))
		l.down <- &pb.LeaderMessage{Tasks: []*pb.Task{{Id: "op/1", Fence: 7}}}
		l.until(true, func(m *pb.WorkerMessage) bool { return len(m.Returned) == 1 })
		j.SetFull(nil)
		l.down <- &pb.LeaderMessage{Tasks: []*pb.Task{{Id: "op/1", Fence: 9}}}
		synctest.Wait()
		if p.count() != 1 {
			t.Errorf("%d tasks were begun", p.count())
		}
		go l.until(true, func(m *pb.WorkerMessage) bool { return false })
		stop()
		close(l.up)
	})
}

// Results that come soon after a message share the next one, unless nothing runs
// that could follow: then they go at once.
func TestResultsGather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, sessions, stop := run(t, memjournal.New())
		l := <-sessions
		l.welcome()
		time.Sleep(100 * time.Millisecond) // not at a heartbeat
		begin := time.Now()
		for i, at := range []time.Duration{0, 1, 2, 100, 101, 102} {
			time.Sleep(time.Until(begin.Add(at * time.Millisecond)))
			l.down <- &pb.LeaderMessage{Tasks: []*pb.Task{{Id: fmt.Sprint("op/", i), Fence: 7}}}
		}
		got, left := "", 6
		l.until(true, func(m *pb.WorkerMessage) bool {
			if n := len(m.Results); n > 0 {
				got += fmt.Sprintf("%d after %v; ", n, time.Since(begin)-time.Hour)
				left -= n
			}
			return left == 0
		})
		if want := "1 after 0s; 2 after 5ms; 1 after 100ms; 2 after 102ms; "; got != want {
			t.Errorf("results came %swant %s", got, want)
		}
		go l.until(true, func(m *pb.WorkerMessage) bool { return false })
		stop()
		close(l.up)
	})
}

// A plugin's value is sent again with each hello until the leader has confirmed it.
func TestValuesAreRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, sessions, stop := run(t, memjournal.New())
		l := <-sessions
		l.welcome()
		l.down <- &pb.LeaderMessage{Tasks: []*pb.Task{{Id: "op/1", Fence: 7}}}
		synctest.Wait()
		for i, value := range []string{"1", "2"} {
			p.sink.Save(&pb.SaveState{Task: "op/1", Fence: 7, Key: "k", Value: []byte(value)})
			l.until(true, func(m *pb.WorkerMessage) bool {
				return len(m.Saves) == 1 && string(m.Saves[0].Value) == value && m.LastSave == uint64(i+1)
			})
		}
		for saved, want := range []string{"12", "2", ""} {
			if saved > 0 {
				l.down <- &pb.LeaderMessage{Saved: uint64(saved)}
				synctest.Wait()
			}
			close(l.cut)
			l = <-sessions
			got := ""
			for _, v := range l.welcome().Saves {
				got += string(v.Value)
			}
			if got != want {
				t.Errorf("the hello has the values %q, want %q", got, want)
			}
		}
		// Nothing was sent in between: the later value replaces the earlier one of the same key.
		synctest.Wait()
		close(l.cut)
		synctest.Wait()
		for _, value := range []string{"3", "4"} {
			p.sink.Save(&pb.SaveState{Task: "op/1", Fence: 7, Key: "k", Value: []byte(value)})
		}
		l = <-sessions
		if h := l.welcome(); len(h.Saves) != 1 || string(h.Saves[0].Value) != "4" || h.LastSave != 3 {
			t.Errorf("the hello has the values %v up to %d", h.Saves, h.LastSave)
		}
		go l.until(true, func(m *pb.WorkerMessage) bool { return false })
		stop()
		close(l.up)
	})
}

// Hellos are counted. A worker whose hello was refused sends the next one with the incarnation that
// the leader requires.
func TestRefusedHello(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, sessions, stop := run(t, memjournal.New())
		for i, asked := range []uint64{0, 7, 5, 0} {
			l := <-sessions
			h := (<-l.up).Hello
			if want := []uint64{0, 0, 7, 7}[i]; h.Number != uint64(i+1) || h.Incarnation != want {
				t.Errorf("hello %d has the number %d and the incarnation %d, want %d", i+1, h.Number, h.Incarnation, want)
			}
			if asked > 0 {
				l.down <- &pb.LeaderMessage{Refused: &pb.Refused{Incarnation: asked}}
			} else {
				close(l.cut)
			}
		}
		go func() {
			for l := range sessions {
				close(l.cut)
			}
		}()
		stop()
		close(sessions)
	})
}
