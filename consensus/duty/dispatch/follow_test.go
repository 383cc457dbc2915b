package dispatch_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
)

func succeeded(t *pb.Task) *pb.Result {
	return &pb.Result{Task: t.Id, Fence: t.Fence, Outcome: pb.Outcome_OUTCOME_SUCCEEDED}
}

// The lease of a node's next task is in the entry of the report that frees the
// node: after the first, an entry a task.
func TestNextTaskTravelsWithTheReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog(t)
		l.begin(5)
		d, end := l.dispatcher()
		defer end()
		c := &conn{}
		if err := d.Open(t.Context(), "s", &pb.Hello{Agent: "a", Slots: 8}, c); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		before := l.index // the first lease is in the log
		for i := range 5 {
			synctest.Wait()
			if got := c.got(); got != i+1 {
				t.Fatalf("%d tasks were sent, want %d", got, i+1)
			}
			d.ReportSoon("s", []*pb.Result{succeeded(c.tasks[i])})
		}
		synctest.Wait()
		if op, _ := l.machine.View().Operation("", "00000001-001"); op.Status != model.OpSucceeded {
			t.Errorf("the operation is %s", op.Status)
		}
		if got := l.index - before; got != 5 {
			t.Errorf("%d entries for 5 tasks, and %d with leases", got, l.leases)
		}
	})
}

// A node's output led the agents elsewhere: what an automator's task may not set fails the task, even
// if the agent that reports it does not check.
func TestForbiddenOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog(t)
		l.begin(1)
		d, end := l.dispatcher()
		defer end()
		c := &conn{}
		if err := d.Open(t.Context(), "s", &pb.Hello{Agent: "a", Slots: 8}, c); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		r := succeeded(c.tasks[0])
		r.Output = []byte(`{"ipaddresses":{"access_v4":"127.0.0.1"},"result":{"transport":"local","providerid":"/"}}`)
		d.ReportSoon("s", []*pb.Result{r})
		synctest.Wait()
		v := l.machine.View()
		if n, _ := v.Node("one", "00000001-1000"); len(n.Results)+len(n.IPAddresses) > 0 {
			t.Errorf("the node has %v and %v", n.Results, n.IPAddresses)
		}
		p, _ := v.Plan("00000001-001")
		n := p.Note(0)
		if p.Status(0) != model.TaskFailed || n == nil ||
			!strings.Contains(n.History[len(n.History)-1].Message, "only the provider") {
			t.Errorf("the task is %s: %+v", p.Status(0), n)
		}
	})
}

// A report that is lost takes the next task's lease with it, and frees nothing:
// the node stays its task's until the report has come again.
func TestLostReportFreesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog(t)
		l.begin(3)
		d, end := l.dispatcher()
		defer end()
		c := &conn{}
		if err := d.Open(t.Context(), "s", &pb.Hello{Agent: "a", Slots: 4}, c); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		l.mu.Lock()
		l.broken = errors.New("no quorum")
		l.mu.Unlock()
		d.ReportSoon("s", []*pb.Result{succeeded(c.tasks[0])})
		synctest.Wait()
		l.mu.Lock()
		l.broken = nil
		leases := l.leases
		l.mu.Unlock()
		time.Sleep(time.Second)
		if l.leases != leases || c.got() != 1 {
			t.Fatalf("%d entries with leases more, %d tasks sent, while the first task has not ended", l.leases-leases, c.got())
		}
		// The worker comes back with the leases that it holds.
		first := c.tasks[0]
		if err := d.Open(t.Context(), "again", &pb.Hello{Agent: "a", Slots: 4,
			Held: []*pb.Held{{Task: first.Id, Fence: first.Fence, Result: succeeded(first)}}}, c); err != nil {
			t.Fatal(err)
		}
		for i := 1; i < 3; i++ {
			synctest.Wait()
			if c.got() != i+1 {
				t.Fatal(fmt.Sprint(c.got(), " tasks were sent, want ", i+1))
			}
			d.ReportSoon("again", []*pb.Result{succeeded(c.tasks[i])})
		}
		synctest.Wait()
		if op, _ := l.machine.View().Operation("", "00000001-001"); op.Status != model.OpSucceeded {
			t.Errorf("the operation is %s", op.Status)
		}
	})
}

// If the log has an order of which the dispatcher does not know yet, the order prevents the lease
// of the next task. When the order is taken back, the task is leased.
func TestNextTaskWaitsForAnOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog(t)
		l.begin(2)
		d, end := l.dispatcher()
		defer end()
		c := &conn{}
		if err := d.Open(t.Context(), "s", &pb.Hello{Agent: "a", Slots: 8}, c); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		order := func(what string) {
			l.must(&pb.Command{Tenant: "one", Change: &pb.Command_ControlOperation{ControlOperation: &pb.ControlOperation{Operation: "00000001-001",
				Order: logformat.OperationOrders.Number(what)}}})
		}
		l.first = func() { order("pause") } // between the choice and the entry
		d.ReportSoon("s", []*pb.Result{succeeded(c.tasks[0])})
		synctest.Wait()
		if c.got() != 1 || l.leases != 2 {
			t.Fatalf("%d tasks were sent, %d entries had leases; the second was to be refused", c.got(), l.leases)
		}
		time.Sleep(time.Second)
		if c.got() != 1 {
			t.Fatal("the next task was sent although the operation is paused")
		}
		order("resume")
		synctest.Wait()
		if c.got() != 2 {
			t.Fatalf("%d tasks were sent after the operation went on, want 2", c.got())
		}
		d.ReportSoon("s", []*pb.Result{succeeded(c.tasks[1])})
		synctest.Wait()
		if op, _ := l.machine.View().Operation("", "00000001-001"); op.Status != model.OpSucceeded {
			t.Errorf("the operation is %s", op.Status)
		}
	})
}
