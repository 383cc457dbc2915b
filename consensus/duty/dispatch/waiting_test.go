package dispatch_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
)

// TestWaiting expects that tasks wait until they are leased, that those of a paused operation do not count, and that nobody
// hears of tasks after the term.
func TestWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog(t)
		l.begin(3)
		begin := time.Now()
		d, end := l.dispatcher()
		w := d.Waiting(t.Context())
		if len(w) != 1 || w[0].Tenant != "one" || w[0].Tasks != 3 || !w[0].Oldest.Equal(begin) {
			t.Errorf("before there is a worker: %+v", w)
		}
		if err := d.Open(t.Context(), "a1", &pb.Hello{Agent: "a", Slots: 1}, &conn{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if w := d.Waiting(t.Context()); len(w) != 1 || w[0].Tasks != 2 || !w[0].Oldest.Equal(begin) {
			t.Errorf("after one was leased: %+v", w)
		}
		l.must(&pb.Command{Tenant: "one", Actor: "ann", Change: &pb.Command_ControlOperation{ControlOperation: &pb.ControlOperation{
			Operation: "00000001-001", Order: pb.OperationOrder_OPERATION_ORDER_PAUSE}}})
		synctest.Wait()
		if op, _ := l.machine.View().Operation("one", "00000001-001"); op.Status != model.OpPaused {
			t.Fatal(op.Status)
		}
		if w := d.Waiting(t.Context()); len(w) != 0 {
			t.Errorf("while the operation is paused: %+v", w)
		}
		end()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if w := d.Waiting(ctx); len(w) != 0 {
			t.Errorf("after the term: %+v", w)
		}
	})
}
