package blobs

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/testing/doubles/memkeys"
)

func never() bool { return false }

func always() bool { return true }

// contentOf returns the content of a blob.
func contentOf(t *testing.T, s *Store, sum string) []byte {
	t.Helper()
	c, err := s.Open(sum)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// put stores a content, of which no file may have its first bytes afterwards.
func put(t *testing.T, s *Store, content []byte) string {
	t.Helper()
	sum, _, err := s.Put(bytes.NewReader(content), int64(len(content)), "")
	if err != nil {
		t.Fatal(err)
	}
	encrypted(t, s.dir, content)
	return sum
}

// encrypted checks that no file of a folder has a content in the clear.
func encrypted(t *testing.T, dir string, content []byte) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		file, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if len(content) >= 16 && bytes.Contains(file, content[:16]) {
			err = errors.Join(err, errors.New("it has the content in the clear"))
		}
		if err != nil {
			t.Errorf("%s: %v", e.Name(), err)
		}
	}
}

// Contents of all lengths come back as they were, whole and in parts, also in another process of a voter, and none is in the clear.
func TestSealed(t *testing.T) {
	ring, dir := ringOf(t, keyring.NewKey(1)), t.TempDir()
	for _, size := range []int64{0, 1, 100, pieceLen - 1, pieceLen, pieceLen + 1, 3*pieceLen + 7} {
		content := make([]byte, size)
		_, _ = rand.Read(content)
		sum := put(t, OpenStore(dir, ring, never), content)
		s := OpenStore(dir, ring, never)
		if got := contentOf(t, s, sum); !bytes.Equal(got, content) || sum != hash(content) {
			t.Errorf("%d bytes: %d came back", size, len(got))
		}
		if !s.Has(sum, size) || s.Has(sum, size+1) {
			t.Errorf("%d bytes: Has", size)
		}
		c, err := s.Open(sum)
		if err != nil {
			t.Fatal(err)
		}
		if part := make([]byte, size/2); c.Size() != size {
			t.Errorf("%d bytes: the size is %d", size, c.Size())
		} else if _, err := c.ReadAt(part, size-size/2); err != nil && size > 1 || !bytes.Equal(part, content[size-size/2:]) {
			t.Errorf("%d bytes: the last half differs: %v", size, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	s := OpenStore(dir, ring, never)
	if _, _, err := s.Put(io.MultiReader(strings.NewReader("12"), broken{}), 5, ""); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("an upload that was cut off: %v", err)
	}
	if _, _, err := s.Put(strings.NewReader("123456"), 5, ""); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	if done, err := s.Followed(); !done || err != nil {
		t.Error(done, err)
	}
}

// Damage in a piece and at the end is found, and the blob is removed.
func TestSealedDamage(t *testing.T) {
	ring := ringOf(t, keyring.NewKey(1))
	content := bytes.Repeat([]byte("a key of a node "), 10_000)
	for what, damage := range map[string]func(file []byte) []byte{
		"a piece":     func(file []byte) []byte { file[headerLen+pieceLen+overhead+50] ^= 1; return file },
		"the end":     func(file []byte) []byte { return file[:len(file)-1] },
		"all of it":   func([]byte) []byte { return nil },
		"a piece cut": func(file []byte) []byte { return file[:headerLen+pieceLen+overhead] },
	} {
		s := OpenStore(t.TempDir(), ring, never)
		sum := put(t, s, content)
		path := filepath.Join(s.dir, sum+sealedSuffix)
		file, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, damage(file), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Open(sum); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := s.Open(sum); !errors.Is(err, ErrMissing) {
			t.Errorf("%s: a second time: %v", what, err)
		}
	}
}

// A blob stays if the ring has another key of the same number, as after a restore without the right keyring: no rotation waits for it, and
// with the right key it can be read again.
func TestSealedWithAnotherKey(t *testing.T) {
	dir, content, key := t.TempDir(), []byte("a key of a node, in the clear"), keyring.NewKey(1)
	sum := put(t, OpenStore(dir, ringOf(t, key), never), content)
	other := OpenStore(dir, ringOf(t, keyring.NewKey(1)), never)
	if err := other.Reseal(); err != nil {
		t.Error(err)
	}
	if _, err := other.Open(sum); !errors.Is(err, ErrMissing) || other.Has(sum, int64(len(content))) {
		t.Error(err)
	}
	if done, err := other.Followed(); !done || err != nil {
		t.Error(done, err)
	}
	if got := contentOf(t, OpenStore(dir, ringOf(t, key), never), sum); !bytes.Equal(got, content) {
		t.Errorf("%q", got)
	}
	put(t, other, content)
	if got := contentOf(t, other, sum); !bytes.Equal(got, content) {
		t.Errorf("%q", got)
	}
}

// A file in the clear that is being read is overwritten only once its last reader has closed it.
func TestResealWhileRead(t *testing.T) {
	dir, ring, content := t.TempDir(), ringOf(t), bytes.Repeat([]byte("a key of a node "), 5000)
	s := OpenStore(dir, ring, never)
	sum, _, err := s.Put(bytes.NewReader(content), 1<<20, "")
	if err != nil {
		t.Fatal(err)
	}
	reader, err := s.Open(sum)
	if err != nil {
		t.Fatal(err)
	}
	if err := ring.Put(keyring.Set{Active: 1, Keys: []keyring.Key{keyring.NewKey(1)}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Reseal(); err != nil {
		t.Error(err)
	}
	if got, err := io.ReadAll(reader); err != nil || !bytes.Equal(got, content) {
		t.Errorf("the reader got another content: %v", err)
	}
	if done, err := s.Followed(); done || err != nil {
		t.Error("nothing is left to do:", err)
	}
	if err := errors.Join(reader.Close(), s.Reseal()); err != nil {
		t.Error(err)
	}
	encrypted(t, dir, content)
	if got := contentOf(t, s, sum); !bytes.Equal(got, content) {
		t.Error("the encrypted blob differs")
	}
	if done, err := s.Followed(); !done || err != nil {
		t.Error(done, err)
	}
}

// An agent that becomes a worker while it runs encrypts what it has, too.
func TestSealedOnNewWorker(t *testing.T) {
	worker, content := false, bytes.Repeat([]byte("a key of a node "), 10)
	s := OpenStore(t.TempDir(), ringOf(t), func() bool { return worker })
	sum, _, err := s.Put(bytes.NewReader(content), 1000, "")
	if err != nil {
		t.Fatal(err)
	}
	worker = true
	if err := s.Reseal(); err != nil {
		t.Error(err)
	}
	encrypted(t, s.dir, content)
	if got := contentOf(t, s, sum); !bytes.Equal(got, content) {
		t.Errorf("%q", got)
	}
}

// A content that is removed from below is not discarded when another one has its place.
func TestDiscard(t *testing.T) {
	s, content := OpenStore(t.TempDir(), ringOf(t, keyring.NewKey(1)), never), []byte("a key of a node, in the clear")
	sum := put(t, s, content)
	old, err := s.Open(sum)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	put(t, s, content)
	if err := s.discard(old.file); err != nil {
		t.Error(err)
	}
	if got := contentOf(t, s, sum); !bytes.Equal(got, content) {
		t.Errorf("%q", got)
	}
}

// A worker's blobs end with its process: the next one cannot read them, and removes them.
func TestSealedOnWorker(t *testing.T) {
	dir, content := t.TempDir(), []byte("a key of a node, in the clear")
	s := OpenStore(dir, ringOf(t), always)
	sum := put(t, s, content)
	if got := contentOf(t, s, sum); !bytes.Equal(got, content) {
		t.Errorf("%q", got)
	}
	next := OpenStore(dir, ringOf(t), always)
	if _, err := next.Open(sum); !errors.Is(err, ErrMissing) || next.Has(sum, int64(len(content))) {
		t.Errorf("the next process: %v", err)
	}
	if err := next.Reseal(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); len(left) > 0 || err != nil {
		t.Error(left, err)
	}
	if again := put(t, next, content); again != sum { // as it is fetched again
		t.Error(again)
	}
	if got := contentOf(t, next, sum); !bytes.Equal(got, content) {
		t.Errorf("fetched again: %q", got)
	}
}

// A voter that has keys, but may have to go back to an older build, keeps contents as that build reads them.
func TestClearBeforeBegin(t *testing.T) {
	ring, err := keyring.Open(&memkeys.Store{})
	if err == nil {
		err = ring.Put(keyring.Set{Active: 1, Keys: []keyring.Key{keyring.NewKey(1)}})
	}
	if err != nil {
		t.Fatal(err)
	}
	s, content := OpenStore(t.TempDir(), ring, never), []byte("a key of a node, in the clear")
	sum, _, err := s.Put(bytes.NewReader(content), 1000, "")
	if err = errors.Join(err, s.Reseal()); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(s.dir, sum)); !bytes.Equal(got, content) {
		t.Error("the older build cannot read it:", err)
	}
	if done, err := s.Followed(); done || err != nil {
		t.Error("an old key may be erased before the files were read:", err)
	}
	if err := errors.Join(ring.Begin(), s.Reseal()); err != nil {
		t.Fatal(err)
	}
	encrypted(t, s.dir, content)
	if got := contentOf(t, s, sum); !bytes.Equal(got, content) {
		t.Errorf("%q", got)
	}
	if done, err := s.Followed(); !done || err != nil {
		t.Error(done, err)
	}
}

// Blobs in the clear stay so until the ring has a key. Then they are encrypted, and their old bytes are overwritten. Damaged ones go.
func TestResealClear(t *testing.T) {
	dir, ring, content := t.TempDir(), ringOf(t), bytes.Repeat([]byte("a key of a node "), 5000)
	s := OpenStore(dir, ring, never)
	sum, _, err := s.Put(bytes.NewReader(content), 1<<20, "")
	damaged := filepath.Join(dir, hash([]byte("damaged")))
	if err = errors.Join(err, os.WriteFile(damaged, content, 0o600), s.Reseal()); err != nil {
		t.Fatal(err)
	}
	if got := contentOf(t, s, sum); !bytes.Equal(got, content) {
		t.Error("a blob in the clear differs")
	}
	old, err := os.Open(filepath.Join(dir, sum))
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	key := keyring.NewKey(1)
	if err := ring.Put(keyring.Set{Active: 1, Keys: []keyring.Key{key}}); err != nil {
		t.Fatal(err)
	}
	if done, err := s.Followed(); done || err != nil {
		t.Error("nothing is left to do:", err)
	}
	if err := s.Reseal(); err != nil {
		t.Fatal(err)
	}
	encrypted(t, dir, content)
	if got := contentOf(t, s, sum); !bytes.Equal(got, content) {
		t.Error("the encrypted blob differs")
	}
	if was, err := io.ReadAll(old); err != nil || !bytes.Equal(was, make([]byte, len(content))) {
		t.Errorf("the old file was not overwritten: %v", err)
	}
	if _, err := os.Stat(damaged); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the damaged blob: %v", err)
	}
	if done, err := s.Followed(); !done || err != nil {
		t.Error(done, err)
	}
}

// After a rotation, Reseal makes all blobs need the new key only. A file that was copied before opens with the old key no more than the
// bytes that stay on the disk.
func TestResealRotated(t *testing.T) {
	dir, content := t.TempDir(), bytes.Repeat([]byte("a key of a node "), 5000)
	one, two := keyring.NewKey(1), keyring.NewKey(2)
	ring := ringOf(t, one)
	s := OpenStore(dir, ring, never)
	sum := put(t, s, content)
	old, err := os.Open(filepath.Join(dir, sum+sealedSuffix))
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	reader, err := s.Open(sum)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if err := ring.Put(keyring.Set{Active: 2, Keys: []keyring.Key{one, two}}); err != nil {
		t.Fatal(err)
	}
	if done, _ := s.Followed(); done {
		t.Error("the blob is under the old key, and nothing is left to do")
	}
	if err := s.Reseal(); err != nil {
		t.Fatal(err)
	}
	if done, err := s.Followed(); !done || err != nil {
		t.Error(done, err)
	}
	if _, _, err := s.unseal(old, sum); err == nil {
		t.Error("the header of the old file is still there")
	}
	if err := ring.Drop(2, 1); err != nil {
		t.Fatal(err)
	}
	if got := contentOf(t, s, sum); !bytes.Equal(got, content) {
		t.Error("the blob differs")
	}
	if got, err := io.ReadAll(reader); err != nil || !bytes.Equal(got, content) {
		t.Errorf("a reader that began before: %v", err)
	}
	// Without its key, a blob is missing, and can be put again.
	other := OpenStore(dir, ringOf(t, keyring.NewKey(3)), never)
	if _, err := other.Open(sum); !errors.Is(err, ErrMissing) || other.Has(sum, int64(len(content))) {
		t.Error(err)
	}
	if done, err := other.Followed(); !done || err != nil {
		t.Error(done, err)
	}
	put(t, other, content)
	if !other.Has(sum, int64(len(content))) {
		t.Error("it was put again")
	}
}

// A folder with a key is removed with its last use.
func TestFoldersWithKeys(t *testing.T) {
	store, content := newStore(t), []byte("a key of a node")
	if _, _, err := store.Put(bytes.NewReader(content), 100, ""); err != nil {
		t.Fatal(err)
	}
	f := OpenFolders(filepath.Join(t.TempDir(), "views"), nil, func(_ context.Context, p model.ResourcePin) (*Content, error) {
		return store.Open(p.SHA256)
	})
	key := pin("keys", "id", "file", content)
	key.Permissions, key.Secret = "0644", true
	for range 2 {
		dir, release, err := f.Use(t.Context(), []model.ResourcePin{key})
		same, other, err2 := f.Use(t.Context(), []model.ResourcePin{key})
		if err != nil || err2 != nil || same != dir {
			t.Fatal(dir, same, err, err2)
		}
		release()
		if got, err := os.ReadFile(filepath.Join(dir, "keys", "id")); !bytes.Equal(got, content) {
			t.Errorf("in use: %q, %v", got, err)
		}
		if fi, err := os.Stat(filepath.Join(dir, "keys", "id")); err != nil || fi.Mode() != 0o600 {
			t.Errorf("others may read the key: %v, %v", fi, err)
		}
		other()
		if left, err := os.ReadDir(filepath.Dir(dir)); len(left) > 0 || err != nil {
			t.Error("the key is still there:", left, err)
		}
	}
}
