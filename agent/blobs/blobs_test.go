package blobs

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/coopr/coopr/engine/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func newStore(t testing.TB) *Store {
	t.Helper()
	return OpenStore(filepath.Join(t.TempDir(), "blobs"), nil, never)
}

// TestStore checks that a blob is stored completely or not at all, that only its owner can
// read it, and that damage on the disk is detected.
func TestStore(t *testing.T) {
	b := newStore(t)
	content := []byte("hello")
	sum, size, err := b.Put(bytes.NewReader(content), 5, "")
	if err != nil || size != 5 || sum != hash(content) {
		t.Fatal(sum, size, err)
	}
	if fi, err := os.Stat(filepath.Join(b.dir, sum)); err != nil || fi.Mode().Perm() != 0o600 {
		t.Error(fi.Mode(), err)
	}
	f, err := b.Open(sum)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(f)
	if f.Close(); err != nil || !bytes.Equal(got, content) {
		t.Errorf("%q %v", got, err)
	}
	if _, _, err := b.Put(strings.NewReader("123456"), 5, ""); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	if _, _, err := b.Put(strings.NewReader("other"), 5, sum); !errors.Is(err, ErrChecksum) {
		t.Error(err)
	}
	if _, _, err := b.Put(io.MultiReader(strings.NewReader("12"), broken{}), 5, ""); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	entries, err := os.ReadDir(b.dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("a refused content is still there: %v %v", entries, err)
	}
	for _, no := range []string{hash([]byte("x")), "", "../" + sum, strings.ToUpper(sum)} {
		if _, err := b.Open(no); !errors.Is(err, ErrMissing) {
			t.Errorf("%q: %v", no, err)
		}
	}
	if !b.Has(sum, 5) || b.Has(sum, 4) || b.Has("../"+sum, 5) {
		t.Error("Has")
	}
	if err := os.WriteFile(filepath.Join(b.dir, sum), []byte("jello"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Open(sum); !errors.Is(err, ErrCorrupt) {
		t.Error(err)
	}
	if b.Has(sum, 5) {
		t.Error("a corrupt blob is still there")
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// TestSweep checks that needed and recent blobs stay.
func TestSweep(t *testing.T) {
	b := newStore(t)
	needed, _, _ := b.Put(strings.NewReader("needed"), 99, "")
	young, _, _ := b.Put(strings.NewReader("young"), 99, "")
	old, _, _ := b.Put(strings.NewReader("old"), 99, "")
	past := time.Now().Add(-2 * time.Hour)
	for _, sum := range []string{needed, old} {
		if err := os.Chtimes(filepath.Join(b.dir, sum), past, past); err != nil {
			t.Fatal(err)
		}
	}
	n, err := b.Sweep(func(sum string) bool { return sum == needed }, time.Now().Add(-time.Hour))
	if n != 1 || err != nil || b.Has(old, 3) || !b.Has(young, 5) || !b.Has(needed, 6) {
		t.Error(n, err)
	}
	// A file that an agent was writing when it died is removed at the next start.
	if err := os.WriteFile(filepath.Join(b.dir, unfinishedPrefix+"x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	OpenStore(b.dir, nil, never)
	if _, err := os.Stat(filepath.Join(b.dir, unfinishedPrefix+"x")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// thing is one entry of an archive under test.
type thing struct {
	name, body, link string
	kind             byte
	mode             int64
}

func tarOf(t testing.TB, things ...thing) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, x := range things {
		h := &tar.Header{Name: x.name, Size: int64(len(x.body)), Typeflag: x.kind, Linkname: x.link, Mode: x.mode}
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, x.body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zipped(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func file(t testing.TB, b []byte) *os.File {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.Write(b); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestUnpack(t *testing.T) {
	plain := []thing{
		{name: "web/", kind: tar.TypeDir, mode: 0o700}, {name: "web/recipes/default.rb", body: "package", mode: 0o644},
		{name: "web/run.sh", body: "#!", mode: 0o4755}, {name: "web/link", kind: tar.TypeSymlink, link: "recipes/default.rb"},
		{name: "web/recipes/up", kind: tar.TypeSymlink, link: "../run.sh"}, {name: "web/hard", kind: tar.TypeLink, link: "web/run.sh"},
	}
	var z bytes.Buffer
	w := zip.NewWriter(&z)
	for _, name := range []string{"recipes/default.rb", "run.sh", "link", "hard", "recipes/up"} {
		f, err := w.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(f, map[string]string{"run.sh": "#!", "hard": "#!",
			"recipes/up": "#!"}[name]+map[string]string{"recipes/default.rb": "package", "link": "package"}[name])
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for what, b := range map[string][]byte{"tar": tarOf(t, plain...), "tar.gz": zipped(t, tarOf(t, plain...)), "zip": z.Bytes()} {
		f, dir := file(t, b), t.TempDir()
		if err := Check(f); err != nil {
			t.Fatal(what, err)
		}
		if err := Unpack(f, dir, "web"); err != nil {
			t.Fatal(what, err)
		}
		for name, want := range map[string]string{"recipes/default.rb": "package", "link": "package", "recipes/up": "#!", "hard": "#!"} {
			if got, err := os.ReadFile(filepath.Join(dir, name)); string(got) != want {
				t.Errorf("%s: %s is %q: %v", what, name, got, err)
			}
		}
		if fi, err := os.Stat(filepath.Join(dir, "run.sh")); what != "zip" && (err != nil || fi.Mode() != 0o755) {
			t.Errorf("%s: %v %v", what, fi.Mode(), err)
		}
	}
	// A folder of another name stays.
	dir := t.TempDir()
	if err := Unpack(file(t, tarOf(t, plain...)), dir, "other"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "web/run.sh")); err != nil {
		t.Error(err)
	}
}

// hostile returns archives that would write outside their folder, or fill the disk.
func hostile() map[string][]thing {
	return map[string][]thing{
		"up":             {{name: "../x", body: "x"}},
		"up inside":      {{name: "a/../../x", body: "x"}},
		"absolute":       {{name: "/etc/x", body: "x"}},
		"backslash":      {{name: `..\x`, body: "x"}},
		"link out":       {{name: "l", kind: tar.TypeSymlink, link: "../x"}},
		"absolute link":  {{name: "l", kind: tar.TypeSymlink, link: "/etc/passwd"}},
		"through a link": {{name: "d/", kind: tar.TypeDir}, {name: "l", kind: tar.TypeSymlink, link: "d"}, {name: "l/x", body: "x"}},
		"link by a link": {{name: "d/e/", kind: tar.TypeDir}, {name: "l", kind: tar.TypeSymlink, link: "d/e"},
			{name: "m", kind: tar.TypeSymlink, link: "l/../../.."}},
		"link in a linked":      {{name: "d/a", kind: tar.TypeSymlink, link: "."}, {name: "d/a/l", kind: tar.TypeSymlink, link: "../.."}},
		"hard link out":         {{name: "h", kind: tar.TypeLink, link: "../x"}},
		"hard link of nothing":  {{name: "h", kind: tar.TypeLink, link: "x"}},
		"hard link of a link":   {{name: "l", kind: tar.TypeSymlink, link: "x"}, {name: "h", kind: tar.TypeLink, link: "l"}},
		"file over a link":      {{name: "l", kind: tar.TypeSymlink, link: "x"}, {name: "l", body: "x"}},
		"folder over a link":    {{name: "l", kind: tar.TypeSymlink, link: "."}, {name: "l/", kind: tar.TypeDir}},
		"link over a folder":    {{name: "d/x", body: "x"}, {name: "d", kind: tar.TypeSymlink, link: "."}},
		"twice":                 {{name: "x", body: "1"}, {name: "x", body: "2"}},
		"device":                {{name: "null", kind: tar.TypeChar}},
		"pipe":                  {{name: "p", kind: tar.TypeFifo}},
		"deep":                  {{name: strings.Repeat("d/", 100) + "x", body: "x"}},
		"up, as the whole name": {{name: ".."}},
		"a long name":           {{name: strings.Repeat("x", 300), body: "x"}},
	}
}

// TestUnpackRefuses checks that Check and Unpack refuse hostile archives, and that nothing is
// written outside the folder.
func TestUnpackRefuses(t *testing.T) {
	for what, things := range hostile() {
		around := t.TempDir()
		dir := filepath.Join(around, "in")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		f := file(t, tarOf(t, things...))
		if err := Check(f); !errors.Is(err, ErrArchive) {
			t.Errorf("%s: Check: %v", what, err)
		}
		if err := Unpack(f, dir, "x"); !errors.Is(err, ErrArchive) {
			t.Errorf("%s: Unpack: %v", what, err)
		}
		if left, _ := os.ReadDir(around); len(left) != 1 {
			t.Errorf("%s: left its folder: %v", what, left)
		}
	}
	for what, b := range map[string][]byte{"empty": {}, "text": []byte("hello"),
		"cut": zipped(t, tarOf(t, thing{name: "x", body: strings.Repeat("x", 9999)}))[:60], "empty tar": tarOf(t)} {
		if err := Check(file(t, b)); !errors.Is(err, ErrArchive) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestBombs checks that a small archive with a large content is refused at the limit, not after
// all of it has been unpacked.
func TestBombs(t *testing.T) {
	for _, name := range []string{"a b c d", "a/b/c/d"} {
		u := newUnpacker(nil)
		u.room = 3
		var things []thing
		for part := range strings.FieldsSeq(name) {
			things = append(things, thing{name: part})
		}
		if err := walk(file(t, tarOf(t, things...)), u.add); !errors.Is(err, ErrArchive) || !strings.Contains(err.Error(), "files and folders") {
			t.Errorf("%s: %v", name, err)
		}
	}
	u := newUnpacker(nil)
	u.left = 1000
	err := walk(file(t, zipped(t, tarOf(t, thing{name: "a", body: strings.Repeat("x", 600)},
		thing{name: "b", body: strings.Repeat("x", 600)}))), u.add)
	if !errors.Is(err, ErrArchive) || !strings.Contains(err.Error(), "bytes when unpacked") {
		t.Errorf("many bytes: %v", err)
	}
}

// FuzzUnpack checks that no archive changes anything outside the folder or leaves a link that
// points outside, and that every archive accepted by Check can be unpacked.
func FuzzUnpack(f *testing.F) {
	for _, things := range hostile() {
		f.Add(tarOf(f, things...))
		f.Add(zipped(f, tarOf(f, things...)))
	}
	f.Add(tarOf(f, thing{name: "a/b", body: "x"}, thing{name: "a/l", kind: tar.TypeSymlink, link: "../a/b"}))
	var z bytes.Buffer
	w := zip.NewWriter(&z)
	w.Create("../x")
	w.Close()
	f.Add(z.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		around := t.TempDir()
		secret, dir := filepath.Join(around, "secret"), filepath.Join(around, "in")
		if err := errors.Join(os.WriteFile(secret, []byte("s"), 0o600), os.Mkdir(dir, 0o755)); err != nil {
			t.Fatal(err)
		}
		in := file(t, b)
		checked := Check(in)
		err := Unpack(in, dir, "a")
		if checked == nil && errors.Is(err, ErrArchive) {
			t.Errorf("Check accepted it: %v", err)
		}
		if left, err := os.ReadDir(around); len(left) != 2 || err != nil {
			t.Fatalf("something was written outside: %v %v", left, err)
		}
		if got, err := os.ReadFile(secret); string(got) != "s" {
			t.Fatalf("a file outside was changed: %q %v", got, err)
		}
		err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.Type()&fs.ModeSymlink == 0 {
				return err
			}
			if to, err := filepath.EvalSymlinks(path); err == nil && to != dir && !strings.HasPrefix(to, dir+"/") {
				t.Errorf("%s leads to %s", path, to)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

func pin(kind, name, format string, content []byte) model.ResourcePin {
	return model.ResourcePin{ResourceKey: model.ResourceKey{Kind: model.KindAutomatorType, Plugin: "p", Type: kind, Name: name}, Version: 1,
		SHA256: hash(content), Size: int64(len(content)), Format: format}
}

// TestFolders checks that tasks of the same versions share a folder, which is created once, is
// removed when it has not been used for a while, and is created again when needed.
func TestFolders(t *testing.T) {
	script, books := []byte("#!/bin/sh\n"), tarOf(t, thing{name: "web/r", body: "r"})
	pins := []model.ResourcePin{pin("scripts", "run", "file", script), pin("cookbooks", "web", "archive", books),
		pin("keys", "id", "file", script)}
	pins[0].Permissions = "0755"
	pins[2].Permissions = "0600"
	store := newStore(t)
	var opened atomic.Int32
	v := OpenFolders(filepath.Join(t.TempDir(), "views"), nil, func(_ context.Context, p model.ResourcePin) (*Content, error) {
		opened.Add(1)
		return store.Open(p.SHA256)
	})
	if _, _, err := v.Use(t.Context(), pins); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "automatortypes/p/scripts/run@1") {
		t.Errorf("a content that is missing: %v", err)
	}
	for _, b := range [][]byte{script, books} {
		if _, _, err := store.Put(bytes.NewReader(b), 1<<20, ""); err != nil {
			t.Fatal(err)
		}
	}
	opened.Store(0)
	var wg sync.WaitGroup
	dirs, releases := make([]string, 8), make([]func(), 8)
	for i := range dirs {
		wg.Go(func() {
			var err error
			if dirs[i], releases[i], err = v.Use(t.Context(), pins); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	if opened.Load() != 3 {
		t.Errorf("contents were opened %d times", opened.Load())
	}
	for name, mode := range map[string]fs.FileMode{"scripts/run": 0o755, "cookbooks/web/r": 0o600, "keys/id": 0o600} {
		fi, err := os.Stat(filepath.Join(dirs[0], name))
		if err != nil || fi.Mode() != mode {
			t.Errorf("%s: %v %v", name, fi, err)
		}
	}
	later := time.Now().Add(time.Hour)
	for i, release := range releases {
		if err := v.Sweep(later); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(dirs[i]); err != nil {
			t.Error("it was removed while in use:", err)
		}
		release()
		release() // the second call does nothing
	}
	if err := v.Sweep(time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dirs[0]); err != nil {
		t.Error("it was removed too soon:", err)
	}
	if err := v.Sweep(later); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dirs[0]); !errors.Is(err, fs.ErrNotExist) {
		t.Error("it is still there:", err)
	}
	dir, release, err := v.Use(t.Context(), pins)
	if err != nil || dir != dirs[0] {
		t.Fatal(dir, err)
	}
	release()
	other := append([]model.ResourcePin(nil), pins...)
	other[0].Version = 2
	if again, release, err := v.Use(t.Context(), other); err != nil || again == dir {
		t.Error(again, err)
	} else {
		release()
	}
}

// TestOpenWhereNothingCanBeWritten opens a cache below a file that stands in the way of its folders,
// as a read-only disk does. It works without a restart once that file is gone.
func TestOpenWhereNothingCanBeWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "resources")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	script := []byte("#!/bin/sh\n")
	store := OpenStore(filepath.Join(dir, "contents"), nil, never)
	folders := OpenFolders(filepath.Join(dir, "folders"), nil, func(_ context.Context, p model.ResourcePin) (*Content, error) {
		return store.Open(p.SHA256)
	})
	pins := []model.ResourcePin{pin("scripts", "run", "file", script)}
	if _, _, err := store.Put(bytes.NewReader(script), 100, ""); err == nil {
		t.Error("a content was stored below a file")
	}
	if _, _, err := folders.Use(t.Context(), pins); err == nil {
		t.Error("a folder was made below a file")
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if _, _, err := store.Put(bytes.NewReader(script), 100, ""); err != nil {
		t.Error(err)
	}
	if _, release, err := folders.Use(t.Context(), pins); err != nil {
		t.Error(err)
	} else {
		release()
	}
}

// TestFoldersOfPlugins checks that each plugin type has a folder of its own, which stays when an agent starts again: plugins that run may
// read it, and nothing else.
func TestFoldersOfPlugins(t *testing.T) {
	dir, script, store := t.TempDir(), []byte("#!/bin/sh\n"), newStore(t)
	if _, _, err := store.Put(bytes.NewReader(script), 100, ""); err != nil {
		t.Fatal(err)
	}
	open := func() *Folders {
		return OpenFolders(dir, nil, func(_ context.Context, p model.ResourcePin) (*Content, error) { return store.Open(p.SHA256) })
	}
	mine, other := pin("scripts", "run", "file", script), pin("scripts", "run", "file", script)
	other.Plugin = "q"
	f := open()
	var parents []string
	for _, p := range []model.ResourcePin{mine, other} {
		at, release, err := f.Use(t.Context(), []model.ResourcePin{p})
		if err != nil {
			t.Fatal(err)
		}
		release()
		if parent := filepath.Dir(at); parent != filepath.Join(dir, p.Folder()) {
			t.Errorf("the resources of %s are in %s", p, at)
		}
		parents = append(parents, filepath.Dir(at))
	}
	before, err := os.Stat(parents[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "0123abcd"), 0o700); err != nil { // of an earlier build
		t.Fatal(err)
	}
	open()
	after, err := os.Stat(parents[0])
	if err != nil || !os.SameFile(before, after) {
		t.Errorf("the folder of the plugin is another one: %v", err)
	}
	if left, err := os.ReadDir(parents[0]); len(left) > 0 || err != nil {
		t.Error("resources of the earlier process are left:", left, err)
	}
	if left, err := os.ReadDir(dir); len(left) != 1 || err != nil {
		t.Error("more than the folders of plugins is left:", left, err)
	}
	other.Plugin = "../../q"
	if _, _, err := f.Use(t.Context(), []model.ResourcePin{other}); err == nil {
		t.Error("resources were laid out elsewhere")
	}
}
