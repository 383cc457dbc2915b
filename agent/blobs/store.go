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
	"strings"
	"sync"
	"time"

	"github.com/coopr/coopr/consensus/keyring"
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

// Store keeps blobs on disk by their SHA-256, in hexadecimal, and encrypts them. It is safe for
// concurrent use.
type Store struct {
	dir      string
	ring     Ring            // nil: none
	volatile func() bool     // whether memory encrypts without a key in the ring
	memory   *keyring.Cipher // ends with this process

	// mu keeps a sealed file from being replaced by one of another key while it is opened or put in its place.
	mu sync.RWMutex
	// reading keeps files in the clear from being overwritten while they are read.
	reading sync.RWMutex
}

// sumPattern is the form of a blob's checksum; nothing else becomes a path.
var sumPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

const (
	// unfinishedPrefix starts the names of files that are being written.
	unfinishedPrefix = "new-"
	// sealedSuffix ends the names of files that are encrypted.
	sealedSuffix = ".sealed"
)

// OpenStore opens the store in a folder, which encrypts with the active key of a ring that has begun. Without one, a store encrypts with
// a key that ends with this process as long as volatile returns true, so that its blobs are lost then, or else keeps them in the clear.
// OpenStore removes files that an earlier process did not finish; on a read-only disk they stay until the next start.
func OpenStore(dir string, ring Ring, volatile func() bool) *Store {
	left, _ := filepath.Glob(filepath.Join(dir, unfinishedPrefix+"*")) // fails for a bad pattern only
	for _, path := range left {
		_ = os.Remove(path)
	}
	return &Store{dir: dir, ring: ring, volatile: volatile, memory: keyring.NewCipher(keyring.NewKey(0))}
}

// path returns the path of a blob that is not encrypted. The other one has sealedSuffix.
func (s *Store) path(sum string) (string, error) {
	if !sumPattern.MatchString(sum) {
		return "", fmt.Errorf("%w: %q is not a SHA-256", ErrMissing, sum)
	}
	return filepath.Join(s.dir, sum), nil
}

// active returns the number of the key that encrypts now, and false if nothing does.
func (s *Store) active() (number uint32, ok bool) {
	if s.ring != nil && s.ring.Begun() {
		if number = s.ring.Set().Active; number != 0 {
			return number, true
		}
	}
	return 0, s.volatile()
}

// seal returns the header of a blob with a key. It returns nil if the store has no key to encrypt with.
func (s *Store) seal(sum string, key keyring.Key) ([]byte, error) {
	number, ok := s.active()
	switch {
	case !ok:
		return nil, nil
	case number == 0:
		return s.memory.Seal(headerPlace(sum), key.Secret[:]), nil
	}
	return s.ring.Seal(headerPlace(sum), key.Secret[:])
}

// unseal returns the key that a header has, and the number of the key that encrypts it. It fails with keyring.ErrNoKey if that key is not
// there, which is so too if the ring has another one of the same number: a keyring from a backup may have the right one again.
func (s *Store) unseal(f io.ReaderAt, sum string) (key keyring.Key, number uint32, err error) {
	header := make([]byte, headerLen)
	if _, err := f.ReadAt(header, 0); errors.Is(err, io.EOF) {
		return key, 0, fmt.Errorf("%w: it is too short", ErrCorrupt)
	} else if err != nil {
		return key, 0, err
	}
	if number, err = keyring.NumberOf(header); err != nil {
		return key, 0, err
	}
	var secret []byte
	switch {
	case number == 0:
		if secret, err = s.memory.Open(headerPlace(sum), header); err != nil {
			err = fmt.Errorf("%w: it ended with an earlier process of this agent", keyring.ErrNoKey)
		}
	case s.ring == nil:
		err = keyring.ErrNoKey
	default:
		if secret, err = s.ring.Open(headerPlace(sum), header); errors.Is(err, keyring.ErrNotSealed) {
			err = fmt.Errorf("%w: key %d of this agent does not open it", keyring.ErrNoKey, number)
		}
	}
	copy(key.Secret[:], secret)
	return key, number, err
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
	h, key := sha256.New(), keyring.NewKey(0)
	r = io.TeeReader(io.LimitReader(r, limit+1), h)
	_, sealed := s.active()
	if sealed {
		size, err = writeSealed(f, r, key)
	} else {
		size, err = io.Copy(f, r)
	}
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
	s.mu.RLock()
	defer s.mu.RUnlock()
	path := filepath.Join(s.dir, sum)
	if sealed {
		var header []byte
		if header, err = s.seal(sum, key); err == nil && header == nil {
			err = fmt.Errorf("%w: it was taken away while a content was written", keyring.ErrNoKey)
		}
		if err == nil {
			_, err = f.WriteAt(header, 0)
		}
		if err != nil {
			return "", size, err
		}
		path += sealedSuffix
	}
	if err = errors.Join(f.Sync(), f.Close()); err != nil {
		return "", size, err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return "", size, err
	}
	return sum, size, durable.SyncFolder(s.dir)
}

// Has reports whether a blob of that size is on the disk, and can be decrypted. It reads the header at most.
func (s *Store) Has(sum string, size int64) bool {
	path, err := s.path(sum)
	if err != nil {
		return false
	}
	if f, err := os.Open(path + sealedSuffix); err == nil {
		defer f.Close()
		fi, err := f.Stat()
		if _, _, uerr := s.unseal(f, sum); err == nil && uerr == nil && fi.Size() == sealedLen(size) {
			return true
		}
	}
	fi, err := os.Stat(path)
	return err == nil && fi.Size() == size
}

// Open returns a blob after comparing all of it with its checksum. A corrupt blob
// is removed, and Open fails with ErrCorrupt.
func (s *Store) Open(sum string) (*Content, error) {
	path, err := s.path(sum)
	if err != nil {
		return nil, err
	}
	c, err := s.openSealed(path+sealedSuffix, sum)
	if errors.Is(err, ErrMissing) {
		var cerr error
		if c, cerr = s.openClear(path, sum); errors.Is(cerr, ErrMissing) {
			c, cerr = s.openSealed(path+sealedSuffix, sum) // it may have been encrypted in between
		}
		err = cerr
	}
	if err != nil {
		return nil, err
	}
	h := sha256.New()
	_, err = io.Copy(h, c)
	if err == nil && hex.EncodeToString(h.Sum(nil)) != sum {
		err = fmt.Errorf("%w: %s", ErrCorrupt, sum)
	}
	if errors.Is(err, ErrCorrupt) {
		err = errors.Join(err, s.discard(c.file))
	}
	if err == nil {
		_, err = c.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// openSealed opens a sealed file. It fails with ErrMissing if there is none, or its key is not there.
func (s *Store) openSealed(path, sum string) (*Content, error) {
	var key keyring.Key
	s.mu.RLock()
	f, err := os.Open(path)
	if err == nil {
		key, _, err = s.unseal(f, sum)
	}
	s.mu.RUnlock()
	if f == nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: %s", ErrMissing, sum)
		}
		return nil, err
	}
	var c *Content
	switch {
	case err == nil:
		c, err = sealedContent(f, key)
	case errors.Is(err, keyring.ErrNoKey):
		err = fmt.Errorf("%w: %s: it cannot be decrypted: %w", ErrMissing, sum, err)
	case errors.Is(err, ErrCorrupt):
		err = errors.Join(fmt.Errorf("%s: %w", sum, err), s.discard(f))
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return c, nil
}

// openClear opens a file that is not sealed, which stays until it is closed. It fails with ErrMissing if there is none.
func (s *Store) openClear(path, sum string) (*Content, error) {
	s.reading.RLock()
	f, err := os.Open(path)
	if err != nil {
		s.reading.RUnlock()
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: %s", ErrMissing, sum)
		}
		return nil, err
	}
	c, err := clearContent(f)
	if err != nil {
		s.reading.RUnlock()
		return nil, errors.Join(err, f.Close())
	}
	c.done = sync.OnceFunc(s.reading.RUnlock)
	return c, nil
}

// discard removes an open file, unless another one has its name by now.
func (s *Store) discard(f *os.File) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	opened, err := f.Stat()
	if err != nil {
		return err
	}
	named, err := os.Stat(f.Name())
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(opened, named) {
		return nil
	}
	return errors.Join(err, os.Remove(f.Name()))
}

// Touch marks a blob as used now, so that Sweep keeps it.
func (s *Store) Touch(sum string) {
	if path, err := s.path(sum); err == nil {
		now := time.Now()
		_ = os.Chtimes(path+sealedSuffix, now, now)
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
		sum, _ := strings.CutSuffix(e.Name(), sealedSuffix)
		if !sumPattern.MatchString(sum) || needed(sum) {
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
