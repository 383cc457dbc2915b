package dispatch_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/consensus/duty/dispatch"
	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	pb "github.com/coopr/coopr/rpc/proto"
)

// locked are works of a leader without the keys of the mesh, until it has them.
type locked struct {
	works
	open  atomic.Bool
	tries atomic.Int32
}

func (l *locked) Task(v *state.View, op *model.Operation, s *plan.State, u uint32) (*pb.Task, error) {
	l.tries.Add(1)
	if !l.open.Load() {
		return nil, fmt.Errorf("provider p: %w 1", keyring.ErrNoKey)
	}
	return l.works.Task(v, op, s, u)
}

// TestTasksWaitForKeys has a leader without the keys of the mesh. Its tasks wait, no attempt fails, and the log is not written all the
// time. They go on when the leader has the keys.
func TestTasksWaitForKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog(t)
		l.begin(1)
		w := &locked{}
		d, end := l.dispatcherOf(dispatch.Config{Propose: l.propose, Tasks: w})
		defer end()
		c := &conn{}
		if err := d.Open(t.Context(), "s", &pb.Hello{Agent: "a", Slots: 8}, c); err != nil {
			t.Fatal(err)
		}
		hear := func(seconds int) {
			for range seconds {
				time.Sleep(time.Second)
				d.Hear("s", 1, false)
			}
		}
		hear(30*60 + 1)
		s, _ := l.machine.View().Plan("00000001-001")
		op, _ := l.machine.View().Operation("", "00000001-001")
		if n := s.Note(0); op.Status != model.OpRunning || n == nil || n.Failures > 0 || n.Lost > 0 {
			t.Errorf("the operation is %s, the task has %+v", op.Status, n)
		}
		if n := w.tries.Load(); n < 10 || n > 40 {
			t.Errorf("%d tries in half an hour", n)
		}
		w.open.Store(true)
		hear(90)
		if n := c.got(); n != 1 {
			t.Errorf("%d tasks were sent", n)
		}
	})
}

// TestResultsWaitForKeys has a worker that connects again and again while its result cannot be encrypted. The leader tries it at regular
// intervals, as if the worker had stayed, stores one value in the end, and confirms the result in the last session. Nothing of a lease
// that is over is encrypted.
func TestResultsWaitForKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog(t)
		l.begin(2)
		var open atomic.Bool
		var tries, stored atomic.Int32
		d, end := l.dispatcherOf(dispatch.Config{Propose: l.propose, Tasks: works{},
			Seal: func(context.Context, string, string, map[string]any) (map[string]any, error) {
				if tries.Add(1); !open.Load() {
					return nil, keyring.ErrNoKey
				}
				id := fmt.Sprint("v", stored.Add(1))
				return map[string]any{"password": model.SealedRef{ID: id, Version: 1}.String()}, nil
			}})
		defer end()
		c := &conn{}
		if err := d.Open(t.Context(), "s0", &pb.Hello{Agent: "a", Slots: 1, Incarnation: 1}, c); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		r := succeeded(c.all()[0])
		r.Output = []byte(`{"result":{"password":"canary"}}`)
		d.ReportSoon("s0", []*pb.Result{r})
		last := ""
		for i := range 12 {
			time.Sleep(time.Second)
			last = fmt.Sprint("s", i+1)
			c = &conn{}
			if err := d.Open(t.Context(), last, &pb.Hello{Agent: "a", Slots: 1, Incarnation: uint64(i + 2),
				Held: []*pb.Held{{Task: r.Task, Fence: r.Fence, Started: true, Result: r}}}, c); err != nil {
				t.Fatal(err)
			}
			d.ReportSoon(last, []*pb.Result{r})
		}
		hear := func(seconds int) {
			for range seconds {
				time.Sleep(time.Second)
				d.Hear(last, 1, false)
			}
		}
		hear(60)
		if n := tries.Load(); n < 10 || n > 16 {
			t.Errorf("%d tries in 72 seconds", n)
		}
		open.Store(true)
		hear(10)
		synctest.Wait()
		if n := stored.Load(); n != 1 {
			t.Errorf("%d values are stored for one result", n)
		}
		if !c.heard(r) {
			t.Error("the last session has no confirmation")
		}
		if p, _ := l.machine.View().Plan("00000001-001"); p.Status(0) != model.TaskSucceeded {
			t.Errorf("the task is %s", p.Status(0))
		}
		c.mu.Lock()
		c.confirmed = nil
		c.mu.Unlock()
		before := tries.Load()
		d.Report(t.Context(), last, []*pb.Result{r})
		save := &pb.SaveState{Task: r.Task, Fence: r.Fence, Key: "password", Value: []byte(`"canary"`)}
		if err := d.Save(t.Context(), last, []*pb.SaveState{save}, 1); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if tries.Load() != before || !c.heard(r) {
			t.Error("the result or a value of a lease that is over is encrypted, or it is not confirmed")
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.clear {
			t.Error("the log has a secret in the clear")
		}
	})
}
