package leader_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/coopr/coopr/consensus/leader"
	"github.com/coopr/coopr/consensus/raftgroup"
	"github.com/coopr/coopr/testing/doubles/grouptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// diary records the actions of duties in order.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) add(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

func (d *diary) all() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.lines)
}

type duty struct {
	name    string
	restore func(context.Context) error
	run     func(context.Context) error
}

func (d duty) Name() string { return d.name }

func (d duty) Restore(ctx context.Context) error {
	if d.restore == nil {
		return nil
	}
	return d.restore(ctx)
}

func (d duty) Run(ctx context.Context) error {
	if d.run == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	return d.run(ctx)
}

// group is a member whose leadership the test controls.
type group struct {
	changes   chan raftgroup.LeadershipChange
	barrier   func(context.Context) error
	transfer  func() error
	transfers int
}

func newGroup() *group { return &group{changes: make(chan raftgroup.LeadershipChange, 100)} }

func (g *group) Leadership(ctx context.Context) <-chan raftgroup.LeadershipChange {
	out := make(chan raftgroup.LeadershipChange)
	go func() {
		defer close(out)
		for {
			select {
			case c, ok := <-g.changes:
				if !ok {
					return
				}
				select {
				case out <- c:
				case <-ctx.Done():
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

func (g *group) Barrier(ctx context.Context) error {
	if g.barrier != nil {
		return g.barrier(ctx)
	}
	return nil
}

func (g *group) Transfer(context.Context, string) error {
	g.transfers++
	if g.transfer != nil {
		return g.transfer()
	}
	return nil
}

func (g *group) gained(t uint64) { g.changes <- raftgroup.LeadershipChange{Leader: true, Term: t} }
func (g *group) lost(t uint64)   { g.changes <- raftgroup.LeadershipChange{Term: t} }

// running runs a Runner in a bubble until f returns.
func running(t *testing.T, g *group, duties func(uint64) []leader.Duty, f func(t *testing.T, r *leader.Runner)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g.changes = make(chan raftgroup.LeadershipChange, 100)
		r, err := leader.New(leader.Config{Group: g, Duties: duties})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		f(t, r)
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if term, ok := r.Ready(); ok {
			t.Fatalf("ready for term %d after the end", term)
		}
	})
}

func TestOrder(t *testing.T) {
	var d diary
	g := newGroup()
	g.barrier = func(context.Context) error { d.add("barrier"); return nil }
	named := func(name string) leader.Duty {
		return duty{name,
			func(context.Context) error { d.add("restore %s", name); return nil },
			func(ctx context.Context) error {
				<-ctx.Done()
				time.Sleep(time.Minute) // the Runner must wait for a duty that ends slowly
				d.add("end %s", name)
				return nil
			}}
	}
	duties := func(n uint64) []leader.Duty {
		d.add("term %d", n)
		return []leader.Duty{named("a"), named("b")}
	}
	running(t, g, duties, func(t *testing.T, r *leader.Runner) {
		changed := r.ReadyChanged()
		g.gained(7)
		<-changed
		if n, ok := r.Ready(); !ok || n != 7 {
			t.Fatalf("ready %v for %d", ok, n)
		}
		changed = r.ReadyChanged()
		g.lost(7)
		g.gained(9)
		<-changed
		if _, ok := r.Ready(); ok {
			t.Fatal("still ready after the loss")
		}
		<-r.ReadyChanged()
		if n, ok := r.Ready(); !ok || n != 9 {
			t.Fatalf("ready %v for %d", ok, n)
		}
	})
	got := d.all()
	for _, i := range []int{4, 10} { // the two duties of a term may end in either order
		if len(got) >= i+2 {
			slices.Sort(got[i : i+2])
		}
	}
	one := []string{"barrier", "term 7", "restore a", "restore b", "end a", "end b"}
	two := []string{"barrier", "term 9", "restore a", "restore b", "end a", "end b"}
	if want := append(one, two...); !slices.Equal(got, want) {
		t.Fatalf("got  %v\nwant %v", got, want)
	}
}

func TestQuickSuccession(t *testing.T) {
	// The duties run only once at any time, whatever changes of leadership arrive.
	var mu sync.Mutex
	alive, lives := 0, 0
	duties := func(uint64) []leader.Duty {
		return []leader.Duty{duty{"x", nil, func(ctx context.Context) error {
			mu.Lock()
			alive++
			lives++
			if alive > 1 {
				t.Error("two lives at once")
			}
			mu.Unlock()
			<-ctx.Done()
			time.Sleep(time.Second)
			mu.Lock()
			alive--
			mu.Unlock()
			return ctx.Err()
		}}}
	}
	g := newGroup()
	running(t, g, duties, func(t *testing.T, r *leader.Runner) {
		for i := uint64(1); i <= 20; i++ {
			g.gained(i)
			g.lost(i)
		}
		g.gained(21)
		for {
			if n, ok := r.Ready(); ok && n == 21 {
				break
			}
			<-r.ReadyChanged()
		}
	})
	if lives < 1 {
		t.Fatal("never lived")
	}
}

func TestFailingDutyHandsOver(t *testing.T) {
	boom := errors.New("boom")
	cases := map[string]leader.Duty{
		"run":           duty{"d", nil, func(context.Context) error { return boom }},
		"restore":       duty{"d", func(context.Context) error { return boom }, nil},
		"panic in run":  duty{"d", nil, func(context.Context) error { panic(boom) }},
		"panic in rest": duty{"d", func(context.Context) error { panic("boom") }, nil},
	}
	for name, bad := range cases {
		t.Run(name, func(t *testing.T) {
			g := newGroup()
			handed := make(chan bool, 1)
			g.transfer = func() error { handed <- true; return nil }
			var other diary
			duties := func(uint64) []leader.Duty {
				return []leader.Duty{duty{"good", nil, func(ctx context.Context) error {
					<-ctx.Done()
					other.add("ended")
					return nil
				}}, bad}
			}
			synctest.Test(t, func(t *testing.T) {
				g.changes = make(chan raftgroup.LeadershipChange, 100)
				handed = make(chan bool, 1)
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				done := make(chan error, 1)
				go func() { done <- run(ctx, g, duties) }()
				g.gained(1)
				<-handed
				g.lost(1)
				synctest.Wait()
				if strings.Contains(name, "run") && !slices.Equal(other.all(), []string{"ended"}) {
					t.Errorf("the other duty: %v", other.all())
				}
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
			if g.transfers != 1 {
				t.Errorf("%d transfers", g.transfers)
			}
		})
	}
}

func TestDutiesStartAgainWhenNobodyTakesOver(t *testing.T) {
	g := newGroup()
	g.transfer = func() error { return raftgroup.ErrNoPeer }
	var lives atomic.Int64
	duties := func(uint64) []leader.Duty {
		return []leader.Duty{duty{"d", nil, func(ctx context.Context) error {
			if lives.Add(1) <= 3 {
				return errors.New("not yet")
			}
			<-ctx.Done()
			return nil
		}}}
	}
	running(t, g, duties, func(t *testing.T, r *leader.Runner) {
		g.gained(1)
		for lives.Load() < 4 {
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		if n, ok := r.Ready(); !ok || n != 1 {
			t.Fatalf("ready %v for %d", ok, n)
		}
	})
	if g.transfers != 3 {
		t.Errorf("%d transfers", g.transfers)
	}
}

func TestDutyThatIsDoneEndsNothing(t *testing.T) {
	g := newGroup()
	duties := func(uint64) []leader.Duty {
		return []leader.Duty{duty{"short", nil, func(context.Context) error { return nil }}}
	}
	running(t, g, duties, func(t *testing.T, r *leader.Runner) {
		g.gained(1)
		<-r.ReadyChanged()
		time.Sleep(time.Hour)
		if _, ok := r.Ready(); !ok {
			t.Fatal("the term ended with its last duty")
		}
	})
	if g.transfers != 0 {
		t.Errorf("%d transfers", g.transfers)
	}
}

func TestEndDuringTheBarrier(t *testing.T) {
	for _, end := range []string{"lost", "closed", "cancelled"} {
		t.Run(end, func(t *testing.T) {
			g := newGroup()
			g.barrier = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
			running(t, g, func(uint64) []leader.Duty { t.Error("duties were made"); return nil }, func(t *testing.T, r *leader.Runner) {
				g.gained(1)
				synctest.Wait()
				switch end {
				case "lost":
					g.lost(1)
				case "closed":
					close(g.changes)
				}
				synctest.Wait()
			})
		})
	}
}

// TestOnRealGroup: in a real group with partitions and transfers, no two members start
// duties in the same term, and each term starts from a state that holds all entries
// that were answered before.
func TestOnRealGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := grouptest.Start(t, 3, grouptest.Options{})
		var mu sync.Mutex
		answered := 0
		owner := map[uint64]string{}
		var all sync.WaitGroup
		ctx, cancel := context.WithCancel(context.Background())
		for _, m := range c.Members() {
			g, j := m.Group(), m.Journal()
			duties := func(n uint64) []leader.Duty {
				mu.Lock()
				defer mu.Unlock()
				if who, ok := owner[n]; ok {
					t.Errorf("term %d belongs to %s and %s", n, who, m.ID)
				}
				owner[n] = m.ID
				return []leader.Duty{duty{"count", func(context.Context) error {
					mu.Lock()
					defer mu.Unlock()
					if got := len(j.Entries()); got < answered {
						t.Errorf("term %d of %s starts with %d entries, %d were answered", n, m.ID, got, answered)
					}
					return nil
				}, nil}}
			}
			all.Go(func() {
				if err := run(ctx, g, duties); err != nil {
					t.Error(err)
				}
			})
		}
		for i := range 30 {
			lead := c.Leader()
			if lead.Group().Apply([]byte(fmt.Sprint(i))).Err() == nil {
				mu.Lock()
				answered++
				mu.Unlock()
			}
			switch i % 3 {
			case 0:
				_ = lead.Group().Transfer(ctx, "") // it may succeed or fail
			case 1:
				rest := slices.DeleteFunc([]string{"a", "b", "c"}, func(s string) bool { return s == lead.ID })
				c.Partition([]string{lead.ID}, rest)
				c.LeaderAmong(rest...)
				c.Heal()
			}
		}
		if len(owner) < 10 {
			t.Errorf("only %d terms", len(owner))
		}
		cancel()
		all.Wait()
		c.Stop()
	})
}

// run runs a Runner with the default configuration.
func run(ctx context.Context, group leader.Group, duties func(term uint64) []leader.Duty) error {
	r, err := leader.New(leader.Config{Group: group, Duties: duties})
	if err != nil {
		return err
	}
	return r.Run(ctx)
}
