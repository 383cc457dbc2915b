package worker

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/host"
	pb "github.com/coopr/coopr/rpc/proto"
)

// patient is a node whose health a test sets.
type patient struct {
	mu      sync.Mutex
	sick    bool
	machine pb.Outcome // of the question about the machine
	there   bool
	checked int
	last    *pb.Task
	running int
	most    int
	takes   time.Duration
}

func (p *patient) Types() []host.Type { return nil }

func (p *patient) Execute(ctx context.Context, t *pb.Task, _ host.Sink) *pb.Result {
	p.mu.Lock()
	p.checked++
	p.last = t
	p.running++
	p.most = max(p.most, p.running)
	sick, machine, there, takes := p.sick, p.machine, p.there, p.takes
	p.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-time.After(takes):
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running--
	switch {
	case ctx.Err() != nil:
		return &pb.Result{Outcome: pb.Outcome_OUTCOME_CANCELLED}
	case !t.Automator:
		return &pb.Result{Outcome: machine, Adopted: there}
	case sick:
		return &pb.Result{Outcome: pb.Outcome_OUTCOME_RETRYABLE, Message: "no", LogTail: "first\nlast\n"}
	}
	return &pb.Result{Outcome: pb.Outcome_OUTCOME_SUCCEEDED}
}

func (p *patient) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

// ward runs checks in simulated time and records their reports.
type ward struct {
	*checks
	patient *patient
	mu      sync.Mutex
	wanted  []string
	said    []string
	touch   bool
}

func newWard(t *testing.T) *ward {
	w := &ward{patient: &patient{machine: pb.Outcome_OUTCOME_SUCCEEDED, there: true}, touch: true}
	w.checks = newChecks(w.patient, func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.touch }, func(key string, h *pb.Health) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if key != "" {
			w.wanted = append(w.wanted, key)
		}
		if h != nil {
			w.said = append(w.said, fmt.Sprintf("%s@%d %t %d %s", h.Key, h.NodeVersion, h.Healthy, h.Machine, h.Message))
		}
	})
	t.Cleanup(w.close)
	return w
}

// hears waits and returns the reports that came meanwhile.
func (w *ward) hears(d time.Duration) []string {
	time.Sleep(d)
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.said
	w.said = nil
	return out
}

func head(version, node uint64, known string) *pb.Watch {
	return &pb.Watch{Key: "n/s", Version: version, NodeVersion: node, Known: known, IntervalMs: 30_000, GraceMs: 10_000, Failures: 3}
}

func full(version, node uint64, known string) *pb.Watch {
	h := head(version, node, known)
	h.Check = &pb.Task{Id: "check/n/s", Automator: true, Action: model.Check.String(), TimeoutMs: 20_000}
	h.Machine = &pb.Task{Id: "check/n/s/machine", Action: model.Check.String(), TimeoutMs: 20_000}
	return h
}

func watches(ws ...*pb.Watch) *pb.LeaderMessage { return &pb.LeaderMessage{Watches: ws} }

func TestChecksSayOnlyWhatIsNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWard(t)
		w.take(watches(head(1, 7, "")))
		if got := w.hears(time.Minute); len(got) != 0 || !slices.Equal(w.wanted, []string{"n/s"}) || w.patient.checked != 0 {
			t.Fatalf("without its task: said %v, wants %v, %d checked", got, w.wanted, w.patient.checked)
		}
		w.take(watches(full(1, 7, "")))
		want := func(when string, d time.Duration, want ...string) {
			t.Helper()
			if got := w.hears(d); !slices.Equal(got, want) {
				t.Fatalf("%s: %q, not %q", when, got, want)
			}
		}
		want("first", time.Minute, "n/s@7 true 1 ")
		want("for an hour", time.Hour)
		w.patient.set(func() { w.patient.sick = true })
		want("two failures", 59*time.Second)
		want("a third", 32*time.Second, "n/s@7 false 1 no: last")
		want("it stays so", time.Hour)
		w.take(watches(head(1, 7, "healthy"))) // the leader did not get it into the log
		want("said again", time.Second, "n/s@7 false 0 ")
		w.patient.set(func() { w.patient.sick = false })
		want("well again", time.Minute, "n/s@7 true 1 ")
		if checked := w.patient.checked; checked < 200 || checked > 450 {
			t.Errorf("%d checked in more than two hours", checked)
		}
		// A new version of the node starts its checks from the beginning. A known result is not reported
		// again.
		w.take(watches(head(2, 8, "healthy")))
		want("asks again", time.Minute)
		w.take(watches(full(2, 8, "healthy")))
		want("still well", time.Hour)
		w.take(&pb.LeaderMessage{Unwatch: []string{"n/s"}})
		checked := w.patient.checked
		want("watched no more", time.Hour)
		if w.patient.checked != checked {
			t.Error("the service was checked all the same")
		}
	})
}

func TestChecksTellAMachineThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWard(t)
		w.take(watches(full(1, 1, "healthy")))
		w.hears(time.Minute)
		w.patient.set(func() { w.patient.sick, w.patient.machine = true, pb.Outcome_OUTCOME_FATAL })
		if got := w.hears(time.Hour); len(got) != 1 || got[0] != "n/s@1 false 0 no: last" {
			t.Fatalf("a provider that cannot tell: %q", got)
		}
		w.patient.set(func() { w.patient.machine, w.patient.there = pb.Outcome_OUTCOME_SUCCEEDED, false })
		if got := w.hears(2 * time.Minute); len(got) != 1 || got[0] != "n/s@1 false 2 no: last" {
			t.Fatalf("gone: %q", got)
		}
		w.patient.set(func() { w.patient.sick, w.patient.there = false, true })
		if got := w.hears(2 * time.Minute); len(got) != 1 || got[0] != "n/s@1 true 1 " {
			t.Fatalf("back: %q", got)
		}
	})
}

// A worker that is out of touch reports nothing and checks nothing: another may have its watches.
func TestChecksOutOfTouch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWard(t)
		w.take(watches(full(1, 1, "healthy")))
		w.hears(time.Minute)
		w.mu.Lock()
		w.touch = false
		w.mu.Unlock()
		w.patient.set(func() { w.patient.sick = true })
		checked := w.patient.checked
		if got := w.hears(time.Hour); len(got) != 0 || w.patient.checked != checked {
			t.Fatalf("reported %q after %d checks", got, w.patient.checked-checked)
		}
		w.mu.Lock()
		w.touch = true
		w.mu.Unlock()
		if got := w.hears(3 * time.Minute); len(got) != 1 {
			t.Fatalf("in touch again: %q", got)
		}
		// A new leader sends all its watches; the worker drops all others.
		w.take(&pb.LeaderMessage{WatchAnew: true})
		checked = w.patient.checked
		if w.hears(time.Hour); w.patient.checked != checked {
			t.Error("it watches what nobody wants watched")
		}
	})
}

func TestChecksAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWard(t)
		w.patient.takes = 10 * time.Second
		for i := range 500 {
			f := full(1, 1, "healthy")
			f.Key = fmt.Sprint("n", i, "/s")
			w.take(watches(f))
		}
		w.hears(10 * time.Minute)
		if w.patient.most != checksAtOnce {
			t.Errorf("%d at once", w.patient.most)
		}
	})
}

// TestChecksAreTheirTasks checks that a check has every field of its task, the resources and
// the mesh's name too; only fence and attempt are its own.
func TestChecksAreTheirTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWard(t)
		given := &pb.Task{Id: "check/n/s", Automator: true, Tenant: "t", Mesh: "m", Cluster: "c", Operation: "check", Node: "n",
			Action: model.Check.String(), Service: "s", Plugin: "p", TimeoutMs: 20_000, Input: []byte("{}"), Resources: 7}
		h := full(1, 7, "")
		h.Check = given
		w.take(watches(h))
		w.hears(time.Minute)
		got := proto.CloneOf(w.patient.last)
		if got.Fence == 0 || got.Attempt != 1 {
			t.Errorf("fence %d, attempt %d", got.Fence, got.Attempt)
		}
		if got.Fence, got.Attempt = 0, 0; !proto.Equal(got, given) {
			t.Errorf("the task %v was checked as\n%v", given, got)
		}
	})
}
