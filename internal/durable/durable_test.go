package durable

import (
	"io"
	"os"
	"path/filepath"
	"testing"
)

// A file has its new content and a closed mode, and nothing else is left in its folder, whether it was written or not.
func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "keys")
	for _, content := range []string{"old", "new"} {
		if err := WriteFile(path, []byte(content)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != content {
			t.Errorf("the file has %q, %v; want %q", got, err, content)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v; want mode 0600", info, err)
	}
	folder := filepath.Join(dir, "folder")
	if err := os.MkdirAll(filepath.Join(folder, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(folder, []byte("x")); err == nil {
		t.Error("a folder was replaced by a file")
	}
	if err := WriteFile(filepath.Join(dir, "no", "file"), nil); err == nil {
		t.Error("a file was written to a folder that does not exist")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("the folder has %v, %v; want the file and the folder", left, err)
	}
}

// The content that Replace replaces is overwritten, unless another name of the file was made on purpose.
func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "keys")
	for _, content := range []string{"first secret", "second"} {
		if err := Replace(path, []byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	old, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	if err := Replace(path, []byte("third")); err != nil {
		t.Fatal(err)
	}
	if left, err := io.ReadAll(old); err != nil || string(left) != "\x00\x00\x00\x00\x00\x00" {
		t.Errorf("the old file has %q, %v", left, err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "third" {
		t.Errorf("the file has %q, %v", got, err)
	}
	kept := filepath.Join(dir, "kept")
	if err := os.Link(path, kept); err != nil {
		t.Fatal(err)
	}
	if err := Replace(path, []byte("fourth")); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(kept); err != nil || string(got) != "third" {
		t.Errorf("the other name has %q, %v", got, err)
	}
	if err := Replace(filepath.Join(dir, "no", "file"), nil); err == nil {
		t.Error("a file was written to a folder that does not exist")
	}
}
