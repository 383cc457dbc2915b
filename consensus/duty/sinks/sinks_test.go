package sinks_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/coopr/coopr/consensus/duty/sinks"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
)

// log is a state with an audit log.
type log struct {
	*state.Machine
	mu     sync.Mutex
	index  uint64
	moves  int   // entries that record how far sinks have come
	refuse error // of these entries
}

func newLog(t testing.TB) *log {
	m, err := state.New(state.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return &log{Machine: m}
}

func (l *log) apply(commands ...*pb.Command) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.index++
	b, err := proto.Marshal(&pb.Entry{Format: state.Format, FeatureLevel: state.FeatureLevel, MustUnderstand: true,
		NowMs: int64(1000 + l.index), Commands: commands})
	if err != nil {
		panic(err)
	}
	l.Apply(&raft.Log{Type: raft.LogCommand, Index: l.index, Data: b})
}

// write writes n records.
func (l *log) write(n int) {
	for range n {
		l.apply(&pb.Command{Actor: "root", Change: &pb.Command_PutTenant{PutTenant: &pb.PutTenant{Tenant: &record.Tenant{
			Name: "t", Description: fmt.Sprint(l.index)}}}})
	}
}

func (l *log) propose(_ context.Context, commands ...*pb.Command) ([]state.Answer, error) {
	if l.refuse != nil {
		return nil, l.refuse
	}
	l.moves++
	l.apply(commands...)
	return make([]state.Answer, len(commands)), nil
}

// lead begins a term.
func (l *log) lead(targets ...sinks.Target) (c *sinks.Controller, end func()) {
	c = sinks.New(sinks.Config{Machine: l.Machine, Propose: l.propose, Logger: slog.New(slog.DiscardHandler), Targets: targets})
	ctx, cancel := context.WithCancel(context.Background())
	if err := c.Restore(ctx); err != nil {
		panic(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Run(ctx)
	}()
	return c, func() { cancel(); <-done }
}

// pass lets a time pass.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// sink remembers what it takes.
type sink struct {
	mu    sync.Mutex
	took  []audit.Record
	calls int
	fault error
	hang  bool
}

func (s *sink) Deliver(ctx context.Context, records []audit.Record) error {
	s.mu.Lock()
	s.calls++
	fault, hang := s.fault, s.hang
	if fault == nil && !hang {
		s.took = append(s.took, records...)
	}
	s.mu.Unlock()
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	return fault
}

func (s *sink) breakWith(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = err
}

// seen returns how many deliveries there were, and how many records the sink took.
func (s *sink) seen() (calls, records int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls, len(s.took)
}

func target(name string, s sinks.Sink) sinks.Target {
	return sinks.Target{Name: name, Type: "webhook", Where: "https://h/", Sink: s}
}

// whole checks that a sink has every record up to the head, in order. Records may come again.
func (s *sink) whole(t *testing.T, l *log) {
	t.Helper()
	last := uint64(0)
	for _, r := range s.took {
		if r.Seq > last+1 {
			t.Fatalf("record %d comes after %d", r.Seq, last)
		}
		last = max(last, r.Seq)
	}
	if head := l.View().Audit().Stats().Head.Seq; last != head {
		t.Errorf("it has records up to %d of %d", last, head)
	}
}

// Records are delivered in order, in few deliveries, and how far that came is recorded once a second at most.
func TestDelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, a, b := newLog(t), &sink{}, &sink{}
		l.write(2500)
		c, end := l.lead(target("a", a), target("b", b))
		defer end()
		pass(5 * time.Second)
		a.whole(t, l)
		b.whole(t, l)
		if a.calls != 3 || l.moves > 2 {
			t.Errorf("%d deliveries, %d entries", a.calls, l.moves)
		}
		before := l.moves
		for range 100 {
			l.write(1)
			pass(50 * time.Millisecond)
		}
		pass(5 * time.Second)
		a.whole(t, l)
		if n := l.moves - before; n > 7 || len(a.took) != 2600 {
			t.Errorf("%d entries in 5 s, %d records", n, len(a.took))
		}
		if at := l.View().Sinks(); at["a"] != 2600 || at["b"] != 2600 {
			t.Errorf("the state has %v", at)
		}
		entries := l.index
		pass(time.Hour)
		if l.index != entries {
			t.Error("it writes although there is nothing new")
		}
		if r := c.Report(); len(r) != 2 || r[0] != (model.AuditSink{Name: "a", Type: "webhook", Target: "https://h/", Number: 2600}) {
			t.Errorf("%+v", r)
		}
	})
}

// A sink that is away for an hour loses nothing, is not asked all the time, and does not keep another one waiting.
func TestHourAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, away, well := newLog(t), &sink{fault: errors.New("away")}, &sink{}
		c, end := l.lead(target("away", away), target("well", well))
		defer end()
		for range 3600 {
			l.write(1)
			pass(time.Second)
		}
		pass(time.Second)
		well.whole(t, l)
		if away.calls > 70 {
			t.Errorf("%d attempts in an hour", away.calls)
		}
		r := c.Report()[0]
		if r.Behind != 3600 || r.Fault != "away" || r.Oldest == 0 || r.Failed == 0 {
			t.Errorf("%+v", r)
		}
		away.breakWith(nil)
		pass(2 * time.Minute)
		away.whole(t, l)
		if r := c.Report()[0]; r.Behind != 0 || r.Fault != "" || r.Failed != 0 || r.Oldest != 0 || r.Lost != 0 {
			t.Errorf("%+v", r)
		}
	})
}

// A sink that does not answer is given up after a while, and asked again.
func TestHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s := newLog(t), &sink{hang: true}
		l.write(1)
		_, end := l.lead(target("s", s))
		pass(10 * time.Minute)
		if s.calls < 5 || s.calls > 10 {
			t.Errorf("%d attempts", s.calls)
		}
		end() // which does not hang
	})
}

// Whenever a term ends, the next leader goes on without a gap, and repeats what was not recorded.
func TestTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s := newLog(t), &sink{}
		for term := range 50 {
			l.refuse = nil
			if term%3 == 0 {
				l.refuse = errors.New("no leader any more")
			}
			_, end := l.lead(target("s", s))
			for range term {
				l.write(7)
				pass(time.Duration(term*13) * time.Millisecond)
			}
			end()
		}
		l.refuse = nil
		_, end := l.lead(target("s", s))
		defer end()
		pass(10 * time.Second)
		s.whole(t, l)
	})
}

// Records that were dropped before a sink took them are counted.
func TestLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s := newLog(t), &sink{}
		c, end := l.lead(target("s", s))
		l.write(10)
		pass(3 * time.Second)
		s.breakWith(errors.New("away"))
		l.write(90)
		pass(3 * time.Second)
		l.apply(&pb.Command{Change: &pb.Command_PruneAudit{PruneAudit: &pb.PruneAudit{
			Keep: []*pb.TenantRecords{{Tenant: "t", Records: 20}}, Sinks: []string{"s"},
		}}})
		pass(3 * time.Second)
		s.breakWith(nil)
		pass(time.Minute)
		r := c.Report()[0]
		if last := s.took[len(s.took)-1]; r.Lost != 70 || r.Behind != 0 || last.Type != "audit.pruned" || len(s.took) != 31 {
			t.Errorf("%+v, %d records, the last %+v", r, len(s.took), last)
		}
		end()
		// A new sink has lost nothing.
		fresh := &sink{}
		c, end = l.lead(target("s", s), target("fresh", fresh))
		defer end()
		pass(5 * time.Second)
		if r := c.Report(); r[1].Lost != 0 || r[1].Behind != 0 || len(fresh.took) != 21 || r[0].Lost != 0 {
			t.Errorf("%+v, %d records", r, len(fresh.took))
		}
	})
}

// TestOldVoters delivers nothing while the mesh has voters that do not understand how far the sinks have come, and everything after it.
func TestOldVoters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s := newLog(t), &sink{}
		raise := func(level uint32) {
			l.apply(&pb.Command{Change: &pb.Command_RaiseFeatureLevel{RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: level, Mesh: "m"}}})
		}
		raise(1)
		_, end := l.lead(target("s", s))
		defer end()
		l.write(10)
		pass(time.Minute)
		if s.calls != 0 || l.moves != 0 {
			t.Errorf("%d deliveries, %d entries", s.calls, l.moves)
		}
		raise(logformat.AuditLevel)
		pass(3 * time.Second)
		s.whole(t, l)
		if l.moves == 0 {
			t.Error("no entry says how far the sink has come")
		}
	})
}

// restore replaces the state by that of a snapshot.
func (l *log) restore(snapshot []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.Restore(io.NopCloser(bytes.NewReader(snapshot))); err != nil {
		panic(err)
	}
}

// TestRestored replaces the state by an older one while a leader leads. The sink gets what is written from then on.
func TestRestored(t *testing.T) {
	for _, away := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l, s := newLog(t), &sink{}
			c, end := l.lead(target("s", s))
			defer end()
			l.write(10)
			pass(3 * time.Second)
			var old bytes.Buffer
			if err := l.View().Write(&old); err != nil {
				t.Fatal(err)
			}
			l.write(90)
			pass(3 * time.Second)
			if away {
				s.breakWith(errors.New("away"))
				l.write(1)
				pass(3 * time.Second)
			}
			l.restore(old.Bytes())
			before := len(s.took)
			l.write(20) // fewer than there were
			s.breakWith(nil)
			pass(time.Minute)
			got := s.took[before:]
			if r := c.Report()[0]; len(got) != 20 || got[0].Seq != 11 || r.Number != 30 || r.Behind != 0 || r.Restored == 0 || r.Lost != 0 {
				t.Errorf("away %v: %d records, %+v", away, len(got), r)
			}
			if at := l.View().Sinks(); at["s"] != 30 {
				t.Errorf("the state has %v", at)
			}
		})
	}
}

// TestBeyondEnd begins a term with a state that says the sink has more than the audit log has.
func TestBeyondEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s := newLog(t), &sink{}
		l.write(10)
		l.apply(&pb.Command{Change: &pb.Command_MoveCursors{MoveCursors: &pb.MoveCursors{Cursors: []*pb.SinkCursor{{Sink: "s", Number: 1000}}}}})
		c, end := l.lead(target("s", s))
		defer end()
		l.write(10)
		pass(3 * time.Second)
		s.whole(t, l)
		if r := c.Report()[0]; len(s.took) != 20 || r.Restored == 0 || r.Number != 20 {
			t.Errorf("%d records, %+v", len(s.took), r)
		}
		if at := l.View().Sinks(); at["s"] != 20 {
			t.Errorf("the state has %v", at)
		}
	})
}

// BenchmarkLeader applies entries with a record each, without and with sinks.
func BenchmarkLeader(b *testing.B) {
	for _, n := range []int{0, 1, 3} {
		b.Run(fmt.Sprintf("sinks=%d", n), func(b *testing.B) {
			l := newLog(b)
			var targets []sinks.Target
			for i := range n {
				targets = append(targets, target(fmt.Sprint("s", i), nowhere{}))
			}
			_, end := l.lead(targets...)
			defer end()
			b.ReportAllocs()
			for b.Loop() {
				l.write(1)
			}
		})
	}
}

type nowhere struct{}

func (nowhere) Deliver(context.Context, []audit.Record) error { return nil }
