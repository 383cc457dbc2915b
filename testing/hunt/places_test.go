package hunt

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/coopr/coopr/agent/worker"
	"github.com/coopr/coopr/consensus/archive"
	"github.com/coopr/coopr/consensus/logstore"
	pb "github.com/coopr/coopr/rpc/proto"
)

// write writes a file.
func write(path, text string) error {
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600))
}

// logOf writes a log with an entry and a snapshot.
func logOf(kind logstore.Kind, entry, snapshot string) func(dir, text string) error {
	return func(dir, text string) error {
		s, err := logstore.Open(dir, kind, logstore.Options{})
		if err != nil {
			return err
		}
		defer s.Close()
		for i := range uint64(50) {
			l := &raft.Log{Index: i + 1, Term: 1, Data: bytes.Repeat([]byte{byte(i)}, 300)}
			if i == 20 {
				l.Data = []byte(strings.ReplaceAll(entry, "%", text))
			}
			if err := s.Log.StoreLog(l); err != nil {
				return err
			}
		}
		sink, err := s.Snapshots.Create(1, 10, 1, raft.Configuration{}, 1, nil)
		if err == nil {
			_, err = io.WriteString(sink, strings.ReplaceAll(snapshot, "%", text))
		}
		if err == nil {
			err = sink.Close()
		}
		return err
	}
}

// places write a text as agents and their tools do.
var places = map[string]func(dir, text string) error{
	"a file": func(dir, text string) error { return write(filepath.Join(dir, "deep", "er", "file"), "x"+text) },
	"the name of a file": func(dir, text string) error {
		return write(filepath.Join(dir, strings.ReplaceAll(text, "/", "_")), "")
	},
	"a link":               func(dir, text string) error { return os.Symlink("/nowhere/"+text, filepath.Join(dir, "link")) },
	"a log in boltdb":      logOf(logstore.BoltDB, `{"password":"%"}`, "nothing"),
	"a log in segments":    logOf(logstore.WAL, `{"password":"%"}`, "nothing"),
	"a snapshot of a log":  logOf(logstore.BoltDB, "nothing", `{"password":"%"}`),
	"the journal of tasks": journal,
	"a saved snapshot": func(dir, text string) error {
		var b bytes.Buffer
		state := strings.Repeat("something else ", 5000) + text
		if err := archive.Write(&b, archive.Meta{Size: int64(len(state))}, strings.NewReader(state)); err != nil {
			return err
		}
		return write(filepath.Join(dir, "state.snap"), b.String())
	},
	"an archive within an archive": func(dir, text string) error {
		inner, err := zipped("page", text)
		if err != nil {
			return err
		}
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		z.Name = "a name"
		w := tar.NewWriter(z)
		if err := errors.Join(w.WriteHeader(&tar.Header{Name: "x.zip", Size: int64(len(inner)), Mode: 0o600}), discard(w.Write(inner)),
			w.Close(), z.Close()); err != nil {
			return err
		}
		return write(filepath.Join(dir, "x.tar.gz"), "before"+b.String())
	},
	"the objects of git": func(dir, text string) error { return git(dir, text, false) },
	"a pack of git":      func(dir, text string) error { return git(dir, text, true) },
}

func discard(_ int, err error) error { return err }

func journal(dir, text string) error {
	j := worker.OpenFile(filepath.Join(dir, "journal"), slog.New(slog.DiscardHandler))
	err := j.Put(&pb.Held{Task: "1-1/1", Fence: 7, Started: true, Result: &pb.Result{Task: "1-1/1", Output: []byte(`{"result":{"x":"` + text + `"}}`)}})
	return errors.Join(err, j.Close())
}

func zipped(name, text string) ([]byte, error) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	w, err := z.Create(name)
	if err == nil {
		_, err = io.WriteString(w, strings.Repeat("a page ", 100)+text)
	}
	err = errors.Join(err, z.Close())
	return b.Bytes(), err
}

func git(dir, text string, packed bool) error {
	if err := write(filepath.Join(dir, "secret"), text); err != nil {
		return err
	}
	commands := [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "-q", "-m", "x"}}
	if packed {
		commands = append(commands, []string{"gc", "-q"})
	}
	for _, args := range commands {
		cmd := exec.Command("git", args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("git %v: %w\n%s", args, err, out)
		}
	}
	return os.Remove(filepath.Join(dir, "secret"))
}

// A canary is found wherever it was planted, in the folder's files, and another one is not.
func TestPlaces(t *testing.T) {
	for name, plant := range places {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, c, other := t.TempDir(), Plant("planted"), Plant("elsewhere")
			if err := plant(dir, c.Value); err != nil {
				t.Fatal(err)
			}
			found, files, err := New(c, other).Folder(dir, nil)
			if err != nil || len(found) == 0 {
				t.Errorf("found %v in %d files, %v", found, files, err)
			}
			for _, f := range found {
				if f.Kind != c.Kind || !strings.Contains(f.Where, dir) {
					t.Errorf("found %v", f)
				}
			}
		})
	}
}

// What is to be skipped is, and nothing else.
func TestSkip(t *testing.T) {
	dir, c := t.TempDir(), Plant("planted")
	for _, name := range []string{"keys/a", "b", "c"} {
		if err := write(filepath.Join(dir, name), c.Value); err != nil {
			t.Fatal(err)
		}
	}
	found, files, err := New(c).Folder(dir, func(path string) bool { return path == "keys" || path == "b" })
	if err != nil || files != 1 || len(found) != 1 || found[0].Where != filepath.Join(dir, "c") {
		t.Errorf("found %v in %d files, %v", found, files, err)
	}
	if _, _, err := New(c).Folder(filepath.Join(dir, "nowhere"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
}
