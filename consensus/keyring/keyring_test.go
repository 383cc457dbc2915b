package keyring

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

func ring(t testing.TB, store Store, numbers ...uint32) *Ring {
	t.Helper()
	r, err := Open(store)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range numbers {
		if err := r.Put(Set{Active: n, Keys: []Key{NewKey(n)}}); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// empty returns an empty store.
func empty(t testing.TB) Store { return InDir(filepath.Join(t.TempDir(), "keyring")) }

func TestSeal(t *testing.T) {
	r := ring(t, empty(t), 1)
	aad := Bind("mesh", "tenant", "id", "1")
	sealed, err := r.Seal(aad, []byte("secret"))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(sealed, []byte("secret")) {
		t.Error("the result has the plaintext")
	}
	if err := r.Put(Set{Active: 2, Keys: []Key{NewKey(2)}}); err != nil {
		t.Fatal(err)
	}
	if got, err := r.Open(aad, sealed); string(got) != "secret" || err != nil {
		t.Errorf("after another key became active: %q, %v", got, err)
	}
	if n, err := NumberOf(sealed); n != 1 || err != nil {
		t.Error(n, err)
	}
	again, _ := r.Seal(aad, []byte("secret"))
	if n, _ := NumberOf(again); n != 2 {
		t.Error("sealed with key", n)
	}
	for i := range sealed {
		bad := bytes.Clone(sealed)
		bad[i] ^= 1
		if _, err := r.Open(aad, bad); !errors.Is(err, ErrNotSealed) && !errors.Is(err, ErrNoKey) {
			t.Errorf("byte %d changed: %v", i, err)
		}
	}
	for n := range sealed {
		if _, err := r.Open(aad, sealed[:n]); !errors.Is(err, ErrNotSealed) {
			t.Errorf("the first %d bytes: %v", n, err)
		}
	}
	if _, err := r.Open(Bind("mesh", "tenant", "id", "2"), sealed); !errors.Is(err, ErrNotSealed) {
		t.Error("in another place:", err)
	}
	if _, err := ring(t, empty(t)).Open(aad, sealed); !errors.Is(err, ErrNoKey) {
		t.Error("with an empty keyring:", err)
	}
	if _, err := ring(t, empty(t)).Seal(aad, nil); !errors.Is(err, ErrNoKey) {
		t.Error("sealed with an empty keyring:", err)
	}
}

func TestBind(t *testing.T) {
	if bytes.Equal(Bind("a", "bc"), Bind("ab", "c")) {
		t.Error("different parts have the same additional data")
	}
}

func TestDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keyring")
	r := ring(t, InDir(dir), 1, 2)
	for path, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, fileName): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Error(path, info.Mode(), err)
		}
	}
	if again := ring(t, InDir(dir)); !reflect.DeepEqual(again.Set(), r.Set()) {
		t.Error("another set after reopening")
	}
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		t.Error("files besides the keys:", files)
	}
	replaced := NewKey(1)
	if err := r.Put(Set{Active: 2, Keys: []Key{replaced, r.Set().Keys[1]}}); err != nil {
		t.Fatal(err)
	}
	if got, err := ring(t, InDir(dir)).Key(1); got != replaced || err != nil {
		t.Error("the key was not replaced", err)
	}
	if err := r.Put(Set{Active: 7, Keys: []Key{NewKey(3)}}); err == nil {
		t.Error("an active key that is not there was accepted")
	}
}

func TestDirRefused(t *testing.T) {
	for name, damage := range map[string]struct {
		do   func(dir, file string) error
		want error
	}{
		"truncated": {func(_, file string) error { return os.Truncate(file, 60) }, ErrDamaged},
		"empty":     {func(_, file string) error { return os.Truncate(file, 0) }, ErrDamaged},
		"altered": {func(_, file string) error {
			data, err := os.ReadFile(file)
			data[len(data)/2]++
			return errors.Join(err, os.WriteFile(file, data, 0o600))
		}, ErrDamaged},
		"no text":     {func(_, file string) error { return os.WriteFile(file, []byte{0, 1, 2}, 0o600) }, ErrDamaged},
		"file mode":   {func(_, file string) error { return os.Chmod(file, 0o640) }, ErrExposed},
		"folder mode": {func(dir, _ string) error { return os.Chmod(dir, 0o755) }, ErrExposed},
	} {
		dir := filepath.Join(t.TempDir(), "keyring")
		ring(t, InDir(dir), 1)
		if err := damage.do(dir, filepath.Join(dir, fileName)); err != nil {
			t.Fatal(name, err)
		}
		if _, err := Open(InDir(dir)); !errors.Is(err, damage.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(InDir(file)); err == nil {
		t.Error("a file in place of the folder was accepted")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(encode(Set{Active: 2, Keys: []Key{NewKey(1), NewKey(2)}}))
	f.Add(encode(Set{}))
	f.Add([]byte("coopr-keyring 1\nactive 1\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := decode(data)
		switch {
		case err == nil && !bytes.Equal(encode(s), data):
			t.Error("accepted what encode does not return")
		case err != nil && !errors.Is(err, ErrDamaged):
			t.Error(err)
		}
	})
}

func FuzzOpen(f *testing.F) {
	r := ring(f, empty(f), 1)
	sealed, _ := r.Seal(nil, []byte("x"))
	f.Add(sealed)
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := r.Open([]byte("elsewhere"), data); err == nil {
			t.Error("opened")
		}
	})
}

func BenchmarkSeal(b *testing.B) {
	c, aad, value := NewCipher(NewKey(1)), Bind("mesh", "tenant", "id", "1"), make([]byte, 100)
	b.ReportAllocs()
	for b.Loop() {
		c.Seal(aad, value)
	}
}

func BenchmarkOpen(b *testing.B) {
	c, aad := NewCipher(NewKey(1)), Bind("mesh", "tenant", "id", "1")
	sealed := c.Seal(aad, make([]byte, 100))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Open(aad, sealed); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkUnwrap opens a data key and then a value with it, as the first use of a tenant's value does.
func BenchmarkUnwrap(b *testing.B) {
	r, aad := ring(b, empty(b), 1), Bind("mesh", "tenant", "id", "1")
	data := NewKey(1)
	wrapped, _ := r.Seal(aad, data.Secret[:])
	sealed := NewCipher(data).Seal(aad, make([]byte, 100))
	for b.Loop() {
		secret, err := r.Open(aad, wrapped)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := NewCipher(Key{Number: 1, Secret: [Size]byte(secret)}).Open(aad, sealed); err != nil {
			b.Fatal(err)
		}
	}
}
