// Package flip damages files as a failing disk does: it changes single bytes.
package flip

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// Spots are the places in the files of a directory where a text stands.
type Spots struct {
	files map[string][]int64
}

// Find returns the places where text stands in the files below dir. There must be at least one.
func Find(t testing.TB, dir, text string) Spots {
	t.Helper()
	s := Spots{files: map[string][]int64{}}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		whole, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for from := 0; ; from++ {
			next := bytes.Index(whole[from:], []byte(text))
			if next < 0 {
				return nil
			}
			from += next
			s.files[path] = append(s.files[path], int64(from))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(s.files) == 0 {
		t.Fatalf("no file below %s contains %q", dir, text)
	}
	return s
}

// Flip changes one byte at each spot: the byte that lies at the given distance from the beginning of
// the text. A second call undoes the first.
func (s Spots) Flip(t testing.TB, at int) {
	t.Helper()
	for path, spots := range s.files {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, spot := range spots {
			var b [1]byte
			if _, err := f.ReadAt(b[:], spot+int64(at)); err != nil {
				t.Fatal(err)
			}
			b[0] ^= 0x20
			if _, err := f.WriteAt(b[:], spot+int64(at)); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
