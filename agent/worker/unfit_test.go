package worker_test

import (
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/coopr/coopr/agent/worker"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/doubles/memjournal"
)

// TestNoTasksWithoutAJournal fills the disk under a worker's journal. The worker gives the lease back, goes on with
// what runs, offers no slot until the journal can be written again, and then offers its slots.
func TestNoTasksWithoutAJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := memjournal.New()
		p, sessions, stop := run(t, j)
		first := <-sessions
		if h := first.welcome(); h.Slots != 4 {
			t.Fatalf("a well worker offers %d slots", h.Slots)
		}
		first.down <- &pb.LeaderMessage{Tasks: []*pb.Task{{Id: "op/1", Fence: 7}}}
		synctest.Wait()
		j.SetFull(syscall.ENOSPC)
		first.down <- &pb.LeaderMessage{Tasks: []*pb.Task{{Id: "op/2", Fence: 8}}}
		first.until(true, func(m *pb.WorkerMessage) bool { return len(m.Returned) == 1 && m.Returned[0].Fence == 8 })
		second := <-sessions
		if h := second.welcome(); h.Slots != 0 || len(h.Held) != 1 || h.Held[0].Fence != 7 {
			t.Errorf("with a full disk it says: %v", h)
		}
		j.SetFull(nil)
		go second.until(true, func(*pb.WorkerMessage) bool { return false })
		third := <-sessions
		close(second.up)
		if h := third.welcome(); h.Slots != 4 || len(h.Held) != 1 {
			t.Errorf("with room on the disk it says: %v", h)
		}
		third.down <- &pb.LeaderMessage{Tasks: []*pb.Task{{Id: "op/2", Fence: 9}}}
		synctest.Wait()
		if n := p.count(); n != 2 {
			t.Errorf("%d tasks were begun", n)
		}
		go third.until(true, func(*pb.WorkerMessage) bool { return false })
		stop()
		close(third.up)
	})
}

// TestStartWithoutAJournal starts a worker whose journal cannot be written. It offers no slot, and what the journal
// holds is reported.
func TestStartWithoutAJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := memjournal.New()
		if err := j.Put(held(1, 7, "done")); err != nil {
			t.Fatal(err)
		}
		j.SetFull(syscall.EROFS)
		_, sessions, stop := run(t, j)
		// It may begin more than one session before it knows.
		hello := func(slots uint32) (*leader, *pb.Hello) {
			for {
				l := <-sessions
				if h := l.welcome(); h.Slots == slots {
					return l, h
				}
				go l.until(true, func(*pb.WorkerMessage) bool { return false })
				t.Cleanup(func() { close(l.up) })
			}
		}
		l, h := hello(0)
		go l.until(true, func(*pb.WorkerMessage) bool { return false })
		defer close(l.up)
		if len(h.Held) != 1 || h.Held[0].Result == nil {
			t.Errorf("it says: %v", h)
		}
		j.SetFull(nil)
		last, _ := hello(4)
		last.down <- &pb.LeaderMessage{Confirmed: []*pb.Verdict{{Task: "op/1", Fence: 7}}}
		go last.until(true, func(*pb.WorkerMessage) bool { return false })
		defer close(last.up)
		synctest.Wait()
		if got := content(t, worker.Journal(j)); len(got) != 0 {
			t.Errorf("the journal still holds %q", got)
		}
		stop()
	})
}
