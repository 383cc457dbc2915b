package dispatch_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/coopr/coopr/consensus/duty/dispatch"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/doubles/logtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// log is a log with one member: it applies a proposal at once.
type log struct {
	t       *testing.T
	machine *state.Machine

	mu     sync.Mutex
	index  uint64
	term   uint64
	leases int   // entries with leases
	broken error // what every proposal gets
	asked  int
	clear  bool   // an entry has the text "canary"
	first  func() // done once, before the next proposal
}

func newLog(t *testing.T) *log {
	m, err := state.New(state.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return &log{t: t, machine: m}
}

func (l *log) propose(ctx context.Context, cs ...*pb.Command) ([]state.Answer, error) {
	l.mu.Lock()
	first := l.first
	l.first = nil
	l.mu.Unlock()
	if first != nil {
		first()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked++
	if l.broken != nil {
		return nil, l.broken
	}
	l.index++
	for _, c := range cs {
		if c.GetLease() != nil {
			l.leases++
		}
	}
	b, err := proto.Marshal(&pb.Entry{Format: state.Format, FeatureLevel: state.FeatureLevel, NowMs: time.Now().UnixMilli(), Commands: cs,
		Groups: []uint32{uint32(len(cs))}})
	if err != nil {
		return nil, err
	}
	l.clear = l.clear || bytes.Contains(b, []byte("canary"))
	return l.machine.Apply(&raft.Log{Type: raft.LogCommand, Index: l.index, Term: l.term, Data: b}).([][]state.Answer)[0], nil
}

func (l *log) must(cs ...*pb.Command) {
	l.t.Helper()
	answers, err := l.propose(l.t.Context(), cs...)
	for _, a := range answers {
		err = errors.Join(err, a.Err)
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

// begin starts an operation of so many independent tasks on one node.
func (l *log) begin(tasks int) {
	l.t.Helper()
	b := plan.NewBuilder([]string{"00000001-1000"}, []string{"s"})
	for range tasks {
		b.Task(model.Install, 0, 0)
	}
	l.start(b)
}

// beginOnAgent starts an operation of one task on no node.
func (l *log) beginOnAgent() {
	l.t.Helper()
	b := plan.NewBuilder([]string{"00000001-1000"}, []string{model.OwnAction("s", "probe")})
	b.Task(model.Run, plan.None, 0)
	l.start(b)
}

// start starts the first operation.
func (l *log) start(b *plan.Builder) {
	l.t.Helper()
	g, err := b.Build()
	if err != nil {
		l.t.Fatal(err)
	}
	op := model.Operation{ID: "00000001-001", Tenant: "one", Cluster: "00000001", Type: model.OpCreate}
	cl := model.Cluster{ID: "00000001", Tenant: "one", Name: "a", Operation: op.ID, Operations: 1}
	n := model.Node{ID: "00000001-1000", Cluster: cl.ID, Tenant: "one", Number: 1000}
	l.must(&pb.Command{Change: &pb.Command_PutTenant{PutTenant: &pb.PutTenant{Tenant: logtest.Tenant(model.Tenant{Name: "one"})}}},
		&pb.Command{Tenant: "one", Change: &pb.Command_StartOperation{StartOperation: &pb.StartOperation{Operation: logtest.Operation(op),
			Cluster: logtest.Cluster(cl), Nodes: logtest.Nodes(n), Graph: g.Encode()}}})
}

// next starts one more operation, of one task on the same node.
func (l *log) next() {
	l.t.Helper()
	b := plan.NewBuilder([]string{"00000001-1000"}, []string{"s"})
	b.Task(model.Stop, 0, 0)
	l.follow(b, model.OpRestart)
}

// follow starts a second operation.
func (l *log) follow(b *plan.Builder, typ model.OperationType) {
	l.t.Helper()
	g, err := b.Build()
	if err != nil {
		l.t.Fatal(err)
	}
	cl, _ := l.machine.View().Cluster("one", "00000001")
	next := *cl
	next.Operation, next.Operations = "00000001-002", 2
	op := model.Operation{ID: next.Operation, Tenant: "one", Cluster: cl.ID, Type: typ}
	l.must(&pb.Command{Tenant: "one", Change: &pb.Command_StartOperation{StartOperation: &pb.StartOperation{Operation: logtest.Operation(op),
		Cluster: logtest.Cluster(next), ClusterVersion: cl.Version, Graph: g.Encode()}}})
}

// works makes tasks of nothing but their names.
type works struct{}

func (works) Task(_ *state.View, op *model.Operation, s *plan.State, u uint32) (*pb.Task, error) {
	return &pb.Task{Id: string(model.OperationID(op.ID).Task(u)), Operation: op.ID, Action: s.Graph.Action[u].String()}, nil
}

func (works) Needs(*state.View, *model.Operation, *plan.Graph, uint32) dispatch.Needs {
	return dispatch.Needs{}
}

// conn is a worker's end of a connection: it keeps the messages that it receives.
type conn struct {
	mu     sync.Mutex
	tasks  []*pb.Task
	saved  uint64
	beats  int // heartbeats that were answered
	closed bool

	confirmed []*pb.Verdict
}

func (c *conn) Send(m *pb.LeaderMessage) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tasks = append(c.tasks, m.Tasks...)
	c.confirmed = append(c.confirmed, m.Confirmed...)
	c.saved = max(c.saved, m.Saved)
	if m.Heartbeat > 0 {
		c.beats++
	}
	return !c.closed
}

func (c *conn) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}

// all returns the tasks that were sent.
func (c *conn) all() []*pb.Task {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.tasks)
}

// heard reports whether a result was confirmed.
func (c *conn) heard(r *pb.Result) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.confirmed, func(v *pb.Verdict) bool { return v.Task == r.Task && v.Fence == r.Fence })
}

// stored returns the number up to which values are stored.
func (c *conn) stored() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.saved
}

func (c *conn) got() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.tasks)
}

func (l *log) dispatcher() (d *dispatch.Dispatcher, end func()) {
	l.t.Helper()
	return l.dispatcherOf(dispatch.Config{Propose: l.propose, Tasks: works{}})
}

// dispatcherOf runs a dispatcher with the configuration's own tasks and way to the log.
func (l *log) dispatcherOf(cfg dispatch.Config) (d *dispatch.Dispatcher, end func()) {
	l.t.Helper()
	cfg.Machine, cfg.Logger, cfg.Jitter = l.machine, slog.New(slog.DiscardHandler), func() float64 { return 0 }
	d = dispatch.New(cfg)
	if err := d.Restore(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	synctest.Wait()
	return d, func() { cancel(); <-done }
}

// Tasks of one node come one after the other, with one entry each: what waits
// for the node is not offered to the log.
func TestTasksOfOneNodeTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog(t)
		l.begin(5)
		d, end := l.dispatcher()
		defer end()
		c := &conn{}
		if err := d.Open(t.Context(), "s", &pb.Hello{Agent: "a", Slots: 8}, c); err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			time.Sleep(time.Second)
			if got := c.got(); got != i+1 {
				t.Fatalf("%d tasks were sent, want %d", got, i+1)
			}
			task := c.tasks[i]
			d.Report(t.Context(), "s", []*pb.Result{{Task: task.Id, Fence: task.Fence, Outcome: pb.Outcome_OUTCOME_SUCCEEDED}})
			d.Hear("s", 1, false)
		}
		synctest.Wait()
		if op, _ := l.machine.View().Operation("", "00000001-001"); op.Status != model.OpSucceeded {
			t.Errorf("the operation is %s", op.Status)
		}
		if l.leases != 5 {
			t.Errorf("%d entries with leases for 5 tasks", l.leases)
		}
	})
}

// A log that refuses at once is asked again after a pause, and a session that
// the state has dropped gets nothing more.
func TestRefusalsDoNotSpin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog(t)
		l.begin(1)
		d, end := l.dispatcher()
		defer end()
		c := &conn{}
		open := func() {
			hello := &pb.Hello{Agent: "a", Slots: 8, Incarnation: uint64(time.Now().UnixMilli())}
			if err := d.Open(t.Context(), fmt.Sprint("s", time.Now().UnixNano()), hello, c); err != nil {
				t.Fatal(err)
			}
		}
		l.mu.Lock()
		l.broken = errors.New("no quorum")
		l.mu.Unlock()
		if err := d.Open(t.Context(), "early", &pb.Hello{Agent: "a", Slots: 8}, c); err == nil {
			t.Fatal("a session began without the log")
		}
		l.mu.Lock()
		l.broken = nil
		l.mu.Unlock()
		open()
		synctest.Wait()
		if c.got() != 1 {
			t.Fatalf("%d tasks", c.got())
		}
		task := c.tasks[0]
		d.Report(t.Context(), "", []*pb.Result{{Task: task.Id, Fence: task.Fence, Outcome: pb.Outcome_OUTCOME_RETRYABLE}})
		l.mu.Lock()
		l.broken, l.asked = errors.New("no quorum"), 0
		l.mu.Unlock()
		time.Sleep(2 * time.Second)
		l.mu.Lock()
		if l.asked == 0 || l.asked > 100 {
			t.Errorf("the log was asked %d times within 2 s", l.asked)
		}
		l.broken = nil
		l.mu.Unlock()
		l.must(&pb.Command{Change: &pb.Command_RemoveAgent{RemoveAgent: &pb.RemoveAgent{Id: "a"}}})
		synctest.Wait()
		l.leases = 0
		time.Sleep(2 * time.Second)
		if !c.closed || l.leases > 1 {
			t.Errorf("the session that was dropped is closed: %t; entries with leases since: %d", c.closed, l.leases)
		}
		c = &conn{}
		open()
		time.Sleep(2 * time.Second)
		if c.got() != 1 {
			t.Errorf("the agent came back and got %d tasks", c.got())
		}
	})
}

// A worker whose hello arrives at the end of a term gets an error.
func TestHelloAtTheEndOfATerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog(t)
		d, end := l.dispatcher()
		slow := make(chan struct{})
		late := dispatch.New(dispatch.Config{Machine: l.machine, Tasks: works{}, Logger: slog.New(slog.DiscardHandler),
			Propose: func(ctx context.Context, cs ...*pb.Command) ([]state.Answer, error) {
				<-slow
				return l.propose(ctx, cs...)
			}})
		ctx, cancel := context.WithCancel(context.Background())
		over := make(chan error, 1)
		go func() { over <- late.Run(ctx) }()
		said := make(chan error, 1)
		go func() { said <- late.Open(t.Context(), "s", &pb.Hello{Agent: "a"}, &conn{}) }()
		synctest.Wait()
		cancel()
		<-over
		close(slow)
		if err := <-said; !errors.Is(err, dispatch.ErrOver) {
			t.Error(err)
		}
		end()
		if err := d.Open(t.Context(), "t", &pb.Hello{Agent: "b"}, &conn{}); !errors.Is(err, dispatch.ErrOver) {
			t.Error(err)
		}
	})
}
