package dispatch_test

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/consensus/duty/dispatch"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/lease"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/doubles/logtest"
)

// late proposes commands whose caller has left: the caller gets an error at once, and the
// entry is committed later.
func (l *log) late(after time.Duration, cs ...*pb.Command) ([]state.Answer, error) {
	time.AfterFunc(after, func() { _, _ = l.propose(context.Background(), cs...) })
	return nil, context.Canceled
}

// starting returns an operation of one task, with the command that starts it.
func starting(t *testing.T) (*model.Operation, *plan.Graph, *pb.StartOperation) {
	t.Helper()
	b := plan.NewBuilder([]string{"00000001-1000"}, []string{"s"})
	b.Task(model.Install, 0, 0)
	g, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	op := model.Operation{ID: "00000001-001", Tenant: "one", Cluster: "00000001", Type: model.OpCreate}
	return &op, g, &pb.StartOperation{Operation: logtest.Operation(op), Graph: g.Encode(),
		Cluster: logtest.Cluster(model.Cluster{ID: "00000001", Tenant: "one", Name: "a", Operation: op.ID, Operations: 1}),
		Nodes:   logtest.Nodes(model.Node{ID: "00000001-1000", Cluster: "00000001", Tenant: "one", Number: 1000})}
}

// A worker gets the first leases of an operation also when the client has left while the
// start was on its way: before the start is committed, or after.
func TestFirstLeasesOfAClientThatLeft(t *testing.T) {
	for name, after := range map[string]time.Duration{"soon": 5 * time.Millisecond, "late": time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLog(t)
				l.must(&pb.Command{Change: &pb.Command_PutTenant{PutTenant: &pb.PutTenant{Tenant: logtest.Tenant(model.Tenant{Name: "one"})}}})
				d, end := l.dispatcher()
				defer end()
				c := &conn{}
				if err := d.Open(t.Context(), "s", &pb.Hello{Agent: "a", Slots: 8}, c); err != nil {
					t.Fatal(err)
				}
				op, g, start := starting(t)
				first, done := d.First(t.Context(), op, g, func(uint32) dispatch.Needs { return dispatch.Needs{} })
				if start.Lease = first; first == nil {
					t.Fatal("no worker was chosen")
				}
				_, err := l.late(after, &pb.Command{Tenant: "one", Change: &pb.Command_StartOperation{StartOperation: start}})
				if done(); err == nil {
					t.Fatal("the client did not leave")
				}
				for range 120 {
					time.Sleep(time.Second)
					d.Hear("s", 1, false)
				}
				if c.got() != 1 {
					t.Errorf("%d tasks were sent", c.got())
				}
				if p, _ := l.machine.View().Plan(op.ID); p.Status(0) != model.TaskLeased {
					t.Errorf("the task is %s", p.Status(0))
				}
			})
		})
	}
}

// Leases whose proposal failed are sent when they are committed after all, however late.
func TestLeasesThatAreCommittedLate(t *testing.T) {
	for name, after := range map[string]time.Duration{"soon": 5 * time.Millisecond, "late": 150 * time.Millisecond, "last": 3 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLog(t)
				l.begin(1)
				var failed atomic.Int64
				d, end := l.dispatcherOf(dispatch.Config{Tasks: works{}, Propose: func(ctx context.Context, cs ...*pb.Command) ([]state.Answer, error) {
					for _, c := range cs {
						if c.GetLease() != nil && failed.Add(1) == 1 {
							return l.late(after, cs...)
						}
					}
					return l.propose(ctx, cs...)
				}})
				defer end()
				c := &conn{}
				if err := d.Open(t.Context(), "s", &pb.Hello{Agent: "a", Slots: 2}, c); err != nil {
					t.Fatal(err)
				}
				for range 60 {
					time.Sleep(time.Second)
					d.Hear("s", 1, false)
					var results []*pb.Result
					for _, task := range c.all() {
						results = append(results, succeeded(task))
					}
					d.Report(t.Context(), "s", results)
				}
				if op, _ := l.machine.View().Operation("", "00000001-001"); op.Status != model.OpSucceeded {
					t.Errorf("the operation is %s, %d tasks were sent", op.Status, c.got())
				}
			})
		})
	}
}

// broken makes no task.
type broken struct{ works }

func (broken) Task(*state.View, *model.Operation, *plan.State, uint32) (*pb.Task, error) {
	return nil, errors.New("a secret is not there")
}

// A task that cannot be made fails, also when the log refuses to hear of it for a while.
func TestTaskThatCannotBeMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog(t)
		l.begin(1)
		var refused atomic.Int64
		d, end := l.dispatcherOf(dispatch.Config{Tasks: broken{}, Propose: func(ctx context.Context, cs ...*pb.Command) ([]state.Answer, error) {
			if cs[0].GetReport() != nil && refused.Add(1) <= 20 {
				return nil, errors.New("too many commands are waiting for the log")
			}
			return l.propose(ctx, cs...)
		}})
		defer end()
		c := &conn{}
		if err := d.Open(t.Context(), "s", &pb.Hello{Agent: "a", Slots: 8}, c); err != nil {
			t.Fatal(err)
		}
		for range 60 {
			time.Sleep(time.Second)
			d.Hear("s", 1, false)
		}
		if op, _ := l.machine.View().Operation("", "00000001-001"); !op.Status.Ended() && op.Status != model.OpPaused {
			p, _ := l.machine.View().Plan(op.ID)
			t.Errorf("the operation is %s, its task %s; the log refused %d times", op.Status, p.Status(0), refused.Load())
		}
		if c.got() != 0 {
			t.Errorf("%d tasks were sent", c.got())
		}
	})
}

// The leases of an agent that died while its session was being committed go to another agent.
func TestAgentThatDiesDuringItsHello(t *testing.T) {
	for name, after := range map[string]time.Duration{"soon": 5 * time.Millisecond, "late": 4 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLog(t)
				l.begin(1)
				d, end := l.dispatcherOf(dispatch.Config{Tasks: works{}, Propose: func(ctx context.Context, cs ...*pb.Command) ([]state.Answer, error) {
					if o := cs[0].GetOpenSession(); o != nil && o.Session == "again" {
						return l.late(after, cs...)
					}
					return l.propose(ctx, cs...)
				}})
				defer end()
				a, b := &conn{}, &conn{}
				if err := d.Open(t.Context(), "s", &pb.Hello{Agent: "a", Slots: 1}, a); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if a.got() != 1 {
					t.Fatal("the task was not leased")
				}
				// The agent comes back with its task, and dies.
				d.Gone("s", a)
				task := a.all()[0]
				hello := &pb.Hello{Agent: "a", Slots: 1, Held: []*pb.Held{{Task: task.Id, Fence: task.Fence, Started: true}}}
				if err := d.Open(t.Context(), "again", hello, &conn{}); err == nil {
					t.Fatal("the agent did not die")
				}
				if err := d.Open(t.Context(), "r", &pb.Hello{Agent: "b", Slots: 1}, b); err != nil {
					t.Fatal(err)
				}
				for range 30 {
					time.Sleep(time.Second)
					d.Hear("r", 1, false)
				}
				if b.got() != 1 {
					t.Errorf("%d tasks were sent to the other agent", b.got())
				}
				if n := len(l.machine.View().Sessions()); n != 1 {
					t.Errorf("%d sessions are left", n)
				}
			})
		})
	}
}

// After the restore of a snapshot each worker sends its leases again: the snapshot may have a
// lease that the worker has ended since.
func TestRestoreAsksWhatWorkersHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog(t)
		l.begin(1)
		d, end := l.dispatcher()
		defer end()
		c := &conn{}
		if err := d.Open(t.Context(), "s", &pb.Hello{Agent: "a", Slots: 1}, c); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		s, err := l.machine.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		var snapshot sink
		if err := s.Persist(&snapshot); err != nil {
			t.Fatal(err)
		}
		s.Release()
		d.Report(t.Context(), "s", []*pb.Result{succeeded(c.all()[0])})
		if err := l.machine.Restore(io.NopCloser(&snapshot.Buffer)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if c.mu.Lock(); !c.closed {
			t.Error("the worker was not asked what it holds")
		}
		c.mu.Unlock()
		d.Gone("s", c)
		again := &conn{}
		if err := d.Open(t.Context(), "again", &pb.Hello{Agent: "a", Slots: 1}, again); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if again.got() != 1 {
			t.Fatalf("%d tasks were sent", again.got())
		}
		d.Report(t.Context(), "again", []*pb.Result{succeeded(again.all()[0])})
		if op, _ := l.machine.View().Operation("", "00000001-001"); op.Status != model.OpSucceeded {
			t.Errorf("the operation is %s", op.Status)
		}
	})
}

// A task whose result is committed late frees its node then, also if its agent has died: the next task of the
// node does not wait for the end of the session.
func TestReportThatIsCommittedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog(t)
		l.begin(2)
		hour := lease.Timing{TTL: time.Hour}
		d, end := l.dispatcherOf(dispatch.Config{Tasks: works{}, Timing: hour, Propose: func(
			ctx context.Context, cs ...*pb.Command) ([]state.Answer, error) {
			if cs[0].GetReport() != nil {
				return l.late(time.Second, cs...)
			}
			return l.propose(ctx, cs...)
		}})
		defer end()
		a, b := &conn{}, &conn{}
		if err := d.Open(t.Context(), "s", &pb.Hello{Agent: "a", Slots: 1}, a); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		d.Report(t.Context(), "s", []*pb.Result{succeeded(a.all()[0])})
		d.Gone("s", a)
		if err := d.Open(t.Context(), "r", &pb.Hello{Agent: "b", Slots: 1}, b); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if b.got() != 0 {
			t.Fatal("the node's next task was sent before the first one ended")
		}
		time.Sleep(2 * time.Second)
		if b.got() != 1 {
			t.Errorf("%d tasks were sent after the first one ended", b.got())
		}
	})
}

// A value that a plugin saves reaches the state even if the first attempt to send it fails and its task ends
// in the meantime: the worker repeats both the value and the result, the value first.
func TestValuesOfPlugins(t *testing.T) {
	for name, late := range map[string]bool{"lost": false, "late": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLog(t)
				l.begin(1)
				var failed atomic.Int64
				d, end := l.dispatcherOf(dispatch.Config{Tasks: works{}, Propose: func(ctx context.Context, cs ...*pb.Command) ([]state.Answer, error) {
					switch {
					case cs[0].GetSaveValue() == nil || failed.Add(1) > 1:
						return l.propose(ctx, cs...)
					case late:
						return l.late(time.Second, cs...)
					}
					return nil, errors.New("no quorum")
				}})
				defer end()
				c, again := &conn{}, &conn{}
				if err := d.Open(t.Context(), "s", &pb.Hello{Agent: "a", Slots: 1}, c); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				task := c.all()[0]
				saves := []*pb.SaveState{{Task: task.Id, Fence: task.Fence, Key: "k", Value: []byte(`"v"`)}}
				if err := d.Save(t.Context(), "s", saves, 1); err == nil || c.stored() != 0 {
					t.Fatalf("a value that was not stored was confirmed: %v", err)
				}
				d.Gone("s", c)
				if err := d.Open(t.Context(), "again", &pb.Hello{Agent: "a", Slots: 1, Saves: saves, LastSave: 1,
					Held: []*pb.Held{{Task: task.Id, Fence: task.Fence, Started: true, Result: succeeded(task)}}}, again); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Second)
				if got := string(l.machine.View().Values("00000001-1000")["k"]); got != `"v"` || again.stored() != 1 {
					t.Errorf("the value is %q, confirmed up to %d", got, again.stored())
				}
				if op, _ := l.machine.View().Operation("", "00000001-001"); op.Status != model.OpSucceeded {
					t.Errorf("the operation is %s", op.Status)
				}
				// The state refuses a value of a task that has ended. Nobody has to repeat it.
				if err := d.Save(t.Context(), "again", saves, 2); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if again.stored() != 2 {
					t.Errorf("values are confirmed up to %d", again.stored())
				}
			})
		})
	}
}
