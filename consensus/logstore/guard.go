package logstore

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
)

const (
	// keyCurrentTerm is the key of the one write whose failure makes hashicorp/raft panic.
	keyCurrentTerm = "CurrentTerm"
	// termRetry is the pause between two attempts of that write.
	termRetry = 250 * time.Millisecond
	// deleteChunk bounds the entries that one transaction of a compaction deletes, so that
	// appends can run in between.
	deleteChunk = 1024
)

// Guard is the LogStore and StableStore that Raft uses. It passes reads and writes on to
// the real store.
//
// A write runs on its own goroutine and the caller waits for it up to the
// deadline. A write that is still running then is abandoned: Raft gets an error for
// it. These rules keep the store consistent with Raft:
//
//   - While an abandoned write hangs, every other write is refused (ErrStuck). A
//     leader steps down at the first refusal, and cannot win an election, because
//     its own vote is a write too.
//   - When an abandoned append returns and has succeeded, its entries are removed
//     again before any other write is accepted.
//   - When an abandoned deletion at the end of the log returns, Raft's knowledge of
//     its last entry cannot be corrected from here. The store becomes sick, and a
//     restart of the member reads the log again.
//   - The same holds when an append fails that was to replace a deleted end:
//     the library records the deletion only together with the append. Otherwise
//     the member could become the leader and append after a hole in its log.
//   - Late votes are harmless: the vote was not given, and the stored vote can
//     only make the member refuse other candidates or repeat the same vote.
//
// The store becomes sick, and stays so, when MaxFailures writes in a row have
// failed over at least one deadline, or one write hangs for MaxFailures
// deadlines. OnSick is then called and the owner shuts its Raft down.
type Guard struct {
	log       raft.LogStore // the cache, with the recorder below it
	recorder  *errorRecorder
	stable    raft.StableStore
	watermark *watermark
	// snapshots determine which entries the log may lack.
	snapshots raft.SnapshotStore
	deadline  time.Duration
	max       int
	logger    *slog.Logger

	mu       sync.Mutex
	inFlight int       // running writes, abandoned ones included
	idle     chan bool // closed when inFlight falls to 0; nil when no caller waits
	late     int       // abandoned writes that still run or could not be undone
	since    time.Time // first of the current failures in a row
	failures int       // number of the current failures in a row
	sick     error
	damaged  error // see Damaged
	onSick   []func(error)
	cut      bool // the log's end was deleted and no entry appended since
	closed   bool // no more writes
	closing  bool // close has been called

	armed    bool          // Raft runs: its panic would end the whole agent
	released chan struct{} // closed when Raft has been asked to shut down: retries must end
	stats    Stats
}

// Stats counts the writes since the store was opened.
type Stats struct {
	Writes    uint64        // writes that succeeded in time
	Failed    uint64        // writes that failed in time
	TimedOut  uint64        // abandoned writes
	Refused   uint64        // writes refused because another one hangs, or the store is sick
	WriteTime time.Duration // sum of the times of the writes that succeeded in time
	Undone    uint64        // appends that succeeded after they were abandoned, and were removed
}

var (
	_ raft.LogStore          = (*Guard)(nil)
	_ raft.StableStore       = (*Guard)(nil)
	_ raft.MonotonicLogStore = (*Guard)(nil)
)

func newGuard(cache *raft.LogCache, recorder *errorRecorder, stable raft.StableStore, snapshots raft.SnapshotStore, o Options) *Guard {
	return &Guard{
		log: cache, recorder: recorder, stable: stable, snapshots: snapshots,
		deadline: o.Deadline, max: o.MaxFailures, logger: o.Logger,
		released: make(chan struct{}),
	}
}

// OnSick registers f to be called once, on a goroutine of its own, when the
// store becomes sick, or at once if it is sick already.
func (g *Guard) OnSick(f func(error)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sick != nil {
		go f(g.sick)
		return
	}
	g.onSick = append(g.onSick, f)
}

// Arm records that Raft runs on the store. From then on a failing write of the
// current term, on which hashicorp/raft panics, is retried until it succeeds or
// Release is called. Before, the error is returned.
func (g *Guard) Arm() {
	g.mu.Lock()
	g.armed = true
	g.mu.Unlock()
}

// Release records that Raft has been asked to shut down. A retried write of the
// term is then answered with success. That is safe because every later write is
// refused, so no data that depends on the term can be stored.
func (g *Guard) Release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	g.closed = true
	close(g.released)
}

// Err returns nil while the store is healthy, else an error that wraps ErrStuck or ErrSick.
func (g *Guard) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.sick != nil:
		return g.sick
	case g.late > 0:
		return g.stuckLocked()
	}
	return nil
}

// Deadline returns the longest time that a write may keep its caller waiting, or 0 when there is no
// limit.
func (g *Guard) Deadline() time.Duration { return max(g.deadline, 0) }

// Stats returns the counters.
func (g *Guard) Stats() Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stats
}

func (g *Guard) stuckLocked() error {
	return fmt.Errorf("%w: a write has been hanging since %s", ErrStuck, g.since.Format(time.RFC3339))
}

// write runs one write under the deadline. undo, when not nil, runs when the write succeeds after it
// was abandoned. An error of undo means that Raft and the store no longer agree.
func (g *Guard) write(what string, do func() error, undo func() error) error {
	if g.deadline < 0 {
		return explain(do())
	}
	if err := g.admit(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	w := &pending{done: make(chan struct{}), began: time.Now()}
	go func() {
		err := do()
		if g.returned(w, err) {
			return
		}
		g.cameLate(what, w, undo)
	}()
	timer := time.NewTimer(g.deadline)
	defer timer.Stop()
	select {
	case <-w.done:
	case <-timer.C:
		if g.giveUp(what, w) {
			return fmt.Errorf("%s: %w within %s", what, ErrStuck, g.deadline)
		}
	}
	if w.err != nil {
		return fmt.Errorf("%s: %w", what, explain(w.err))
	}
	return nil
}

// pending is one write. Its fields are owned by Guard.mu until done is closed.
type pending struct {
	done     chan struct{}
	began    time.Time
	over     bool // the store has answered
	complete bool // the store has answered and there is no entry left to undo
	givenUp  bool
	err      error
}

func (g *Guard) admit() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.sick != nil:
		g.stats.Refused++
		return g.sick
	case g.closed:
		return ErrClosed
	case g.late > 0:
		g.stats.Refused++
		return g.stuckLocked()
	}
	g.inFlight++
	return nil
}

// returned records the end of a write. It returns false if the write had been abandoned before.
func (g *Guard) returned(w *pending, err error) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	w.over, w.err = true, err
	if w.givenUp {
		return false
	}
	w.complete = true
	g.endLocked()
	if err == nil {
		g.stats.Writes++
		g.stats.WriteTime += time.Since(w.began)
		g.failures, g.since = 0, time.Time{}
	} else {
		g.stats.Failed++
		g.failedLocked(explain(err))
	}
	close(w.done)
	return true
}

// giveUp abandons a write. It returns false if the write has just returned.
func (g *Guard) giveUp(what string, w *pending) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if w.over {
		return false
	}
	w.givenUp = true
	g.late++
	g.stats.TimedOut++
	began := time.Now().Add(-g.deadline)
	g.failedLocked(fmt.Errorf("%s: %w within %s", what, ErrStuck, g.deadline))
	if g.since.After(began) || g.failures == 1 {
		g.since = began
	}
	g.logger.Error("a write to the Raft store was abandoned; other writes are refused until it returns",
		"write", what, "deadline", g.deadline)
	// Refused writes do not count as failures, so the hanging write has a timer
	// of its own.
	time.AfterFunc(time.Duration(g.max-1)*g.deadline, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if !w.complete {
			g.sickLocked(fmt.Errorf("%s: %w: the write has been hanging since %s", what, ErrStuck, began.Format(time.RFC3339)))
		}
	})
	return true
}

func (g *Guard) cameLate(what string, w *pending, undo func() error) {
	undone := false
	if w.err == nil && undo != nil {
		if failed := undo(); failed != nil {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.endLocked()
			// late is not decremented: the guard must refuse every further write.
			g.sickLocked(fmt.Errorf("%s succeeded after it was abandoned and could not be undone: %w", what, failed))
			return
		}
		undone = true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.endLocked()
	g.late--
	w.complete = true
	if undone {
		g.stats.Undone++
	}
	g.logger.Warn("an abandoned write to the Raft store returned", "write", what, "undone", undone, "error", w.err)
}

func (g *Guard) endLocked() {
	g.inFlight--
	if g.inFlight == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}

func (g *Guard) failedLocked(err error) {
	if errors.Is(err, wal.ErrSealed) { // the last segment was damaged so that it looks like a complete one: no entry fits in
		g.sickLocked(fmt.Errorf("%w: %w", ErrDamaged, err))
		return
	}
	g.failures++
	if g.failures == 1 {
		g.since = time.Now()
	}
	if g.failures >= g.max && time.Since(g.since) >= g.deadline {
		g.sickLocked(fmt.Errorf("%d writes in a row failed, the last: %w", g.failures, err))
	}
}

func (g *Guard) sickLocked(err error) {
	if g.sick != nil || g.closed {
		return
	}
	g.sick = fmt.Errorf("%w: %w", ErrSick, err)
	g.logger.Error("the Raft store can no longer be used; the Raft member must be restarted", "error", g.sick)
	for _, f := range g.onSick {
		go f(g.sick)
	}
	g.onSick = nil
}

// close runs closeStore once, when no write is running.
func (g *Guard) close(closeStore func() error) error {
	g.Release()
	g.mu.Lock()
	if g.closing {
		g.mu.Unlock()
		return nil
	}
	g.closing = true
	stuck := g.late > 0
	var idle chan bool
	if g.inFlight > 0 {
		if g.idle == nil {
			g.idle = make(chan bool)
		}
		idle = g.idle
	}
	g.mu.Unlock()
	if idle == nil {
		return closeStore()
	}
	later := func() {
		go func() {
			<-idle
			if err := closeStore(); err != nil {
				g.logger.Error("the Raft store could not be closed after a hanging call returned", "error", err)
			}
		}()
	}
	if stuck {
		later()
		return fmt.Errorf("close the log store: %w; it stays open until the hanging write returns", ErrStuck)
	}
	if g.deadline < 0 {
		<-idle
		return closeStore()
	}
	timer := time.NewTimer(g.deadline)
	defer timer.Stop()
	select {
	case <-idle:
		return closeStore()
	case <-timer.C: // a read hangs: writes end within the deadline
		later()
		return fmt.Errorf("close the log store: %w; it stays open until the hanging read returns", ErrStuck)
	}
}

// IsMonotonic reports whether the store below refuses gaps between entries, as raft-wal does.
func (g *Guard) IsMonotonic() bool {
	m, ok := g.log.(raft.MonotonicLogStore)
	return ok && m.IsMonotonic()
}

// FirstIndex returns the oldest entry's index, or 0 when the log is empty.
func (g *Guard) FirstIndex() (uint64, error) { return g.log.FirstIndex() }

// LastIndex returns the newest entry's index, or 0 when the log is empty.
func (g *Guard) LastIndex() (uint64, error) { return g.log.LastIndex() }

// StoreLog appends one entry.
func (g *Guard) StoreLog(log *raft.Log) error { return g.StoreLogs([]*raft.Log{log}) }

// StoreLogs appends entries. It adds a checksum to an entry that has none, and refuses an entry whose
// checksum does not match.
func (g *Guard) StoreLogs(logs []*raft.Log) error {
	if len(logs) == 0 {
		return nil
	}
	logs, err := withChecksums(logs)
	if err != nil {
		return fmt.Errorf("append to the log: %w", err)
	}
	first, last, term := logs[0].Index, logs[len(logs)-1].Index, logs[len(logs)-1].Term
	err = g.write("append to the log",
		func() error {
			err := g.recorder.cause(g.log.StoreLogs(logs))
			if err == nil {
				g.watermark.appended(last, term)
			}
			return err
		},
		func() error {
			err := g.log.DeleteRange(first, last)
			if err == nil {
				g.watermark.cut(first-1, g.termBefore(first))
			}
			return err
		})
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case err == nil:
		g.cut = false
	case g.cut:
		g.sickLocked(fmt.Errorf("the end of the log was deleted, but the entries that replace it could not be stored: %w", err))
	}
	return err
}

// DeleteRange removes the entries from first to last, both included: old entries
// after a snapshot, or entries at the end that conflict with the leader's log.
func (g *Guard) DeleteRange(first, last uint64) error {
	if last < first {
		return nil
	}
	oldest, err := g.log.FirstIndex()
	if err != nil {
		return fmt.Errorf("delete from the log: %w", err)
	}
	if first > oldest {
		err := g.write("delete from the log's end",
			func() error {
				err := g.log.DeleteRange(first, last)
				if err == nil {
					g.watermark.cut(first-1, g.termBefore(first))
				}
				return err
			},
			func() error { return errors.New("the member assumes that its last entries are still in the log") })
		g.mu.Lock()
		defer g.mu.Unlock()
		g.cut = g.cut || err == nil
		return err
	}
	step := last - first + 1
	if !g.IsMonotonic() {
		step = deleteChunk
	}
	for from := first; from <= last; from += step {
		to := min(from+step-1, last)
		// A late compaction needs no undo: Raft no longer needs the old entries.
		if err := g.write("compact the log", func() error { return g.log.DeleteRange(from, to) }, nil); err != nil {
			return err
		}
	}
	return nil
}

// termBefore returns the term of the entry before an index, or 0 if it is not known.
func (g *Guard) termBefore(index uint64) uint64 {
	if term := termOf(g.log, index-1); term > 0 {
		return term
	}
	if list, err := g.snapshots.List(); err == nil && len(list) > 0 && list[0].Index == index-1 {
		return list[0].Term
	}
	return 0
}

// Set stores a value of Raft, such as the candidate of its last vote. It refuses a vote while Abstains.
func (g *Guard) Set(key, val []byte) error {
	if string(key) == keyVoteCand && g.Abstains() {
		return fmt.Errorf("store the vote: %w", ErrAbstains)
	}
	return g.write("store the vote", func() error {
		err := g.stable.Set(key, val)
		if err == nil {
			g.watermark.set(string(key), val)
		}
		return err
	}, nil)
}

// Abstains reports whether the member may not vote, because its log has lost entries that it had
// acknowledged and the leader has not sent all of them again.
func (g *Guard) Abstains() bool { return g.watermark.owes() > 0 }

// Restored ends Abstains if a snapshot with the entries up to last, an entry of a term, replaces those that were lost.
// It is called when the state is that of the snapshot.
func (g *Guard) Restored(last, term uint64) { g.watermark.restored(last, term) }

// Forgive ends Abstains although entries are lost for good, because a person has made a new group of the
// members that are left.
func (g *Guard) Forgive() error {
	last, err := g.log.LastIndex()
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	g.watermark.forgive(last, termOf(g.log, last))
	return nil
}

// OnMayVote has f called once, on a goroutine of its own, when Abstains ends. It reports false if the
// member may vote already.
func (g *Guard) OnMayVote(f func()) bool { return g.watermark.onPaid(f) }

// Get reads a value.
func (g *Guard) Get(key []byte) ([]byte, error) { return g.stable.Get(key) }

// SetUint64 stores a number of Raft: a term. See Arm for the current term.
func (g *Guard) SetUint64(key []byte, val uint64) error {
	if string(key) == keyVoteTerm && g.Abstains() {
		return fmt.Errorf("store the vote: %w", ErrAbstains)
	}
	for {
		err := g.write("store the term", func() error {
			err := g.stable.SetUint64(key, val)
			if err == nil {
				g.watermark.setNumber(string(key), val)
			}
			return err
		}, nil)
		if err == nil {
			return nil
		}
		g.mu.Lock()
		armed := g.armed
		g.mu.Unlock()
		if !armed || string(key) != keyCurrentTerm {
			return err
		}
		select {
		case <-g.released:
			return nil
		case <-time.After(termRetry):
		}
	}
}

// GetUint64 reads a number.
func (g *Guard) GetUint64(key []byte) (uint64, error) { return g.stable.GetUint64(key) }

// errorRecorder records the last error of the store below raft's LogCache, because the cache passes
// errors on as text only.
type errorRecorder struct {
	raft.LogStore
	mu   sync.Mutex
	last error
}

func (k *errorRecorder) StoreLogs(logs []*raft.Log) error {
	err := k.LogStore.StoreLogs(logs)
	k.mu.Lock()
	k.last = err
	k.mu.Unlock()
	return err
}

// IsMonotonic returns the store's own answer.
func (k *errorRecorder) IsMonotonic() bool {
	m, ok := k.LogStore.(raft.MonotonicLogStore)
	return ok && m.IsMonotonic()
}

func (k *errorRecorder) cause(err error) error {
	if err == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.last != nil {
		return k.last
	}
	return err
}
