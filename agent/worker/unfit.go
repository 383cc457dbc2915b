package worker

import (
	"context"
	"time"
)

const (
	// retryEvery is the time between two attempts of a worker to write to its journal.
	retryEvery = 5 * time.Second
	// warnEvery is the time between two log messages about a journal that still cannot be written.
	warnEvery = time.Minute
	// giveBack is the time before the session ends in which returned leases can still be sent.
	giveBack = 200 * time.Millisecond
)

// refuse notes that the journal takes no records. The worker then takes no leases until awaitJournal has found the
// journal in order. The caller holds w.mu, or nothing else uses w yet.
func (w *Worker) refuse(err error) {
	if w.refuses == nil {
		w.refuses = err
		w.unfit <- struct{}{} // the slot is free, as awaitJournal has emptied it before it reset refuses
	}
}

// awaitJournal waits until the journal refuses records, and then until it accepts them again. In between, the worker
// has a session without slots: leases that it gave back would return to it at once. It lasts until ctx ends.
func (w *Worker) awaitJournal(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.unfit:
		}
		w.mu.Lock()
		err := w.refuses
		w.mu.Unlock()
		w.cfg.Logger.Warn("this agent takes no new tasks, because it cannot write its journal; tasks that run go on", "error", err)
		if !pause(ctx, giveBack) {
			return
		}
		w.Reconnect()
		since, logged := time.Now(), time.Now()
		for {
			if !pause(ctx, retryEvery) {
				return
			}
			if err := w.cfg.Journal.Check(); err == nil {
				break
			} else if time.Since(logged) >= warnEvery {
				logged = time.Now()
				w.cfg.Logger.Warn("this agent still takes no new tasks, because it cannot write its journal", "since", since.UTC(), "error", err)
			}
		}
		w.mu.Lock()
		w.refuses = nil
		w.mu.Unlock()
		w.cfg.Logger.Info("the journal can be written again, and this agent takes new tasks")
		w.Reconnect()
	}
}

// pause waits for d. It returns false if ctx ends before.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
