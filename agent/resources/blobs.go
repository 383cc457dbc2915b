package resources

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
)

// The refusals of Blobs.
var (
	// ErrMissing says that the content is not on this disk.
	ErrMissing = errors.New("the content is not here")
	// ErrSpoilt says that what is on the disk is not what was put there.
	ErrSpoilt = errors.New("the content on the disk is spoilt")
	// ErrTooLarge says that there is more of it than may be.
	ErrTooLarge = problem.New(problem.TooLarge, "too large")
	// ErrOther says that what came is not what was promised.
	ErrOther = errors.New("the checksum is another")
)

// Blobs are contents by their SHA-256, in hexadecimal.
type Blobs struct{ dir string }

// sumRule is what names a content; nothing else becomes a path.
var sumRule = regexp.MustCompile(`^[0-9a-f]{64}$`)

// unfinished begins the names of files that are being written.
const unfinished = "new-"

// OpenBlobs makes the folder and removes what an earlier agent did not finish.
func OpenBlobs(dir string) (*Blobs, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("plugin resources: %w", err)
	}
	left, err := filepath.Glob(filepath.Join(dir, unfinished+"*"))
	for _, path := range left {
		err = errors.Join(err, os.Remove(path))
	}
	if err != nil {
		return nil, fmt.Errorf("plugin resources: %w", err)
	}
	return &Blobs{dir}, nil
}

func (b *Blobs) path(sum string) (string, error) {
	if !sumRule.MatchString(sum) {
		return "", fmt.Errorf("%w: %q is no SHA-256", ErrMissing, sum)
	}
	return filepath.Join(b.dir, sum), nil
}

// Put keeps what r gives, at most so many bytes. Where want is not "", it must have that
// checksum. It is on the disk for good when Put returns.
func (b *Blobs) Put(r io.Reader, most int64, want string) (sum string, size int64, err error) {
	f, err := os.CreateTemp(b.dir, unfinished) // mode 0600
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
	size, err = io.Copy(io.MultiWriter(f, h), io.LimitReader(r, most+1))
	switch {
	case err != nil:
		return "", size, err
	case size > most:
		return "", size, fmt.Errorf("%w: at most %d bytes are taken", ErrTooLarge, most)
	}
	sum = hex.EncodeToString(h.Sum(nil))
	if want != "" && sum != want {
		return "", size, fmt.Errorf("%w: what came has SHA-256 %s, and %s was promised", ErrOther, sum, want)
	}
	if err = errors.Join(f.Sync(), f.Close()); err != nil {
		return "", size, err
	}
	if err = os.Rename(f.Name(), filepath.Join(b.dir, sum)); err != nil {
		return "", size, err
	}
	return sum, size, b.settle()
}

// settle makes the folder's entries last.
func (b *Blobs) settle() error {
	d, err := os.Open(b.dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Has says whether a content of that size is here. It does not read it.
func (b *Blobs) Has(sum string, size int64) bool {
	path, err := b.path(sum)
	if err != nil {
		return false
	}
	fi, err := os.Stat(path)
	return err == nil && fi.Size() == size
}

// Open gives a content, once all of it was compared with its checksum. What is spoilt is
// removed.
func (b *Blobs) Open(sum string) (*os.File, error) {
	path, err := b.path(sum)
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
		err = errors.Join(fmt.Errorf("%w: %s", ErrSpoilt, sum), os.Remove(path))
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Touch says that somebody needs the content still.
func (b *Blobs) Touch(sum string) {
	if path, err := b.path(sum); err == nil {
		now := time.Now()
		_ = os.Chtimes(path, now, now)
	}
}

// Sweep removes contents that nobody needs and that nobody has touched since a time:
// an upload is on the disk before anybody can know that it is needed.
func (b *Blobs) Sweep(needed func(sum string) bool, untouched time.Time) (removed int, err error) {
	entries, err := os.ReadDir(b.dir)
	for _, e := range entries {
		if !sumRule.MatchString(e.Name()) || needed(e.Name()) {
			continue
		}
		fi, ierr := e.Info()
		if ierr != nil || fi.ModTime().After(untouched) {
			continue
		}
		if rerr := os.Remove(filepath.Join(b.dir, e.Name())); rerr != nil {
			err = errors.Join(err, rerr)
			continue
		}
		removed++
	}
	return removed, err
}
