package worker

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"google.golang.org/protobuf/proto"

	"github.com/coopr/coopr/internal/quarantine"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Journal keeps leases across a crash of the agent.
type Journal interface {
	// Load returns the tasks that were held when the agent ended.
	Load() ([]*pb.Held, error)
	// Put writes the current state of leases.
	Put(held ...*pb.Held) error
	// Forget removes leases.
	Forget(fences ...Key) error
	// Check returns an error unless the journal accepts records.
	Check() error
	Close() error
}

// Key identifies one attempt at a task.
type Key struct {
	Task  string
	Fence uint64
}

// File is a journal in one file. Each record is a kind, a length, a CRC-32 and a pb.Held. A
// record of the kind forgotten removes the lease.
//
// The file is not synced. A crash of the agent loses nothing that was written. A crash of
// the machine ends the plugins, too; the leader then has the effects of the lease observed,
// as it does for an agent that never returns
// (docs/decisions/005-journal.md). The same holds for records that the disk has damaged.
type File struct {
	path string
	log  *slog.Logger

	mu   sync.Mutex
	f    *os.File // nil while the file cannot be written
	size int64
	live map[Key]*pb.Held
	// stale reports whether the file holds something else than live.
	stale bool
	// damage was found in the file, which has not been moved aside yet.
	damage error
}

const (
	compactAt = 4 << 20 // the size at which the file is rewritten
	maxRecord = 64 << 20
)

// OpenFile opens or creates a journal. It removes a record at the end that a crash left incomplete. If other
// records are damaged, it keeps those that are whole and moves the damaged file to the directory quarantine
// next to it. A file that cannot be read or written stays as it is; Check tries again.
func OpenFile(path string, log *slog.Logger) *File {
	j := &File{path: path, log: log, live: map[Key]*pb.Held{}}
	b, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EISDIR):
		j.stale = true // attach handles these
	case err == nil:
		j.damage = j.read(b)
	default:
		j.damage = err
	}
	if err := j.attach(); err != nil {
		log.Warn("the journal of tasks cannot be opened", "error", err)
	}
	return j
}

// ReadJournal returns the number of tasks that the journal in a file holds. It changes nothing. The error describes damage, or why
// the file cannot be read.
func ReadJournal(path string) (held int, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	j := &File{live: map[Key]*pb.Held{}}
	err = j.read(b)
	return len(j.live), err
}

// read applies the records of a file. Its error reports damage other than an incomplete record at the end.
func (j *File) read(b []byte) error {
	var damage error
	for at := 0; at < len(b); {
		kind, h, n := parse(b[at:])
		if h == nil {
			next := at + 1
			for next < len(b) && !startsRecord(b[next:]) {
				next++
			}
			if next < len(b) || !torn(b[at:], at == 0) {
				damage = errors.Join(damage, fmt.Errorf("%d bytes at %d are damaged", next-at, at))
			}
			at = next
			continue
		}
		if k := (Key{h.Task, h.Fence}); kind == forgotten {
			delete(j.live, k)
		} else {
			j.live[k] = h
		}
		at += n
		j.size = int64(at)
	}
	return damage
}

// attach opens the file for writing. If it holds something else than what is held, it is replaced. A damaged file is
// moved aside before.
func (j *File) attach() error {
	f, err := os.OpenFile(j.path, os.O_RDWR, 0)
	switch {
	case err == nil && j.damage == nil && !j.stale:
		if err := f.Truncate(j.size); err != nil {
			return fmt.Errorf("journal: %w", errors.Join(err, f.Close()))
		}
		j.f = f
		_, err = f.Seek(j.size, io.SeekStart)
		return err
	case err == nil:
		err = f.Close()
	case errors.Is(err, syscall.EISDIR):
		j.damage, err = errors.New("a directory is in its place"), nil
	case errors.Is(err, fs.ErrNotExist):
		j.damage, err = nil, nil
	}
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if j.damage != nil {
		to, err := quarantine.Move(filepath.Join(filepath.Dir(j.path), "quarantine"), j.path, j.damage)
		if err != nil {
			return fmt.Errorf("the journal is damaged (%w) and cannot be moved aside: %w", j.damage, err)
		}
		j.log.Warn("the journal of tasks was damaged and was put aside; tasks that are missing in it are observed before they are repeated",
			"to", to, "kept", len(j.live), "damage", j.damage)
		j.damage = nil
	}
	return j.rewrite()
}

// Check returns an error unless the journal accepts records. If the file could not be written before, Check tries again.
func (j *File) Check() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.f == nil {
		if err := j.attach(); err != nil {
			return err
		}
	}
	return j.write(record(nil, forgotten, &pb.Held{Task: "none"}))
}

const (
	kept      = 1
	forgotten = 2
	headSize  = 9 // kind, length, sum
)

func record(b []byte, kind byte, h *pb.Held) []byte {
	at := len(b)
	b = append(b, kind, 0, 0, 0, 0, 0, 0, 0, 0) // headSize bytes
	b, _ = proto.MarshalOptions{}.MarshalAppend(b, h)
	body := b[at+headSize:]
	binary.BigEndian.PutUint32(b[at+1:], uint32(len(body)))
	binary.BigEndian.PutUint32(b[at+5:], crc32.ChecksumIEEE(body))
	return b
}

// parse returns the record at the beginning of b and its size. If there is no whole record, h is nil.
func parse(b []byte) (kind byte, h *pb.Held, size int) {
	if len(b) < headSize {
		return 0, nil, 0
	}
	n := binary.BigEndian.Uint32(b[1:])
	if kind = b[0]; kind != kept && kind != forgotten || n > maxRecord || int(n) > len(b)-headSize {
		return 0, nil, 0
	}
	body := b[headSize : headSize+int(n)]
	h = &pb.Held{}
	if crc32.ChecksumIEEE(body) != binary.BigEndian.Uint32(b[5:]) || proto.Unmarshal(body, h) != nil {
		return 0, nil, 0
	}
	return kind, h, headSize + int(n)
}

// startsRecord reports whether a whole record is at the beginning of b. It computes a sum only where the name of
// a task follows, because it is called for each byte behind a damaged one.
func startsRecord(b []byte) bool {
	const nameTag = 1<<3 | 2 // of pb.Held.task
	if len(b) < headSize+2 || b[headSize] != nameTag {
		return false
	}
	_, h, _ := parse(b)
	return h != nil
}

// torn reports whether b is what a crash can leave at the end of a file: a record that is not complete, or
// zeros. A whole file of zeros is damaged.
func torn(b []byte, whole bool) bool {
	if len(bytes.Trim(b, "\x00")) == 0 {
		return !whole
	}
	if b[0] != kept && b[0] != forgotten {
		return false
	}
	return len(b) < headSize || int64(binary.BigEndian.Uint32(b[1:])) >= int64(len(b)-headSize)
}

// Load returns what the file held when it was opened.
func (j *File) Load() ([]*pb.Held, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := make([]*pb.Held, 0, len(j.live))
	for _, h := range j.live {
		out = append(out, h)
	}
	return out, nil
}

// Put writes the current state of leases.
func (j *File) Put(held ...*pb.Held) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	var b []byte
	for _, h := range held {
		b = record(b, kept, h)
	}
	if err := j.write(b); err != nil {
		return err
	}
	for _, h := range held {
		j.live[Key{h.Task, h.Fence}] = h
	}
	return nil
}

// Forget removes leases. While the file cannot be written, it removes them in memory; Check writes the file again.
func (j *File) Forget(keys ...Key) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	var b []byte
	for _, k := range keys {
		if _, ok := j.live[k]; ok {
			delete(j.live, k)
			b = record(b, forgotten, &pb.Held{Task: k.Task, Fence: k.Fence})
		}
	}
	if len(j.live) == 0 && j.size > 0 && j.f != nil {
		// Nothing is held: an empty file means the same.
		if err := j.f.Truncate(0); err != nil {
			return fmt.Errorf("journal: %w", err)
		}
		j.size = 0
		_, err := j.f.Seek(0, io.SeekStart)
		return err
	}
	return j.write(b)
}

// write appends records. If it fails, it leaves no incomplete record.
func (j *File) write(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	if j.f == nil {
		j.stale = true
		return errors.New("journal: the file cannot be written")
	}
	if j.size > compactAt {
		if err := j.compact(); err != nil {
			return err
		}
	}
	if _, err := j.f.Write(b); err != nil {
		terr := j.f.Truncate(j.size)
		_, serr := j.f.Seek(j.size, io.SeekStart)
		return fmt.Errorf("journal: %w", errors.Join(err, terr, serr))
	}
	j.size += int64(len(b))
	return nil
}

// compact rewrites the file, unless most of it is held and compaction would not help.
func (j *File) compact() error {
	var held int64
	for _, h := range j.live {
		held += headSize + int64(proto.Size(h))
	}
	if held > j.size/2 {
		return nil
	}
	return j.rewrite()
}

// rewrite writes the records of the held tasks to a new file, which replaces the old one.
func (j *File) rewrite() error {
	var b []byte
	for _, h := range j.live {
		b = record(b, kept, h)
	}
	f, err := os.OpenFile(j.path+".new", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	_, err = f.Write(b)
	if err == nil {
		err = os.Rename(f.Name(), j.path)
	}
	if err != nil {
		return fmt.Errorf("journal: %w", errors.Join(err, f.Close(), os.Remove(f.Name())))
	}
	if j.f != nil {
		err = j.f.Close()
	}
	j.f, j.size = f, int64(len(b))
	return err
}

// Close closes the file.
func (j *File) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.f == nil {
		return nil
	}
	return j.f.Close()
}
