package worker

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"sync"

	"google.golang.org/protobuf/proto"

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
// (docs/decisions/005-journal.md).
type File struct {
	mu   sync.Mutex
	f    *os.File
	size int64
	live map[Key]*pb.Held
}

const (
	compactAt = 4 << 20 // the size at which the file is rewritten
	maxRecord = 64 << 20
)

// OpenFile opens or creates a journal. It cuts off a record at the end that a crash left
// incomplete.
func OpenFile(path string) (*File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	j := &File{f: f, live: map[Key]*pb.Held{}}
	if err := j.read(); err != nil {
		return nil, errors.Join(fmt.Errorf("journal %s: %w", path, err), f.Close())
	}
	return j, nil
}

func (j *File) read() error {
	r := bufio.NewReader(j.f)
	for {
		var head [9]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			break
		}
		n := binary.BigEndian.Uint32(head[1:])
		if n > maxRecord {
			break
		}
		body := make([]byte, n)
		if _, err := io.ReadFull(r, body); err != nil || crc32.ChecksumIEEE(body) != binary.BigEndian.Uint32(head[5:]) {
			break
		}
		h := &pb.Held{}
		if err := proto.Unmarshal(body, h); err != nil {
			break
		}
		if k := (Key{h.Task, h.Fence}); head[0] == forgotten {
			delete(j.live, k)
		} else {
			j.live[k] = h
		}
		j.size += int64(len(head)) + int64(n)
	}
	if err := j.f.Truncate(j.size); err != nil {
		return err
	}
	_, err := j.f.Seek(j.size, io.SeekStart)
	return err
}

const (
	kept      = 1
	forgotten = 2
)

func record(b []byte, kind byte, h *pb.Held) []byte {
	at := len(b)
	b = append(b, kind, 0, 0, 0, 0, 0, 0, 0, 0)
	b, _ = proto.MarshalOptions{}.MarshalAppend(b, h)
	body := b[at+9:]
	binary.BigEndian.PutUint32(b[at+1:], uint32(len(body)))
	binary.BigEndian.PutUint32(b[at+5:], crc32.ChecksumIEEE(body))
	return b
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

// Forget removes leases.
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
	if len(j.live) == 0 && j.size > 0 {
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

// compact writes the records of the held tasks to a new file, which replaces the old one.
func (j *File) compact() error {
	var b []byte
	for _, h := range j.live {
		b = record(b, kept, h)
	}
	if int64(len(b)) > j.size/2 {
		return nil // most of it is held: compaction would not help
	}
	path := j.f.Name()
	f, err := os.OpenFile(path+".new", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if _, err := f.Write(b); err != nil {
		return fmt.Errorf("journal: %w", errors.Join(err, f.Close(), os.Remove(f.Name())))
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("journal: %w", errors.Join(err, f.Close()))
	}
	// The open file would keep the name that it was created with: open it again.
	renamed, err := os.OpenFile(path, os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("journal: %w", errors.Join(err, f.Close()))
	}
	if _, err := renamed.Seek(0, io.SeekEnd); err != nil {
		return fmt.Errorf("journal: %w", errors.Join(err, f.Close(), renamed.Close()))
	}
	err = errors.Join(f.Close(), j.f.Close())
	j.f, j.size = renamed, int64(len(b))
	return err
}

// Close closes the file.
func (j *File) Close() error { return j.f.Close() }
