package logstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"runtime/debug"

	"github.com/hashicorp/raft"
)

// An entry's checksum travels in raft.Log.Extensions: four bytes that mark it, the number of its format,
// three zeros, and the CRC-32C of the entry's index, term, type and data. The leader adds it before it
// stores the entry, and it goes with the entry to the other members. So every member checks its own disk
// against what the leader held in memory.
const (
	sumMark   = "csum"
	sumFormat = 1
	sumSize   = 12
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(l *raft.Log) uint32 {
	var head [17]byte
	binary.BigEndian.PutUint64(head[:], l.Index)
	binary.BigEndian.PutUint64(head[8:], l.Term)
	head[16] = byte(l.Type)
	return crc32.Update(crc32.Checksum(head[:], castagnoli), castagnoli, l.Data)
}

func putChecksum(to []byte, l *raft.Log) {
	copy(to, sumMark)
	to[len(sumMark)] = sumFormat
	binary.BigEndian.PutUint32(to[8:], checksum(l))
}

// withChecksums returns the entries, each with a checksum. Entries that bring one are checked. The
// argument stays as it is, because its entries belong to the library.
func withChecksums(logs []*raft.Log) ([]*raft.Log, error) {
	out := make([]*raft.Log, len(logs))
	copies := make([]raft.Log, len(logs))
	sums := make([]byte, sumSize*len(logs))
	for i, l := range logs {
		if len(l.Extensions) > 0 {
			if err := verify(l); err != nil {
				return nil, fmt.Errorf("%w: entry %d: %w", ErrDamaged, l.Index, err)
			}
			out[i] = l
			continue
		}
		sum := sums[i*sumSize : (i+1)*sumSize : (i+1)*sumSize]
		putChecksum(sum, l)
		copies[i] = *l
		copies[i].Extensions = sum
		out[i] = &copies[i]
	}
	return out, nil
}

// keySummed is the key in the stable store under which the first index stands from which on every entry
// has a checksum.
const keySummed = "ChecksumsFrom"

// summedFrom returns the index from which on every entry of a log has a checksum. The entries that an older
// build has stored have none; all that are stored from now on have one.
func summedFrom(log raft.LogStore, stable raft.StableStore) (uint64, error) {
	from, err := number(stable, keySummed)
	if err != nil || from > 0 {
		return from, err
	}
	last, err := log.LastIndex()
	if err != nil {
		return 0, fmt.Errorf("read the log: %w", err)
	}
	if err := stable.SetUint64([]byte(keySummed), last+1); err != nil {
		return 0, fmt.Errorf("store from where on entries have checksums: %w", explain(err))
	}
	return last + 1, nil
}

// verify compares an entry with its checksum.
func verify(l *raft.Log) error {
	e := l.Extensions
	switch {
	case len(e) != sumSize || string(e[:len(sumMark)]) != sumMark || e[4] != sumFormat || e[5]|e[6]|e[7] != 0:
		return errors.New("it has no valid checksum")
	case binary.BigEndian.Uint32(e[8:]) != checksum(l):
		return errors.New("its checksum does not match")
	}
	return nil
}

// checkedLog is the store on the disk. It checks each entry that it reads. Every entry has a checksum
// from the index summed on.
type checkedLog struct {
	raft.LogStore
	summed uint64
}

// GetLog reads an entry. Its error is raft.ErrLogNotFound or wraps ErrDamaged.
func (c *checkedLog) GetLog(index uint64, log *raft.Log) (err error) {
	// The stores map their files into memory. Reading a page that the disk no longer returns is a fault
	// of memory, and a page with wrong references makes bbolt panic.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: entry %d: %v", ErrDamaged, index, p)
		}
	}()
	err = c.LogStore.GetLog(index, log)
	switch {
	case errors.Is(err, raft.ErrLogNotFound):
		return err
	case err != nil:
		return fmt.Errorf("%w: entry %d: %w", ErrDamaged, index, err)
	case log.Index != index:
		return fmt.Errorf("%w: entry %d: entry %d is in its place", ErrDamaged, index, log.Index)
	}
	if len(log.Extensions) == 0 && index < c.summed {
		return nil // from an older build
	}
	if err := verify(log); err != nil {
		return fmt.Errorf("%w: entry %d: %w", ErrDamaged, index, err)
	}
	return nil
}

// IsMonotonic returns the store's own answer.
func (c *checkedLog) IsMonotonic() bool {
	m, ok := c.LogStore.(raft.MonotonicLogStore)
	return ok && m.IsMonotonic()
}

// read reads an entry and reports a hole in the log as damage.
func (g *Guard) read(index uint64, log *raft.Log) error { return g.readFrom(g.log, index, log) }

// readFrom is read from one of the stores, which may be that below the cache.
func (g *Guard) readFrom(store raft.LogStore, index uint64, log *raft.Log) error {
	err := store.GetLog(index, log)
	if !errors.Is(err, raft.ErrLogNotFound) || !g.needs(index) {
		return err
	}
	// The entry may have been appended between the two calls.
	if err = store.GetLog(index, log); errors.Is(err, raft.ErrLogNotFound) && g.needs(index) {
		return fmt.Errorf("%w: entry %d is missing", ErrDamaged, index)
	}
	return err
}

// needs reports whether the log must hold the entry: it is not behind the log's end, and no snapshot
// covers it. A restored snapshot may leave a gap below its index.
func (g *Guard) needs(index uint64) bool {
	first, err := g.log.FirstIndex()
	if err != nil || first == 0 || index < first {
		return false
	}
	last, err := g.log.LastIndex()
	if err != nil || index > last {
		return false
	}
	list, err := g.snapshots.List()
	return err == nil && (len(list) == 0 || list[0].Index < index)
}

// GetLog reads one entry into log. If the entry is damaged, the store becomes sick. The library panics
// on an error here, so while Raft runs, GetLog then returns an entry without content that no member
// stores; see Damaged.
func (g *Guard) GetLog(index uint64, log *raft.Log) error {
	err := g.read(index, log)
	if err == nil || errors.Is(err, raft.ErrLogNotFound) {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.armed {
		return err
	}
	if g.damaged == nil {
		g.damaged = err
	}
	g.sickLocked(err)
	*log = raft.Log{Index: index, Type: raft.LogNoop, Extensions: []byte(sumMark)}
	return nil
}

// Damaged returns the fault of the first damaged entry that was read while Raft ran, or nil. After that
// the member may neither apply an entry nor send one, because the damaged entry is missing.
func (g *Guard) Damaged() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.damaged
}
