package logstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// scrubRate is how many bytes a second are verified, so that the disk is free for other work.
	scrubRate = 20 << 20
	// scrubPiece is how much is verified between two pauses.
	scrubPiece = scrubRate / 50
)

// pacer bounds the rate of reads.
type pacer struct {
	began time.Time
	read  int64 // since began
	free  int64 // read without a pause
}

// took waits after a read of n bytes for as long as the rate demands, or until ctx ends. A nil pacer does not wait.
func (p *pacer) took(ctx context.Context, n int) error {
	if p == nil {
		return ctx.Err()
	}
	if p.began.IsZero() {
		p.began = time.Now()
	}
	p.read, p.free = p.read+int64(n), p.free+int64(n)
	if p.free < scrubPiece {
		return ctx.Err()
	}
	p.free = 0
	timer := time.NewTimer(time.Until(p.began.Add(time.Duration(p.read * int64(time.Second) / scrubRate))))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// ScrubLog verifies all entries on the disk, those in the cache too. Its error wraps ErrDamaged if one
// is damaged or missing. The member continues, as it may never need that entry.
func (s *Stores) ScrubLog(ctx context.Context) error {
	first, err := s.guard.FirstIndex()
	if err != nil {
		return fmt.Errorf("verify the log: %w", err)
	}
	last, err := s.guard.LastIndex()
	if err != nil {
		return fmt.Errorf("verify the log: %w", err)
	}
	var pace pacer
	for index := max(first, 1); index <= last; index++ {
		var l raft.Log
		if err := s.guard.scrub(index, &l); err != nil && !errors.Is(err, raft.ErrLogNotFound) {
			return fmt.Errorf("verify the log: %w", err)
		}
		if err := pace.took(ctx, len(l.Data)+len(l.Extensions)); err != nil {
			return err
		}
	}
	return nil
}

// scrub reads an entry from the disk. The stores are not closed meanwhile.
func (g *Guard) scrub(index uint64, log *raft.Log) error {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return ErrClosed
	}
	g.inFlight++
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.endLocked()
	}()
	return g.readFrom(g.recorder, index, log)
}

// ScrubSnapshots verifies all snapshots on the disk. Its error wraps ErrDamaged if one is damaged.
func (s *Stores) ScrubSnapshots(ctx context.Context) error {
	if s.dir == "" {
		return nil
	}
	list, err := os.ReadDir(filepath.Join(s.dir, snapshotDir)) // the store leaves out snapshots with a damaged description
	if err != nil {
		return fmt.Errorf("list snapshots: %w", err)
	}
	var pace pacer
	for _, e := range list {
		if !e.IsDir() || filepath.Ext(e.Name()) == unfinished {
			continue
		}
		dir := filepath.Join(s.dir, snapshotDir, e.Name())
		err := scrubSnapshot(ctx, dir, &pace)
		if _, gone := os.Stat(dir); err != nil && errors.Is(gone, fs.ErrNotExist) {
			continue // a newer one has replaced it
		}
		if err != nil {
			return fmt.Errorf("verify snapshot %s: %w", e.Name(), err)
		}
	}
	return nil
}

// scrubSnapshot compares a snapshot's data with the checksum in its description.
func scrubSnapshot(ctx context.Context, dir string, pace *pacer) (err error) {
	if err := checkDescription(dir); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, descriptionFile))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	var meta struct{ CRC []byte }
	if err := json.Unmarshal(text, &meta); err != nil {
		return fmt.Errorf("%w: its description: %w", ErrDamaged, err)
	}
	f, err := os.Open(filepath.Join(dir, dataFile))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	sum, buf := crc64.New(crc64.MakeTable(crc64.ECMA)), make([]byte, scrubPiece)
	for {
		n, err := f.Read(buf)
		sum.Write(buf[:n])
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		if err := pace.took(ctx, n); err != nil {
			return err
		}
	}
	if !bytes.Equal(sum.Sum(nil), meta.CRC) {
		return fmt.Errorf("%w: its checksum does not match", ErrDamaged)
	}
	return nil
}
