package logstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"hash/fnv"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
	bolt "go.etcd.io/bbolt"
)

// Of all extensions, an entry has the one that the leader would have added.
func FuzzVerify(f *testing.F) {
	l := &raft.Log{Index: 7, Term: 3, Type: raft.LogCommand, Data: []byte("data")}
	sum := make([]byte, sumSize)
	putChecksum(sum, l)
	f.Add(l.Index, l.Term, byte(l.Type), l.Data, sum)
	f.Add(l.Index, l.Term, byte(l.Type), l.Data, []byte(nil))
	f.Fuzz(func(t *testing.T, index, term uint64, kind byte, data, extensions []byte) {
		l := &raft.Log{Index: index, Term: term, Type: raft.LogType(kind), Data: data, Extensions: extensions}
		want := make([]byte, sumSize)
		putChecksum(want, l)
		err := verify(l)
		if ok := bytes.Equal(extensions, want); ok != (err == nil) {
			t.Errorf("the entry with the extensions %q: %v; its checksum is %q", extensions, err, want)
		}
		out, err := withChecksums([]*raft.Log{l})
		switch {
		case err == nil && (!bytes.Equal(out[0].Extensions, want) || !bytes.Equal(out[0].Data, data)):
			t.Errorf("stored is %+v", out[0])
		case err != nil && !errors.Is(err, ErrDamaged):
			t.Error(err)
		}
	})
}

// A mark that can be read is the same when it was written again.
func FuzzMark(f *testing.F) {
	f.Add(encodeMark(mark{term: 3, voteTerm: 2, last: 9, lastTerm: 3, cand: []byte("one")}, 4), false)
	f.Add(encodeMark(mark{}, 1)[:60], true)
	f.Fuzz(func(t *testing.T, b []byte, sealed bool) {
		slot := make([]byte, slotSize)
		copy(slot, b)
		if sealed { // as if it had been written so
			binary.BigEndian.PutUint32(slot[slotSize-4:], crc32.Checksum(slot[:slotSize-4], castagnoli))
		}
		m, seq, ok := decodeMark(slot)
		if !ok {
			return
		}
		again, seq2, ok := decodeMark(encodeMark(m, seq))
		if !ok || seq2 != seq || again.term != m.term || again.voteTerm != m.voteTerm || again.last != m.last ||
			again.lastTerm != m.lastTerm || !bytes.Equal(again.cand, m.cand) {
			t.Errorf("%+v %d became %+v %d %v", m, seq, again, seq2, ok)
		}
	})
}

// The walk over the pages of a bbolt file ends for every content of the file, with no error or with one
// that reports damage. Each changed byte is also tried in a meta page whose checksum fits, as a fault of
// the program could write it.
func FuzzPages(f *testing.F) {
	path := filepath.Join(f.TempDir(), "db")
	db, err := bolt.Open(path, 0o600, &bolt.Options{PageSize: 1024})
	if err != nil {
		f.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucket([]byte("logs"))
		for i := byte(0); err == nil && i < 60; i++ {
			err = b.Put([]byte{i}, bytes.Repeat([]byte{i}, 40))
		}
		if err == nil {
			_, err = b.CreateBucket([]byte("within"))
		}
		return err
	})
	if err := errors.Join(err, db.Close()); err != nil {
		f.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	if err := checkPages(path); err != nil {
		f.Fatalf("the file is intact: %v", err)
	}
	f.Add(uint32(0), []byte(nil))
	f.Add(uint32(boltHeader+8), binary.NativeEndian.AppendUint32(nil, 1<<31))          // the size of pages
	f.Add(uint32(boltHeader+40), binary.NativeEndian.AppendUint64(nil, 1<<62))         // the end
	f.Add(uint32(boltHeader+16), binary.NativeEndian.AppendUint64(nil, 1<<54))         // the root
	f.Add(uint32(3*1024+12), binary.NativeEndian.AppendUint32(nil, 1<<32-1))           // the length of a page
	f.Add(uint32(1024+boltHeader+40), bytes.Repeat([]byte{0xff}, 8))                   // the other meta page
	f.Add(uint32(4*1024+boltHeader), bytes.Repeat([]byte{0xff}, boltElement))          // an element
	f.Add(uint32(len(good)-1024+8), binary.NativeEndian.AppendUint16(nil, boltBranch)) // a kind
	f.Fuzz(func(t *testing.T, at uint32, change []byte) {
		data := bytes.Clone(good)
		copy(data[int(at)%len(data):], change)
		for _, meta := range []int{0, 1024} {
			m := data[meta+boltHeader:]
			sum := fnv.New64a()
			sum.Write(m[:boltMetaSize-8])
			binary.NativeEndian.PutUint64(m[56:], sum.Sum64())
		}
		path := filepath.Join(t.TempDir(), "db")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		err := checkPages(path)
		if err != nil && (!errors.Is(err, ErrDamaged) || bytes.Equal(data, good)) {
			t.Error(err)
		}
	})
}
