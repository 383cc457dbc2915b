package logstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/hashicorp/raft"
)

// The library's keys in the stable store.
const (
	keyVoteTerm = "LastVoteTerm"
	keyVoteCand = "LastVoteCand"
)

// noCandidate takes the place of the candidate of a vote if it is not known which one of two it was. The member then
// votes for nobody in that term.
const noCandidate = "unknown"

// A watermark file holds two slots, which are written in turn. So one of them is whole after a crash.
const (
	watermarkMagic = "mark"
	slotSize       = 512
	maxCand        = 256
	lastTermAt     = 42 + maxCand // where the term of the last entry stands; 0 in a file of an older build
)

// mark is what a member has promised to the others: the term, the vote in it, and the last entry that it
// has acknowledged, with that entry's term, which is 0 if it is not known.
type mark struct {
	term, voteTerm, last, lastTerm uint64
	cand                           []byte
}

// MarkFile is the file of a watermark: an *os.File, or a simulated one.
type MarkFile interface {
	io.ReaderAt
	io.WriterAt
	Sync() error
}

// watermark keeps the mark in a file next to the directory of the stores. With it a member notices at its
// next start if its stores have lost acknowledged entries or votes. A member that has lost entries does not
// vote until it has them again, because it could help to elect a leader that lacks them too.
//
// The file is written after the stores, so it is never ahead of them, and it is not synced for each entry:
// after a power cut it may be behind, which does no harm. A nil watermark keeps nothing.
type watermark struct {
	logger *slog.Logger

	mu     sync.Mutex
	file   MarkFile
	seq    uint64
	now    mark
	owed   uint64   // the member gives no vote until it holds this entry; 0: it owes none
	paid   []func() // called when owed falls to 0
	failed bool     // writing has failed, and that has been logged
}

// openMark opens or creates the file of the watermark of the stores in dir.
func openMark(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Clean(dir)+watermarkSuffix, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log's mark: %w", explain(err))
	}
	return f, nil
}

// readMark reads a watermark. found is false if the file holds none.
func readMark(f MarkFile, logger *slog.Logger) (t *watermark, found bool, err error) {
	t = &watermark{logger: logger, file: f}
	both := make([]byte, 2*slotSize)
	n, err := f.ReadAt(both, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false, fmt.Errorf("read the log's mark: %w", err)
	}
	for ; n >= slotSize; n -= slotSize {
		if m, seq, ok := decodeMark(both[n-slotSize : n]); ok && seq > t.seq {
			t.now, t.seq, found = m, seq, true
		}
	}
	return t, found, nil
}

func encodeMark(m mark, seq uint64) []byte {
	b := make([]byte, slotSize)
	copy(b, watermarkMagic)
	b[4] = 1 // the format
	for i, v := range []uint64{seq, m.term, m.voteTerm, m.last} {
		binary.BigEndian.PutUint64(b[8+8*i:], v)
	}
	if len(m.cand) <= maxCand { // a longer name is left out: then no candidate is the one that was voted for
		binary.BigEndian.PutUint16(b[40:], uint16(len(m.cand)))
		copy(b[42:], m.cand)
	}
	binary.BigEndian.PutUint64(b[lastTermAt:], m.lastTerm)
	binary.BigEndian.PutUint32(b[slotSize-4:], crc32.Checksum(b[:slotSize-4], castagnoli))
	return b
}

func decodeMark(b []byte) (m mark, seq uint64, ok bool) {
	size := int(binary.BigEndian.Uint16(b[40:]))
	if string(b[:len(watermarkMagic)]) != watermarkMagic || b[4] != 1 || size > maxCand ||
		binary.BigEndian.Uint32(b[slotSize-4:]) != crc32.Checksum(b[:slotSize-4], castagnoli) {
		return mark{}, 0, false
	}
	m = mark{term: binary.BigEndian.Uint64(b[16:]), voteTerm: binary.BigEndian.Uint64(b[24:]), last: binary.BigEndian.Uint64(b[32:])}
	m.cand = append(m.cand, b[42:42+size]...)
	m.lastTerm = binary.BigEndian.Uint64(b[lastTermAt:])
	return m, binary.BigEndian.Uint64(b[8:]), true
}

// write writes the mark to the older slot. An error is only logged: the stores hold the same.
func (t *watermark) writeLocked(sync bool) {
	t.seq++
	_, err := t.file.WriteAt(encodeMark(t.now, t.seq), int64(t.seq%2)*slotSize)
	if err == nil && sync {
		err = t.file.Sync()
	}
	if err != nil && !t.failed {
		t.logger.Warn(
			"cannot write the file that shows at the next start whether the Raft log has lost entries; check the disk of data_dir",
			"error", explain(err),
		)
	}
	t.failed = err != nil
}

// appended notes that the log has reached last, an entry of a term.
func (t *watermark) appended(last, term uint64) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.payLocked(last)
	t.reachLocked(last, term)
	t.writeLocked(false)
}

// reachLocked sets the end of the log, unless the member owes later entries.
func (t *watermark) reachLocked(last, term uint64) {
	if last >= t.owed {
		t.now.last, t.now.lastTerm = last, term
	}
}

// restored notes that the member has the state up to last, an entry of a term, from a snapshot.
func (t *watermark) restored(last, term uint64) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if paid := t.payLocked(last); paid || last > t.now.last {
		if last >= t.now.last {
			t.now.last, t.now.lastTerm = last, term
		}
		t.writeLocked(false)
	}
}

// payLocked lets a member vote again that has the entries up to last, if it owed them. It reports whether it did.
func (t *watermark) payLocked(last uint64) bool {
	if t.owed == 0 || last < t.owed {
		return false
	}
	t.owed = 0
	t.logger.Info("this member has received the entries that its log had lost, and votes again", "index", last)
	for _, f := range t.paid {
		go f()
	}
	t.paid = nil
	return true
}

// cut notes that the entries after last, an entry of a term, were removed, to be replaced by the leader's.
// A member that owes entries goes on to owe them.
func (t *watermark) cut(last, term uint64) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reachLocked(last, term)
	t.writeLocked(true)
}

// set notes a value of the library.
func (t *watermark) set(key string, val []byte) {
	if t == nil || key != keyVoteCand {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now.cand = append([]byte(nil), val...)
	t.writeLocked(false)
}

// setNumber notes a number of the library.
func (t *watermark) setNumber(key string, val uint64) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch key {
	case keyCurrentTerm:
		t.now.term = val
	case keyVoteTerm:
		t.now.voteTerm = val
	default:
		return
	}
	t.writeLocked(false)
}

// owes returns the entry that the member must hold before it votes, or 0.
func (t *watermark) owes() uint64 {
	if t == nil {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.owed
}

// forgive lets the member vote without the entries that it owes.
func (t *watermark) forgive(last, term uint64) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.owed, t.paid, t.now.last, t.now.lastTerm = 0, nil, last, term
	t.writeLocked(true)
}

// onPaid has f called, on a goroutine of its own, when the member may vote again. It reports false if the
// member may vote already.
func (t *watermark) onPaid(f func()) bool {
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.owed > 0 {
		t.paid = append(t.paid, f)
	}
	return t.owed > 0
}

// compare compares the stores with the mark. It writes a lost term and vote back to the stores, and
// records which entries they lack. Without a mark it makes one.
func (t *watermark) compare(found bool, log raft.LogStore, stable raft.StableStore, snapshots raft.SnapshotStore) error {
	has, err := markOf(log, stable, snapshots)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !found {
		t.now = has
		t.writeLocked(true)
		return nil
	}
	switch {
	case has.voteTerm < t.now.voteTerm:
		// The candidate is written first: otherwise a crash could leave the new term with the old candidate.
		if err := stable.Set([]byte(keyVoteCand), t.now.cand); err != nil {
			return fmt.Errorf("store the vote again: %w", explain(err))
		}
		if err := stable.SetUint64([]byte(keyVoteTerm), t.now.voteTerm); err != nil {
			return fmt.Errorf("store the vote again: %w", explain(err))
		}
		has.cand, has.voteTerm = t.now.cand, t.now.voteTerm
	case has.voteTerm == t.now.voteTerm && !bytes.Equal(has.cand, t.now.cand):
		// Either the store lost the candidate, or a crash came before the mark was written.
		has.cand = []byte(noCandidate)
		if err := stable.Set([]byte(keyVoteCand), has.cand); err != nil {
			return fmt.Errorf("store that the vote is given: %w", explain(err))
		}
	}
	if has.term < t.now.term {
		t.logger.Warn("the store lost this member's term and vote; both are restored", "term", t.now.term, "found", has.term)
		if err := stable.SetUint64([]byte(keyCurrentTerm), t.now.term); err != nil {
			return fmt.Errorf("store the term again: %w", explain(err))
		}
		has.term = t.now.term
	}
	if has.last < t.now.last {
		t.owed = t.now.last
		t.logger.Warn("the log has lost entries; this member does not vote until the leader has sent them again",
			"last", has.last, "acknowledged", t.owed)
	}
	if has.last < t.owed {
		has.last, has.lastTerm = t.owed, t.now.lastTerm
	}
	t.now = has
	t.writeLocked(true)
	return nil
}

// markOf returns the mark that fits the stores.
func markOf(log raft.LogStore, stable raft.StableStore, snapshots raft.SnapshotStore) (mark, error) {
	var m mark
	last, err := log.LastIndex()
	if err != nil {
		return m, fmt.Errorf("read the log: %w", err)
	}
	list, err := snapshots.List()
	if err != nil {
		return m, fmt.Errorf("list snapshots: %w", err)
	}
	if m.last, m.lastTerm = last, termOf(log, last); len(list) > 0 && list[0].Index >= last {
		m.last, m.lastTerm = list[0].Index, list[0].Term
	}
	if m.term, err = number(stable, keyCurrentTerm); err != nil {
		return m, err
	}
	if m.voteTerm, err = number(stable, keyVoteTerm); err != nil {
		return m, err
	}
	if m.cand, err = stable.Get([]byte(keyVoteCand)); notThere(err) {
		err = nil
	}
	return m, err
}

// termOf returns the term of an entry of the log, or 0 if it cannot be read.
func termOf(log raft.LogStore, index uint64) uint64 {
	var l raft.Log
	if index == 0 || log.GetLog(index, &l) != nil {
		return 0
	}
	return l.Term
}

// number reads a number that may not be there yet.
func number(stable raft.StableStore, key string) (uint64, error) {
	v, err := stable.GetUint64([]byte(key))
	if err != nil && !notThere(err) {
		return 0, fmt.Errorf("read %s: %w", key, err)
	}
	return v, nil
}

// notThere reports whether a stable store lacks a key. The stores have
// no common error for it, and hashicorp/raft compares the text, too.
func notThere(err error) bool { return err != nil && err.Error() == "not found" }
