package table

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"slices"

	"github.com/hashicorp/go-memdb"
	"google.golang.org/protobuf/proto"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
)

// A snapshot is a SnapshotHeader, then SnapshotRecords, then a length of zero, then the SHA-256 of
// all bytes before it. Each message follows its length (4 bytes, big-endian).
const (
	snapshotFormat = 1
	maxRecord      = 1 << 30
)

// ErrDamaged is the error for a snapshot that is incomplete or was altered.
var ErrDamaged = errors.New("the snapshot is damaged")

// Write writes a snapshot of all tables. The tables hold the entries up to index.
func Write(txn *memdb.Txn, index uint64, out io.Writer) error {
	buf := bufio.NewWriterSize(out, 1<<16)
	w := &recordWriter{w: buf, sum: sha256.New()}
	w.message(&pb.SnapshotHeader{Format: snapshotFormat, Index: index, FeatureLevel: Mesh(txn).FeatureLevel})
	// The order is fixed, so that equal states make equal snapshots.
	for _, name := range slices.Sorted(maps.Keys(Schema().Tables)) {
		if err := w.table(txn, name); err != nil {
			return fmt.Errorf("snapshot: table %s: %w", name, err)
		}
	}
	w.end()
	if w.err != nil {
		return fmt.Errorf("snapshot: %w", w.err)
	}
	return buf.Flush()
}

type recordWriter struct {
	w   io.Writer
	sum hash.Hash
	err error
}

func (w *recordWriter) message(m proto.Message) {
	b, err := logformat.Marshal(m)
	if err != nil {
		w.err = err
	}
	if w.err == nil {
		head := binary.BigEndian.AppendUint32(nil, uint32(len(b)))
		w.sum.Write(head)
		w.sum.Write(b)
		_, e1 := w.w.Write(head)
		_, e2 := w.w.Write(b)
		w.err = errors.Join(e1, e2)
	}
}

// table writes the rows of a table in the order of their keys.
func (w *recordWriter) table(txn *memdb.Txn, name string) error {
	it, err := txn.Get(name, "id")
	if err != nil {
		return err
	}
	history := historyWriter{node: func(n *record.Node) {
		w.message(&pb.SnapshotRecord{Row: &pb.SnapshotRecord_HistoryNode{HistoryNode: n}})
	}}
	for raw := it.Next(); raw != nil && w.err == nil; raw = it.Next() {
		if log, ok := raw.(*AuditRow); ok {
			log.pieces(func(piece []byte) {
				w.message(&pb.SnapshotRecord{Row: &pb.SnapshotRecord_Audit{Audit: piece}})
			})
			continue
		}
		rec, err := encodeRow(raw, &history)
		if err != nil {
			return err
		}
		w.message(rec)
	}
	return w.err
}

func (w *recordWriter) end() {
	if w.err == nil {
		head := make([]byte, 4)
		w.sum.Write(head)
		_, w.err = w.w.Write(append(head, w.sum.Sum(nil)...))
	}
}

// Read returns the tables of a snapshot and its index.
func Read(in io.Reader) (*memdb.MemDB, uint64, error) {
	db, err := memdb.NewMemDB(Schema())
	if err != nil {
		return nil, 0, err
	}
	r := &recordReader{r: bufio.NewReaderSize(in, 1<<16), sum: sha256.New()}
	var h pb.SnapshotHeader
	if ok, err := r.message(&h); err != nil || !ok {
		return nil, 0, fmt.Errorf("%w: no header: %w", ErrDamaged, err)
	}
	if h.Format != snapshotFormat || h.FeatureLevel > logformat.FeatureLevel {
		return nil, 0, problem.New(problem.Unsupported,
			"the snapshot has format %d and feature level %d, and this build reads format %d and level %d: upgrade this agent",
			h.Format, h.FeatureLevel, snapshotFormat, logformat.FeatureLevel)
	}
	txn := db.Txn(true)
	var history historyReader
	var log auditReader
	for {
		var rec pb.SnapshotRecord
		ok, err := r.message(&rec)
		if err != nil {
			return nil, 0, fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		if !ok {
			break
		}
		switch x := rec.Row.(type) {
		case *pb.SnapshotRecord_Audit:
			err = log.piece(x.Audit)
		case *pb.SnapshotRecord_HistoryNode:
			err = history.node(x.HistoryNode)
		default:
			var name string
			var row any
			if name, row, err = decodeRow(&rec, &history); err == nil {
				err = txn.Insert(name, row)
			}
		}
		if err != nil {
			return nil, 0, fmt.Errorf("%w: %w", ErrDamaged, err)
		}
	}
	if err := log.finish(txn); err != nil {
		return nil, 0, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	txn.Commit()
	return db, h.Index, nil
}

type recordReader struct {
	r   io.Reader
	sum hash.Hash
}

// message reads the next record. At the end of the snapshot it checks the sum and returns false.
func (r *recordReader) message(m proto.Message) (bool, error) {
	var head [4]byte
	if _, err := io.ReadFull(r.r, head[:]); err != nil {
		return false, fmt.Errorf("it ends too soon: %w", err)
	}
	r.sum.Write(head[:])
	n := binary.BigEndian.Uint32(head[:])
	if n == 0 {
		var want [sha256.Size]byte
		if _, err := io.ReadFull(r.r, want[:]); err != nil {
			return false, fmt.Errorf("it ends without its sum: %w", err)
		}
		if [sha256.Size]byte(r.sum.Sum(nil)) != want {
			return false, errors.New("the sum does not fit")
		}
		return false, nil
	}
	if n > maxRecord {
		return false, fmt.Errorf("a record of %d bytes", n)
	}
	// A damaged length must not allocate memory for bytes that are not there.
	b, err := io.ReadAll(io.LimitReader(r.r, int64(n)))
	if err != nil || len(b) != int(n) {
		return false, fmt.Errorf("it ends within a record: %w", err)
	}
	r.sum.Write(b)
	return true, proto.Unmarshal(b, m)
}
