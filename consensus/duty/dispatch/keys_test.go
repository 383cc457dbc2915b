package dispatch_test

import (
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
