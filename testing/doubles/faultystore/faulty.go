// Package faultystore is a store whose disk hangs, fails, slows down or lies on command. Tests and the mesh
// simulation use it as a sick disk.
package faultystore

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
)

// ErrDiskFull is the error of a full file system.
var ErrDiskFull error = fmt.Errorf("write: %w", syscall.ENOSPC)

// ErrIO is the error of a broken disk.
var ErrIO error = fmt.Errorf("write: %w", syscall.EIO)

// Disk decides what happens to the writes of all stores wrapped by it. The zero
// value is a healthy disk. Safe for concurrent use.
type Disk struct {
	mu      sync.Mutex
	hang    chan struct{} // closed by Heal; nil when not hanging
	lose    bool          // hanging writes fail when the disk is healed
	fail    error
	after   int // number of writes that still succeed before fail applies
	delay   time.Duration
	waiting int
	writes  int
}

// Hang makes every write from now on hang until Heal. The hanging writes are carried out then.
func (d *Disk) Hang() { d.startHang(false) }

// HangAndLose is Hang, but the hanging writes fail with ErrIO when the disk is healed.
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

// FailAfter lets n more writes through. Later writes fail with err until Heal.
func (d *Disk) FailAfter(n int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail, d.after = err, n
}

// Delay makes every write from now on take longer by the given time; 0 ends the delay.
func (d *Disk) Delay(by time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.delay = by
}

// Heal ends all faults and lets hanging writes continue.
func (d *Disk) Heal() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hang != nil {
		close(d.hang)
		d.hang = nil
	}
	d.fail, d.after, d.delay = nil, 0, 0
}

// Waiting returns how many writes hang now.
func (d *Disk) Waiting() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.waiting
}

// Writes returns how many writes have been requested so far.
func (d *Disk) Writes() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.writes
}

// Wrap wraps a pair of stores with the disk; its type is that of logstore.Options.Wrap.
func (d *Disk) Wrap(log raft.LogStore, stable raft.StableStore) (raft.LogStore, raft.StableStore) {
	return &faultyLog{LogStore: log, disk: d}, &faultyStable{StableStore: stable, disk: d}
}

// pass delays a write, lets it hang, fails it, or lets it through.
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
