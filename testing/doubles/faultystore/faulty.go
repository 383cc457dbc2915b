// Package faultystore is a store whose disk hangs, fails or dawdles on command: the
// sick disk of tests and of the mesh simulation.
package faultystore

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
)

// ErrDiskFull is what a full file system gives.
var ErrDiskFull error = fmt.Errorf("write: %w", syscall.ENOSPC)

// ErrIO is what a dying disk gives.
var ErrIO error = fmt.Errorf("write: %w", syscall.EIO)

// Disk decides what happens to the writes of all stores wrapped by it. The zero
// value is a healthy disk. Safe for concurrent use.
type Disk struct {
	mu      sync.Mutex
	hang    chan struct{} // closed by Heal; nil when not hanging
	lose    bool          // what hung is lost and not written when it wakes
	fail    error
	after   int // writes that still succeed before fail begins
	delay   time.Duration
	waiting int
	writes  int
}

// Hang makes every write from now on hang until Heal. What hung is then written.
func (d *Disk) Hang() { d.startHang(false) }

// HangAndLose is Hang, but what hung is answered with ErrIO when the disk is healed.
func (d *Disk) HangAndLose() { d.startHang(true) }

func (d *Disk) startHang(lose bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hang == nil {
		d.hang = make(chan struct{})
	}
	d.lose = lose
}

// Fail makes every write from now on fail with err until Heal.
func (d *Disk) Fail(err error) { d.FailAfter(0, err) }

// FailAfter lets n more writes through, then fails them with err until Heal.
func (d *Disk) FailAfter(n int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail, d.after = err, n
}

// Delay makes every write from now on take that much longer; 0 ends it.
func (d *Disk) Delay(by time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.delay = by
}

// Heal ends all faults and lets hanging writes go on.
func (d *Disk) Heal() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hang != nil {
		close(d.hang)
		d.hang = nil
	}
	d.fail, d.after, d.delay = nil, 0, 0
}

// Waiting is how many writes hang just now.
func (d *Disk) Waiting() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.waiting
}

// Writes is how many writes have been asked for so far.
func (d *Disk) Writes() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.writes
}

// Wrap puts the disk under a pair of stores; it fits logstore.Options.Wrap.
func (d *Disk) Wrap(log raft.LogStore, stable raft.StableStore) (raft.LogStore, raft.StableStore) {
	return &faultyLog{LogStore: log, disk: d}, &faultyStable{StableStore: stable, disk: d}
}

// pass holds a write up, fails it, or lets it through.
func (d *Disk) pass() error {
	d.mu.Lock()
	d.writes++
	hang, delay := d.hang, d.delay
	var err error
	if d.fail != nil {
		if d.after > 0 {
			d.after--
		} else {
			err = d.fail
		}
	}
	if hang != nil {
		d.waiting++
	}
	d.mu.Unlock()
	if delay > 0 {
		time.Sleep(delay)
	}
	if hang == nil {
		return err
	}
	<-hang
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting--
	if d.lose {
		return errors.Join(err, ErrIO)
	}
	return err
}

type faultyLog struct {
	raft.LogStore
	disk *Disk
}

func (l *faultyLog) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

func (l *faultyLog) StoreLogs(logs []*raft.Log) error {
	if err := l.disk.pass(); err != nil {
		return err
	}
	return l.LogStore.StoreLogs(logs)
}

func (l *faultyLog) DeleteRange(first, last uint64) error {
	if err := l.disk.pass(); err != nil {
		return err
	}
	return l.LogStore.DeleteRange(first, last)
}

func (l *faultyLog) IsMonotonic() bool {
	m, ok := l.LogStore.(raft.MonotonicLogStore)
	return ok && m.IsMonotonic()
}

type faultyStable struct {
	raft.StableStore
	disk *Disk
}

func (s *faultyStable) Set(key, val []byte) error {
	if err := s.disk.pass(); err != nil {
		return err
	}
	return s.StableStore.Set(key, val)
}

func (s *faultyStable) SetUint64(key []byte, val uint64) error {
	if err := s.disk.pass(); err != nil {
		return err
	}
	return s.StableStore.SetUint64(key, val)
}
