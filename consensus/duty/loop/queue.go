package loop

import (
	"container/heap"
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// Config configures a Queue. Reconcile is required.
type Config[K comparable] struct {
	// Reconcile brings the thing that the key names up to date. It is never called
	// for the same key twice at once.
	//
	// A time other than the zero time has the key reconciled again then, even if
	// nobody adds it. It replaces all times that were asked for before the call
	// began. An error has the key reconciled again after a back-off; the time is
	// ignored.
	Reconcile func(ctx context.Context, key K) (again time.Time, err error)
	// Parallel is how many keys are reconciled at a time; 0 means 1. With 1, calls
	// of Reconcile never overlap, so that they may share state without a lock.
	Parallel int
	// Gather is how long Add waits for more events of the same key before the key is
	// reconciled.
	Gather time.Duration
	// Backoff is the pause after the first error of a key; it doubles with every
	// further error up to MaxBackoff. 0 means 1 s, and 32 times Backoff.
	Backoff, MaxBackoff time.Duration
	// Failed is called with each error, and with the pause before the key is tried again;
	// may be nil. It is not called for errors that come after the end of Run's context.
	Failed func(key K, err error, pause time.Duration)
}

// Queue calls a reconcile function for keys that were added. It merges additions of
// one key, reconciles each key by one goroutine at a time, bounds how many keys are
// reconciled at a time, and tries keys again whose reconciliation failed.
//
// Due keys are taken in the order of their times; keys of the same time in the order
// in which they were added. A key that is added while it is being reconciled is
// reconciled once more afterwards.
//
// All methods may be called by any goroutine. Keys may be added before Run begins;
// those that are added after its end are dropped.
type Queue[K comparable] struct {
	cfg Config[K]
	// notify has a value while a key is due before the armed time.
	notify chan struct{}
	work   sync.WaitGroup

	mu      sync.Mutex
	ctx     context.Context // Run's; nil before Run
	stop    context.CancelFunc
	over    bool
	entries map[K]*entry[K]
	waiting schedule[K] // the entries that wait, not those that are busy
	added   uint64      // counts additions, for the order of keys of the same time
	busy    int
	armed   time.Time // when Run's timer fires; zero: it is off
	fault   *PanicError
}

// entry is the queue's record of one key. An entry exists while its key waits, is busy, or
// has failed.
type entry[K comparable] struct {
	key K
	// at is when the key is due; zero if it does not wait. The entry of a busy key
	// may have a time: the key was added meanwhile.
	at       time.Time
	order    uint64 // of the addition that at comes from
	index    int    // in Queue.waiting; -1 if it is not there
	busy     bool
	failures int // in a row
}

// PanicError is a panic of a reconcile function, with the stack of its goroutine.
type PanicError struct {
	Value any
	Stack []byte
}

// Error returns the value and the stack.
func (e *PanicError) Error() string {
	return fmt.Sprintf("reconcile panicked: %v\n%s", e.Value, e.Stack)
}

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// New returns an empty queue.
func New[K comparable](cfg Config[K]) *Queue[K] {
	if cfg.Parallel <= 0 {
		cfg.Parallel = 1
	}
	if cfg.Backoff <= 0 {
		cfg.Backoff = time.Second
	}
	if cfg.MaxBackoff < cfg.Backoff {
		cfg.MaxBackoff = 32 * cfg.Backoff
	}
	return &Queue[K]{cfg: cfg, notify: make(chan struct{}, 1), entries: map[K]*entry[K]{}}
}

// Add has keys reconciled once Config.Gather has passed.
func (q *Queue[K]) Add(keys ...K) {
	if len(keys) == 0 {
		return
	}
	now := time.Now()
	at := now.Add(q.cfg.Gather)
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, key := range keys {
		q.add(key, at)
	}
	q.proceed(now)
}

// AddAfter has a key reconciled once d has passed.
func (q *Queue[K]) AddAfter(key K, d time.Duration) { q.AddAt(key, time.Now().Add(d)) }

// AddAt has a key reconciled at a time, at once if it has passed. If the key waits
// already, the sooner of both times counts.
func (q *Queue[K]) AddAt(key K, at time.Time) {
	now := time.Now()
	if at.Before(now) {
		at = now
	}
	at = now.Add(at.Sub(now)) // all times are compared by the monotonic clock
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(key, at)
	q.proceed(now)
}

// Run reconciles keys until ctx ends, and returns ctx's error once no reconcile
// function runs any more. A panic of a reconcile function ends the queue; Run raises
// it again, so that it reaches the caller of Run. Run must be called once.
func (q *Queue[K]) Run(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	q.mu.Lock()
	q.ctx, q.stop = context.WithCancel(ctx)
	ctx = q.ctx
	q.mu.Unlock()
	for ctx.Err() == nil {
		now := time.Now()
		q.mu.Lock()
		if q.armed = q.start(now); q.armed.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(q.armed.Sub(now))
		}
		q.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-q.notify:
		case <-timer.C:
		}
	}
	q.mu.Lock()
	q.over = true
	q.waiting = nil
	clear(q.entries)
	q.mu.Unlock()
	q.stop()
	q.work.Wait()
	if q.fault != nil {
		panic(q.fault)
	}
	return ctx.Err()
}

// add has a key wait until at, or until it would be due already. The caller holds
// q.mu and calls proceed.
func (q *Queue[K]) add(key K, at time.Time) {
	if q.over {
		return
	}
	e := q.entries[key]
	if e == nil {
		e = &entry[K]{key: key, index: -1}
		q.entries[key] = e
	}
	if !e.at.IsZero() && !at.Before(e.at) {
		return
	}
	if e.at.IsZero() {
		q.added++
		e.order = q.added
	}
	e.at = at
	q.wait(e)
}

// wait puts an entry into q.waiting, or moves it there after its time has changed. A
// busy entry is left out; done adds it. The caller holds q.mu.
func (q *Queue[K]) wait(e *entry[K]) {
	switch {
	case e.busy:
	case e.index >= 0:
		heap.Fix(&q.waiting, e.index)
	default:
		heap.Push(&q.waiting, e)
	}
}

// proceed starts goroutines for due keys as far as Config.Parallel allows, and notifies
// Run if its timer has to fire sooner than it would. The caller holds q.mu.
func (q *Queue[K]) proceed(now time.Time) {
	if next := q.start(now); !next.IsZero() && (q.armed.IsZero() || next.Before(q.armed)) {
		select {
		case q.notify <- struct{}{}:
		default:
		}
	}
}

// start starts goroutines for due keys as far as Config.Parallel allows. It returns the
// time at which the next key is due, or the zero time if no timer is needed: no key
// waits, or all goroutines are busy and the first that is free takes the due key. The
// caller holds q.mu.
func (q *Queue[K]) start(now time.Time) time.Time {
	if q.ctx == nil || q.over {
		return time.Time{}
	}
	for q.busy < q.cfg.Parallel {
		e := q.take(now)
		if e == nil {
			break
		}
		q.busy++
		q.work.Go(func() { q.worker(e) })
	}
	if len(q.waiting) == 0 || !q.waiting[0].at.After(now) {
		return time.Time{}
	}
	return q.waiting[0].at
}

// take removes the entry of the first due key from q.waiting and marks it busy. It
// returns nil if no key is due. The caller holds q.mu.
func (q *Queue[K]) take(now time.Time) *entry[K] {
	if q.over || q.ctx.Err() != nil || len(q.waiting) == 0 || q.waiting[0].at.After(now) {
		return nil
	}
	e := heap.Pop(&q.waiting).(*entry[K])
	e.at, e.busy = time.Time{}, true
	return e
}

// worker reconciles a key, and then others for as long as any is due.
func (q *Queue[K]) worker(e *entry[K]) {
	for e != nil {
		again, err := q.reconcile(e.key)
		now := time.Now()
		q.mu.Lock()
		pause := q.done(e, again, err, now)
		key, failed := e.key, err != nil && q.ctx.Err() == nil && q.cfg.Failed != nil
		if e = q.take(now); e == nil {
			q.busy--
		}
		q.proceed(now)
		q.mu.Unlock()
		if failed {
			q.cfg.Failed(key, err, pause)
		}
	}
}

// done notes the end of a reconciliation, and returns the pause after an error. The
// caller holds q.mu.
func (q *Queue[K]) done(e *entry[K], again time.Time, err error, now time.Time) (pause time.Duration) {
	e.busy = false
	if q.over {
		return 0
	}
	if err != nil {
		pause = q.cfg.MaxBackoff
		if e.failures < 30 {
			pause = min(q.cfg.Backoff<<e.failures, q.cfg.MaxBackoff)
		}
		e.failures++
		again = now.Add(pause)
	} else {
		e.failures = 0
	}
	switch {
	case !again.IsZero():
		if e.at.IsZero() || again.Before(e.at) {
			q.added++
			e.at, e.order = again, q.added
		}
		q.wait(e)
	case !e.at.IsZero():
		q.wait(e)
	default:
		delete(q.entries, e.key)
	}
	return pause
}

// reconcile calls Config.Reconcile. A panic ends the queue.
func (q *Queue[K]) reconcile(key K) (again time.Time, err error) {
	defer func() {
		if p := recover(); p != nil {
			q.mu.Lock()
			defer q.mu.Unlock()
			if q.fault == nil {
				q.fault = &PanicError{Value: p, Stack: debug.Stack()}
			}
			q.stop()
		}
	}()
	return q.cfg.Reconcile(q.ctx, key)
}

// schedule is a heap of entries, the soonest first.
type schedule[K comparable] []*entry[K]

func (s schedule[K]) Len() int { return len(s) }

func (s schedule[K]) Less(i, j int) bool {
	if !s[i].at.Equal(s[j].at) {
		return s[i].at.Before(s[j].at)
	}
	return s[i].order < s[j].order
}

func (s schedule[K]) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = i, j
}

func (s *schedule[K]) Push(x any) {
	e := x.(*entry[K])
	e.index = len(*s)
	*s = append(*s, e)
}

func (s *schedule[K]) Pop() any {
	old := *s
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*s = old[:len(old)-1]
	e.index = -1
	return e
}
