package loop_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/coopr/coopr/consensus/duty/loop"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// call is one call of a reconcile function, in time since the test began.
type call struct {
	key string
	at  time.Duration
}

// rig runs a queue inside a bubble of simulated time.
type rig struct {
	*loop.Queue[string]
	begin time.Time
	end   func() error // stops Run and returns its error

	mu    sync.Mutex
	calls []call
	fails []time.Duration // the pauses with which Failed was called
}

// run starts a queue. do is called without a lock; nil does nothing.
func run(cfg loop.Config[string], do func(ctx context.Context, key string) (time.Time, error)) *rig {
	r := &rig{begin: time.Now()}
	cfg.Reconcile = func(ctx context.Context, key string) (time.Time, error) {
		r.mu.Lock()
		r.calls = append(r.calls, call{key, time.Since(r.begin)})
		r.mu.Unlock()
		if do == nil {
			return time.Time{}, nil
		}
		return do(ctx, key)
	}
	cfg.Failed = func(_ string, _ error, pause time.Duration) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.fails = append(r.fails, pause)
	}
	r.Queue = loop.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	r.end = func() error { cancel(); return <-ended }
	return r
}

// expect waits until the queue is idle for a day, and compares all calls so far.
func (r *rig) expect(t *testing.T, want ...call) {
	t.Helper()
	time.Sleep(24 * time.Hour)
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.calls, want) {
		t.Errorf("calls %v, want %v", r.calls, want)
	}
}

func TestAdditionsAreGatheredAndMerged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(loop.Config[string]{Gather: 500 * time.Millisecond}, nil)
		defer r.end()
		r.Add("a")
		time.Sleep(300 * time.Millisecond)
		r.Add("a", "b", "b")
		r.expect(t, call{"a", 500 * time.Millisecond}, call{"b", 800 * time.Millisecond})
	})
}

func TestTheSoonerTimeCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(loop.Config[string]{}, nil)
		defer r.end()
		r.AddAfter("a", time.Hour)
		r.AddAfter("a", time.Minute)
		r.AddAfter("a", 2*time.Hour)
		r.AddAfter("b", time.Second)
		r.AddAt("c", time.Now().Add(-time.Hour))
		r.expect(t, call{"c", 0}, call{"b", time.Second}, call{"a", time.Minute})
	})
}

func TestKeysOfOneTimeKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r *rig
		r = run(loop.Config[string]{}, func(_ context.Context, key string) (time.Time, error) {
			if key == "first" {
				r.Add("last", "more") // behind those that wait already
			}
			return time.Time{}, nil
		})
		defer r.end()
		at := time.Now().Add(time.Second)
		for _, key := range []string{"first", "c", "a", "b"} {
			r.AddAt(key, at)
		}
		s := time.Second
		r.expect(t, call{"first", s}, call{"c", s}, call{"a", s}, call{"b", s}, call{"last", s}, call{"more", s})
	})
}

func TestAKeyAddedWhileBusyIsReconciledOnceMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(loop.Config[string]{Parallel: 4}, func(context.Context, string) (time.Time, error) {
			time.Sleep(time.Second)
			return time.Time{}, nil
		})
		defer r.end()
		r.Add("a")
		time.Sleep(100 * time.Millisecond)
		r.Add("a")
		r.Add("a")
		r.expect(t, call{"a", 0}, call{"a", time.Second})
	})
}

func TestAgainReplacesOlderTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := true
		r := run(loop.Config[string]{}, func(context.Context, string) (time.Time, error) {
			if first {
				first = false
				return time.Now().Add(time.Minute), nil
			}
			return time.Time{}, nil
		})
		defer r.end()
		r.Add("a")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		r.Add("a") // not at 1 min again: this call knows better
		r.expect(t, call{"a", 0}, call{"a", 10 * time.Second})
	})
}

func TestErrorsBackOffUntilASuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fail := 4
		r := run(loop.Config[string]{Backoff: time.Second, MaxBackoff: 3 * time.Second}, func(context.Context, string) (time.Time, error) {
			if fail--; fail >= 0 {
				return time.Now().Add(time.Millisecond), errors.New("not now")
			}
			return time.Time{}, nil
		})
		defer r.end()
		r.Add("a")
		s := time.Second
		r.expect(t, call{"a", 0}, call{"a", 1 * s}, call{"a", 3 * s}, call{"a", 6 * s}, call{"a", 9 * s})
		if want := []time.Duration{s, 2 * s, 3 * s, 3 * s}; !slices.Equal(r.fails, want) {
			t.Errorf("pauses %v, want %v", r.fails, want)
		}
		fail = 1
		r.Add("a")
		day := 24 * time.Hour
		r.expect(t, call{"a", 0}, call{"a", 1 * s}, call{"a", 3 * s}, call{"a", 6 * s}, call{"a", 9 * s}, call{"a", day}, call{"a", day + s})
	})
}

func TestAPanicReachesTheCallerOfRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fault := errors.New("a nil pointer")
		q := loop.New(loop.Config[string]{Parallel: 2, Reconcile: func(ctx context.Context, key string) (time.Time, error) {
			if key == "bad" {
				panic(fault)
			}
			<-ctx.Done() // the panic ends the others
			return time.Time{}, ctx.Err()
		}})
		q.Add("good", "bad")
		defer func() {
			err, _ := recover().(error)
			if p := (*loop.PanicError)(nil); !errors.As(err, &p) || !errors.Is(err, fault) || len(p.Stack) == 0 {
				t.Errorf("recovered %v", err)
			}
		}()
		t.Error("Run returned", q.Run(context.Background()))
	})
}

func TestTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(loop.Config[string]{}, func(ctx context.Context, _ string) (time.Time, error) {
			<-ctx.Done()
			time.Sleep(time.Second) // Run waits for this
			return time.Time{}, ctx.Err()
		})
		r.Add("a", "b")
		synctest.Wait()
		if err := r.end(); !errors.Is(err, context.Canceled) || time.Since(r.begin) != time.Second {
			t.Errorf("Run returned %v after %s", err, time.Since(r.begin))
		}
		r.Add("c")
		r.expect(t, call{"a", 0})
		if len(r.fails) > 0 {
			t.Error("Failed was told of an error that the end caused")
		}
	})
}

// TestProperties runs random additions and reconciliations against a plain model:
// each addition is followed by a call that begins when it is due, and no earlier; no
// key is reconciled twice at once; no more keys than allowed are reconciled at once;
// the queue is never idle while a key is due.
func TestProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		parallel := rapid.IntRange(1, 5).Draw(rt, "parallel")
		keys := rapid.IntRange(1, 8).Draw(rt, "keys")
		gather := time.Duration(rapid.IntRange(0, 20).Draw(rt, "gather")) * time.Millisecond
		steps := rapid.IntRange(1, 120).Draw(rt, "steps")
		seed := rapid.Uint64().Draw(rt, "seed")
		var fault string
		synctest.Test(t, func(*testing.T) { fault = play(rand.New(rand.NewPCG(seed, 0)), parallel, keys, gather, steps) })
		if fault != "" {
			rt.Fatal(fault)
		}
	})
}

// model is what the queue should do, in the plainest form.
type model struct {
	mu sync.Mutex
	// due are the times at which each key has to be reconciled, as far as no call
	// that began since has covered them.
	due      map[int]time.Time
	busy     map[int]bool
	failures map[int]int
	calls    int
	fault    string
}

func (m *model) ask(key int, at time.Time) {
	if was, ok := m.due[key]; !ok || at.Before(was) {
		m.due[key] = at
	}
}

func (m *model) wrong(format string, args ...any) {
	if m.fault == "" {
		m.fault = fmt.Sprintf(format, args...)
	}
}

func play(rnd *rand.Rand, parallel, keys int, gather time.Duration, steps int) string {
	const backoff, most = 10 * time.Millisecond, 25 * time.Millisecond
	m := &model{due: map[int]time.Time{}, busy: map[int]bool{}, failures: map[int]int{}}
	ms := func(n int) time.Duration { return time.Duration(rnd.IntN(n)) * time.Millisecond }
	q := loop.New(loop.Config[int]{Parallel: parallel, Gather: gather, Backoff: backoff, MaxBackoff: most,
		Reconcile: func(_ context.Context, key int) (time.Time, error) {
			m.mu.Lock()
			now := time.Now()
			at, asked := m.due[key]
			switch {
			case m.busy[key]:
				m.wrong("key %d is reconciled twice at once", key)
			case !asked:
				m.wrong("key %d is reconciled, but nobody asked for it", key)
			case now.Before(at):
				m.wrong("key %d is reconciled %s early", key, at.Sub(now))
			}
			if m.busy[key] = true; len(m.busy) > parallel {
				m.wrong("%d keys are reconciled at once", len(m.busy))
			}
			delete(m.due, key)
			m.calls++
			spend, outcome, again := ms(30), rnd.IntN(10), now.Add(ms(200))
			m.mu.Unlock()
			time.Sleep(spend)
			m.mu.Lock()
			defer m.mu.Unlock()
			delete(m.busy, key)
			switch {
			case m.calls > 3*steps || outcome > 3: // so that the queue comes to rest
				m.failures[key] = 0
				return time.Time{}, nil
			case outcome > 1:
				m.failures[key] = 0
				m.ask(key, again)
				return again, nil
			default:
				m.ask(key, time.Now().Add(min(backoff<<m.failures[key], most)))
				m.failures[key]++
				return again, errors.New("not now")
			}
		}})
	// Nothing that is due may wait while a goroutine is free.
	idle := func() {
		synctest.Wait()
		m.mu.Lock()
		defer m.mu.Unlock()
		for key, at := range m.due {
			if at.Before(time.Now()) && !m.busy[key] && len(m.busy) < parallel {
				m.wrong("key %d has been due for %s, and only %d keys are reconciled", key, time.Since(at), len(m.busy))
			}
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	startAt := rnd.IntN(10)
	for i := range steps {
		if i == startAt || i == 0 && startAt >= steps {
			go func() { defer close(ended); _ = q.Run(ctx) }()
		}
		synctest.Wait() // no call is about to begin: it would cover what is asked for now
		m.mu.Lock()
		key, after, how := rnd.IntN(keys), ms(100), rnd.IntN(4)
		now := time.Now()
		switch how {
		case 0:
			m.ask(key, now.Add(after))
			m.mu.Unlock()
			q.AddAfter(key, after)
		case 1:
			m.ask(key, now)
			m.mu.Unlock()
			q.AddAt(key, now.Add(-after))
		case 2:
			m.ask(key, now.Add(gather))
			m.mu.Unlock()
			q.Add(key)
		case 3:
			m.mu.Unlock()
			time.Sleep(after)
			if i > startAt {
				idle()
			}
		}
	}
	time.Sleep(time.Hour)
	idle()
	cancel()
	<-ended
	if m.fault == "" && len(m.due) > 0 {
		m.wrong("the keys %v were lost", m.due)
	}
	return m.fault
}

// BenchmarkAdd is the way of one key through the queue: added, reconciled, forgotten.
func BenchmarkAdd(b *testing.B) {
	done := make(chan struct{}, 1)
	q := loop.New(loop.Config[int]{Reconcile: func(context.Context, int) (time.Time, error) {
		done <- struct{}{}
		return time.Time{}, nil
	}})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { _ = q.Run(ctx) }()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		q.Add(i)
		<-done
	}
}
