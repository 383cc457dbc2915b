package dispatch_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/consensus/duty/dispatch"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	pb "github.com/coopr/coopr/rpc/proto"
)

// A dead agent's leases go to another one although no term lasts long enough to see its
// silence. The lease of an agent that returns in every term stays its own.
func TestSilenceOutlivesTerms(t *testing.T) {
	for _, lives := range []bool{false, true} {
		t.Run(fmt.Sprint("the agent lives: ", lives), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLog(t)
				l.term = 1
				l.begin(1)
				d, end := l.dispatcher()
				a, b := &conn{}, &conn{}
				if err := d.Open(t.Context(), "a1", &pb.Hello{Agent: "a", Slots: 1}, a); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if a.got() != 1 {
					t.Fatal("the task was not leased")
				}
				task := a.all()[0]
				for term := uint64(2); term < 12; term++ {
					time.Sleep(2 * time.Second)
					end()
					l.term = term
					d, end = l.dispatcher()
					if err := d.Open(t.Context(), fmt.Sprint("b", term), &pb.Hello{Agent: "b", Slots: 1}, b); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Second)
					if lives {
						hello := &pb.Hello{Agent: "a", Slots: 1, Held: []*pb.Held{{Task: task.Id, Fence: task.Fence, Started: true}}}
						if err := d.Open(t.Context(), fmt.Sprint("a", term), hello, a); err != nil {
							t.Fatal(err)
						}
					}
				}
				synctest.Wait()
				end()
				if sent := b.got(); (sent > 0) == lives {
					t.Errorf("%d tasks were sent to the other agent", sent)
				}
				if p, _ := l.machine.View().Plan("00000001-001"); lives && p.Fence(0) != task.Fence {
					t.Errorf("the lease was taken from the agent, the task is %s", p.Status(0))
				}
			})
		})
	}
}

// slow makes the leader sleep.
type slow struct {
	works
	mu    sync.Mutex
	sleep time.Duration // once
}

func (s *slow) Needs(v *state.View, op *model.Operation, g *plan.Graph, u uint32) dispatch.Needs {
	s.mu.Lock()
	pause := s.sleep
	s.sleep = 0
	s.mu.Unlock()
	time.Sleep(pause)
	return s.works.Needs(v, op, g, u)
}

// A leader that was asleep hears the workers first that spoke in the meantime, or speak when it
// is there again.
func TestSleepOfTheLeaderIsNoSilence(t *testing.T) {
	for _, meantime := range []bool{false, true} {
		for i := range 10 {
			t.Run(fmt.Sprint("in the meantime: ", meantime, " ", i), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := newLog(t)
					l.begin(1)
					asleep := &slow{}
					d, end := l.dispatcherOf(dispatch.Config{Propose: l.propose, Tasks: asleep})
					defer end()
					asleep.mu.Lock()
					asleep.sleep = 8 * time.Second
					asleep.mu.Unlock()
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					c := &conn{}
					opened := make(chan error, 1)
					go func() { opened <- d.Open(ctx, "s", &pb.Hello{Agent: "a", Slots: 1}, c) }()
					if err := <-opened; err != nil {
						t.Fatal(err)
					}
					for i := range 20 {
						time.Sleep(time.Second)
						if meantime && i < 7 || i > 8 {
							d.Hear("s", uint64(i), false)
						}
					}
					if _, ok := l.machine.View().Session("s"); !ok {
						t.Error("the session was ended")
					}
				})
			})
		}
	}
}

// The end of a silent session may be committed long after its proposal failed. Until then the leader does
// not answer the worker, which would begin tasks in a session that may end at any time, and makes the
// worker send another hello.
func TestEndThatIsCommittedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog(t)
		d, end := l.dispatcherOf(dispatch.Config{Tasks: works{}, Propose: func(ctx context.Context, cs ...*pb.Command) ([]state.Answer, error) {
			if cs[0].GetEndSession() != nil {
				return l.late(20*time.Second, cs...)
			}
			return l.propose(ctx, cs...)
		}})
		defer end()
		c := &conn{}
		if err := d.Open(t.Context(), "s", &pb.Hello{Agent: "a", Slots: 1}, c); err != nil {
			t.Fatal(err)
		}
		time.Sleep(8 * time.Second) // its end is proposed, and not committed
		d.Hear("s", 7, false)
		synctest.Wait()
		if c.mu.Lock(); c.beats > 0 || !c.closed {
			t.Errorf("%d heartbeats were answered, the connection is closed: %t", c.beats, c.closed)
		}
		c.mu.Unlock()
		d.Gone("s", c)
		if err := d.Open(t.Context(), "again", &pb.Hello{Agent: "a", Slots: 1}, &conn{}); err != nil {
			t.Fatal(err)
		}
		for range 30 {
			time.Sleep(time.Second)
			d.Hear("again", 1, false)
		}
		if _, ok := l.machine.View().Session("again"); !ok {
			t.Error("the agent's next session has ended")
		}
	})
}

// An agent that is leaving and loses its connection goes on with its tasks for a while. They stay its own
// for the TTL.
func TestLeavingAgentLosesItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog(t)
		l.begin(1)
		d, end := l.dispatcher()
		defer end()
		a, b := &conn{}, &conn{}
		if err := d.Open(t.Context(), "s", &pb.Hello{Agent: "a", Slots: 1}, a); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := d.Open(t.Context(), "r", &pb.Hello{Agent: "b", Slots: 1}, b); err != nil {
			t.Fatal(err)
		}
		d.Hear("s", 1, true)
		d.Gone("s", a)
		for i := range 12 {
			time.Sleep(time.Second)
			d.Hear("r", 1, false)
			if i == 3 && b.got() > 0 {
				t.Error("the task was given away while its worker may still work on it")
			}
		}
		if a.got() != 1 || b.got() != 1 {
			t.Errorf("%d and %d tasks were sent", a.got(), b.got())
		}
	})
}
