package blobs

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/internal/durable"
)

var (
	// ErrMissing is returned for a blob that is not on this disk.
	ErrMissing = errors.New("the content is not on this disk")
	// ErrCorrupt is returned for a blob that no longer has its checksum.
	ErrCorrupt = errors.New("the content on this disk is corrupt")
	// ErrTooLarge is returned for a content that exceeds a limit.
	ErrTooLarge = problem.New(problem.TooLarge, "too large")
	// ErrChecksum is returned for a content that does not have the announced checksum.
	ErrChecksum = errors.New("the checksum does not match")
)

// Store keeps blobs on disk by their SHA-256, in hexadecimal. It is safe for
// concurrent use.
type Store struct{ dir string }

// sumPattern is the form of a blob's name; no other name becomes a path.
var sumPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// unfinishedPrefix starts the names of files that are being written.
const unfinishedPrefix = "new-"

// OpenStore opens the store in a folder. It removes files that an earlier process did not finish; on
// a read-only disk they stay until the next start.
func OpenStore(dir string) *Store {
	left, _ := filepath.Glob(filepath.Join(dir, unfinishedPrefix+"*")) // fails for a bad pattern only
	for _, path := range left {
		_ = os.Remove(path)
	}
	return &Store{dir}
}

func (s *Store) path(sum string) (string, error) {
	if !sumPattern.MatchString(sum) {
		return "", fmt.Errorf("%w: %q is not a SHA-256", ErrMissing, sum)
	}
	return filepath.Join(s.dir, sum), nil
}

// Put stores what r returns, at most limit bytes. Unless want is "", the content
// must have that checksum. The blob is on stable storage when Put returns.
func (s *Store) Put(r io.Reader, limit int64, want string) (sum string, size int64, err error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return "", 0, err
	}
	f, err := os.CreateTemp(s.dir, unfinishedPrefix) // mode 0600
	if err != nil {
		return "", 0, err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	h := sha256.New()
	size, err = io.Copy(io.MultiWriter(f, h), io.LimitReader(r, limit+1))
	switch {
	case err != nil:
		return "", size, err
	case size > limit:
		return "", size, fmt.Errorf("%w: the limit is %d bytes", ErrTooLarge, limit)
	}
	sum = hex.EncodeToString(h.Sum(nil))
	if want != "" && sum != want {
		return "", size, fmt.Errorf("%w: the content has SHA-256 %s, but %s was announced", ErrChecksum, sum, want)
	}
	if err = errors.Join(f.Sync(), f.Close()); err != nil {
		return "", size, err
	}
	if err = os.Rename(f.Name(), filepath.Join(s.dir, sum)); err != nil {
		return "", size, err
	}
	return sum, size, durable.SyncFolder(s.dir)
}

// Has reports whether a blob of that size is on the disk. It does not read it.
func (s *Store) Has(sum string, size int64) bool {
	path, err := s.path(sum)
	if err != nil {
		return false
	}
	fi, err := os.Stat(path)
	return err == nil && fi.Size() == size
}

// Open returns a blob after comparing all of it with its checksum. A corrupt blob
// is removed, and Open fails with ErrCorrupt.
func (s *Store) Open(sum string) (*os.File, error) {
	path, err := s.path(sum)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", ErrMissing, sum)
	}
	if err != nil {
		return nil, err
	}
	h := sha256.New()
	_, err = io.Copy(h, f)
	if err == nil && hex.EncodeToString(h.Sum(nil)) != sum {
		err = errors.Join(fmt.Errorf("%w: %s", ErrCorrupt, sum), os.Remove(path))
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Touch marks a blob as used now, so that Sweep keeps it.
func (s *Store) Touch(sum string) {
	if path, err := s.path(sum); err == nil {
		now := time.Now()
		_ = os.Chtimes(path, now, now)
	}
}

// Sweep removes the blobs that are neither needed nor used since a time. An upload
// is on the disk before the state refers to it, so a recent blob is kept.
func (s *Store) Sweep(needed func(sum string) bool, unusedSince time.Time) (removed int, err error) {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // nothing was stored yet
	}
	for _, e := range entries {
		if !sumPattern.MatchString(e.Name()) || needed(e.Name()) {
			continue
		}
		fi, ierr := e.Info()
		if ierr != nil || fi.ModTime().After(unusedSince) {
			continue
		}
		if rerr := os.Remove(filepath.Join(s.dir, e.Name())); rerr != nil {
			err = errors.Join(err, rerr)
			continue
		}
		removed++
	}
	return removed, err
}
