package faultystore

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/coopr/coopr/consensus/logstore"
)

// Lying is a disk that loses and changes what it has acknowledged: a log, votes, snapshots and a watermark, below the
// checks of logstore. Snapshots are lost only together with all else, and the watermark is never wrong. Safe for
// concurrent use.
type Lying struct {
	mu        sync.Mutex
	log       []raft.Log // in order; a lie replaces the data of an entry, which other disks may share
	values    map[string][]byte
	before    func() // undoes the last write of values
	snapshots *logstore.MemorySnapshots
	mark      []byte
}

// NewLying returns an empty disk.
func NewLying() *Lying {
	d := &Lying{}
	d.Empty()
	return d
}

// errNotFound has the text by which hashicorp/raft recognises a missing key.
var errNotFound = errors.New("not found")

// Lie changes the content in a random way, whose name it returns. The member is down meanwhile.
func (d *Lying) Lie(r *rand.Rand) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch n := len(d.log); r.IntN(6) {
	case 0:
		d.log = d.log[:n-r.IntN(n+1)]
		return "the end of the log is lost"
	case 1:
		if n > 0 {
			l := &d.log[n-1]
			l.Data = l.Data[:len(l.Data)/2]
		}
		return "the last entry is torn"
	case 2:
		if n > 0 {
			flip(&d.log[r.IntN(n)])
		}
		return "a bit of an entry is flipped"
	case 3:
		clear(d.values)
		return "the votes are lost"
	case 4:
		d.before()
		return "the last vote is lost"
	default:
		d.emptyLocked()
		return "everything is lost"
	}
}

// flip changes a bit of an entry.
func flip(l *raft.Log) {
	if len(l.Data) == 0 {
		l.Term ^= 16
		return
	}
	l.Data = bytes.Clone(l.Data)
	l.Data[len(l.Data)/2] ^= 16
}

// Empty removes all but the watermark, as logstore.PutAside does.
func (d *Lying) Empty() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.emptyLocked()
}

func (d *Lying) emptyLocked() {
	d.log, d.values, d.before = nil, map[string][]byte{}, func() {}
	d.snapshots = logstore.NewMemorySnapshots(logstore.DefaultRetainSnapshots)
}

// Snapshots returns the snapshots.
func (d *Lying) Snapshots() *logstore.MemorySnapshots {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.snapshots
}

// FirstIndex returns the index of the oldest entry, or 0.
func (d *Lying) FirstIndex() (uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.log) == 0 {
		return 0, nil
	}
	return d.log[0].Index, nil
}

// LastIndex returns the index of the newest entry, or 0.
func (d *Lying) LastIndex() (uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.log) == 0 {
		return 0, nil
	}
	return d.log[len(d.log)-1].Index, nil
}

// atLocked returns the place of the entry with an index, or that where it would be.
func (d *Lying) atLocked(index uint64) (place int, found bool) {
	return slices.BinarySearchFunc(d.log, index, func(l raft.Log, index uint64) int { return cmp.Compare(l.Index, index) })
}

// GetLog reads an entry.
func (d *Lying) GetLog(index uint64, to *raft.Log) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	i, found := d.atLocked(index)
	if !found {
		return raft.ErrLogNotFound
	}
	*to = d.log[i]
	return nil
}

// StoreLog stores an entry.
func (d *Lying) StoreLog(l *raft.Log) error { return d.StoreLogs([]*raft.Log{l}) }

// StoreLogs stores entries.
func (d *Lying) StoreLogs(list []*raft.Log) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range list {
		if i, found := d.atLocked(l.Index); found {
			d.log[i] = *l
		} else {
			d.log = slices.Insert(d.log, i, *l)
		}
	}
	return nil
}

// DeleteRange removes the entries from first to last, both included.
func (d *Lying) DeleteRange(first, last uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	from, _ := d.atLocked(first)
	to, _ := d.atLocked(last + 1)
	d.log = slices.Delete(d.log, from, to)
	return nil
}

// Set stores a value.
func (d *Lying) Set(key, val []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	k := string(key)
	if old, ok := d.values[k]; ok {
		d.before = func() { d.values[k] = old }
	} else {
		d.before = func() { delete(d.values, k) }
	}
	d.values[k] = bytes.Clone(val)
	return nil
}

// Get reads a value.
func (d *Lying) Get(key []byte) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if v, ok := d.values[string(key)]; ok {
		return bytes.Clone(v), nil
	}
	return nil, errNotFound
}

// SetUint64 stores a number.
func (d *Lying) SetUint64(key []byte, val uint64) error {
	return d.Set(key, binary.BigEndian.AppendUint64(nil, val))
}

// GetUint64 reads a number.
func (d *Lying) GetUint64(key []byte) (uint64, error) {
	v, err := d.Get(key)
	if err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint64(v), nil
}

// ReadAt reads the watermark.
func (d *Lying) ReadAt(b []byte, at int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return bytes.NewReader(d.mark).ReadAt(b, at)
}

// WriteAt writes the watermark.
func (d *Lying) WriteAt(b []byte, at int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if grow := int(at) + len(b) - len(d.mark); grow > 0 {
		d.mark = append(d.mark, make([]byte, grow)...)
	}
	return copy(d.mark[at:], b), nil
}

// Sync does nothing.
func (d *Lying) Sync() error { return nil }

var (
	_ raft.LogStore     = (*Lying)(nil)
	_ raft.StableStore  = (*Lying)(nil)
	_ logstore.MarkFile = (*Lying)(nil)
)
