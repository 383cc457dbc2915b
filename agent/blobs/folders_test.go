package blobs

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/coopr/coopr/engine/model"
)

// asNobody makes another user the owner of a folder and what is in it, as whom this goroutine uses files until the test ends: root may read
// all folders.
func asNobody(t *testing.T, dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	const nobody = 65534
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, nobody, nobody))
	})
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	if err := unix.Setfsuid(nobody); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setfsuid(0); err != nil {
			t.Error(err) // the thread stays locked, and ends with the test
			return
		}
		runtime.UnlockOSThread()
	})
}

// TestLeftFolderThatCannotBeRead checks that what an earlier process left is never taken for removed: no folder is laid out until it is.
func TestLeftFolderThatCannotBeRead(t *testing.T) {
	dir, err := os.MkdirTemp("", "coopr-folders-") // other users cannot enter the folders of testing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	store := OpenStore(filepath.Join(dir, "contents"), nil, never)
	script := []byte("#!/bin/sh\n")
	if _, _, err := store.Put(bytes.NewReader(script), 100, ""); err != nil {
		t.Fatal(err)
	}
	plugins := filepath.Join(dir, "folders", string(model.KindAutomatorType))
	secret, file := filepath.Join(plugins, "p", "0123", "keys", "id"), filepath.Join(plugins, "file")
	err = errors.Join(os.MkdirAll(filepath.Dir(secret), 0o700), os.WriteFile(secret, []byte("secret"), 0o600), os.WriteFile(file, nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	asNobody(t, dir)
	if err := os.Chmod(filepath.Join(plugins, "p"), 0); err != nil {
		t.Fatal(err)
	}
	f := OpenFolders(filepath.Join(dir, "folders"), nil, func(_ context.Context, p model.ResourcePin) (*Content, error) {
		return store.Open(p.SHA256)
	})
	use := func(plugin string) error {
		p := pin("scripts", "run", "file", script)
		p.Plugin = plugin
		_, release, err := f.Use(t.Context(), []model.ResourcePin{p})
		if err == nil {
			release()
		}
		return err
	}
	if err := use("q"); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("%v, though a folder of an earlier process is still there", err)
	}
	if err := os.Chmod(filepath.Join(plugins, "p"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(use("q"), use("file")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(secret); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a secret of an earlier process is left: %v", err)
	}
}
