package blobs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/internal/durable"
)

// Followed reports whether every blob that this store can read is encrypted with the active key. So no other key is needed any more, as
// Put takes none.
func (s *Store) Followed() (bool, error) {
	if s.ring != nil && s.ring.Set().Active != 0 && !s.ring.Begun() {
		return false, nil // this process has not encrypted its files yet
	}
	s.mu.Lock() // a blob that is being put in its place is in the list
	defer s.mu.Unlock()
	behind, err := s.behind()
	return err == nil && len(behind) == 0, err
}

// Reseal encrypts all blobs that are in the clear or under another key with the active key, and overwrites what opened them before. It
// removes blobs whose key ended with an earlier process. It does nothing as long as the store has no key, or may not use it.
func (s *Store) Reseal() error {
	behind, err := s.behind()
	for _, name := range behind {
		if rerr := s.reseal(name); rerr != nil {
			err = errors.Join(err, fmt.Errorf("encrypt the content %s: %w", name, rerr))
		}
	}
	return err
}

// behind returns the names of the files that Reseal replaces or removes.
func (s *Store) behind() (names []string, err error) {
	active, ok := s.active()
	if !ok {
		return nil, nil
	}
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // nothing was stored yet
	}
	for _, e := range entries {
		sum, sealed := strings.CutSuffix(e.Name(), sealedSuffix)
		if !sumPattern.MatchString(sum) {
			continue
		}
		if sealed {
			f, oerr := os.Open(filepath.Join(s.dir, e.Name()))
			if errors.Is(oerr, fs.ErrNotExist) {
				continue // it was removed meanwhile
			}
			if oerr != nil { // it may need another key than the active one
				err = errors.Join(err, oerr)
				continue
			}
			_, number, uerr := s.unseal(f, sum)
			_ = f.Close()
			// A key that the ring lacks may come back; until then the blob is missing, and fetched again if it is needed.
			if number == active && uerr == nil || number != 0 && errors.Is(uerr, keyring.ErrNoKey) {
				continue
			}
		}
		names = append(names, e.Name())
	}
	return names, err
}

// reseal replaces a file by one under the active key. A damaged blob is removed: it is fetched again if it is needed. A file in the clear
// that is being read stays until the next time.
func (s *Store) reseal(name string) error {
	path := filepath.Join(s.dir, name)
	sum, sealed := strings.CutSuffix(name, sealedSuffix)
	old, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer old.Close()
	fi, err := old.Stat()
	if err != nil {
		return err
	}
	content, err := clearContent(old)
	var number uint32
	if sealed {
		var key keyring.Key
		if key, number, err = s.unseal(old, sum); err == nil {
			content, err = sealedContent(old, key)
		}
	}
	if err == nil {
		_, _, err = s.Put(content, fi.Size(), sum)
	}
	lost := sealed && number == 0 && errors.Is(err, keyring.ErrNoKey) // its key ended with an earlier process
	switch {
	case err == nil:
		err = os.Chtimes(filepath.Join(s.dir, sum+sealedSuffix), fi.ModTime(), fi.ModTime()) // it was not used
	case sealed && (lost || errors.Is(err, ErrCorrupt) || errors.Is(err, ErrChecksum)):
		err = s.discard(old)
	case sealed || !errors.Is(err, ErrChecksum):
		return err
	default:
		err = nil
	}
	if sealed {
		s.mu.Lock() // a reader that has opened the old file has read its header
		defer s.mu.Unlock()
		return errors.Join(err, durable.Overwrite(old, headerLen))
	}
	if !s.reading.TryLock() {
		return err
	}
	defer s.reading.Unlock()
	return errors.Join(err, s.discard(old), durable.Overwrite(old, fi.Size()))
}
