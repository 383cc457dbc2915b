package quarantine

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMove moves files and directories of two names aside. The newest of each name are kept, with their reasons.
func TestMove(t *testing.T) {
	root := t.TempDir()
	dir, file, folder := filepath.Join(root, "quarantine"), filepath.Join(root, "journal"), filepath.Join(root, "raft")
	var files, folders []string
	for i := range Keep + 2 {
		if err := errors.Join(os.WriteFile(file, []byte{byte(i)}, 0o600), os.MkdirAll(folder, 0o700)); err != nil {
			t.Fatal(err)
		}
		for path, list := range map[string]*[]string{file: &files, folder: &folders} {
			to, err := Move(dir, path, errors.New("the reason"))
			if err != nil {
				t.Fatal(err)
			}
			*list = append(*list, to)
			if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s is still there: %v", path, err)
			}
		}
	}
	list, err := os.ReadDir(dir)
	if err != nil || len(list) != 3*Keep {
		t.Fatalf("%v, %v", list, err)
	}
	for i := range Keep {
		if b, err := os.ReadFile(files[2+i]); err != nil || len(b) != 1 || int(b[0]) != 2+i {
			t.Errorf("%d: %v, %v", i, b, err)
		}
		for _, note := range []string{files[2+i] + ".reason.txt", filepath.Join(folders[2+i], "reason.txt")} {
			if b, err := os.ReadFile(note); err != nil || !strings.Contains(string(b), "the reason") {
				t.Errorf("%s: %q, %v", note, b, err)
			}
		}
	}
	if _, err := Move(dir, filepath.Join(root, "nothing"), errors.New("a reason")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what is not there was moved: %v", err)
	}
}
