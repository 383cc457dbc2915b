package remote

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/coopr/coopr/plugins/sdk/spawn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newLocal(t testing.TB) *Local {
	t.Helper()
	s := spawn.New()
	t.Cleanup(s.Stop)
	l, err := NewLocal(t.TempDir(), s)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestRun(t *testing.T) {
	l := newLocal(t)
	var out, errs bytes.Buffer
	exit, err := l.Run(t.Context(), Command{Args: []string{"/bin/sh", "-c", "pwd; echo $A >&2; cat; exit 3"},
		Env:   []string{"A=b", "PATH=/bin:/usr/bin"},
		Stdin: strings.NewReader("in"), Stdout: &out, Stderr: &errs})
	if err != nil || exit != (Exit{Code: 3}) || out.String() != l.Dir()+"\nin" || errs.String() != "b\n" {
		t.Errorf("%v %v %q %q", exit, err, out.String(), errs.String())
	}
	if exit, err := l.Run(t.Context(), Command{Args: []string{"/bin/sh", "-c", "kill -TERM $$"}}); err != nil || exit.Signal != "terminated" {
		t.Errorf("%v %v", exit, err)
	}
	if _, err := l.Run(t.Context(), Command{Args: []string{"/nonexistent"}}); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	// A child that keeps the output open does not delay the result.
	if exit, err := l.Run(t.Context(), Command{Args: []string{"/bin/sh", "-c", "sleep 5 & exit 0"}, Env: []string{"PATH=/bin:/usr/bin"},
		Stdout: &out}); err != nil || exit.Code != 0 {
		t.Errorf("%v %v", exit, err)
	}
	// A cancelled command ends, even if it ignores TERM.
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	r, w := io.Pipe()
	go func() {
		_, _ = r.Read(make([]byte, 1))
		cancel(why)
		_, _ = io.Copy(io.Discard, r)
	}()
	_, err = l.Run(ctx, Command{Args: []string{"/bin/sh", "-c", "trap '' TERM; echo x; while :; do sleep 1; done"},
		Env: []string{"PATH=/bin:/usr/bin"}, Stdout: w, Grace: 1})
	w.Close()
	if !errors.Is(err, why) {
		t.Error(err)
	}
}

func TestFiles(t *testing.T) {
	l := newLocal(t)
	ctx := t.Context()
	if err := l.Put(ctx, "a/b/c", 0o640, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(filepath.Join(l.Dir(), "a/b/c")); err != nil || fi.Mode() != 0o640 {
		t.Errorf("%v %v", fi, err)
	}
	if n, err := l.Append(ctx, "d/e", []byte("12")); err != nil || n != 2 {
		t.Errorf("%d %v", n, err)
	}
	if n, err := l.Append(ctx, "d/e", []byte("34")); err != nil || n != 4 {
		t.Errorf("%d %v", n, err)
	}
	if err := l.Rename(ctx, "d/e", "d/f"); err != nil {
		t.Error(err)
	}
	if b, err := l.Read(ctx, "d/f"); err != nil || string(b) != "1234" {
		t.Errorf("%s %v", b, err)
	}
	for _, name := range []string{"../x", "/etc/hostname"} {
		if _, err := l.Read(ctx, name); err == nil {
			t.Errorf("%s could be read", name)
		}
		if err := l.Put(ctx, name, 0o600, nil); err == nil {
			t.Errorf("%s could be written", name)
		}
	}
	path, remove, err := l.Secret(ctx, []byte("s"))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := exec.Command("cat", path).Output(); err != nil || string(b) != "s" {
		t.Errorf("%s %v", b, err)
	}
	remove()
	if _, err := os.ReadFile(path); err == nil {
		t.Error("a removed secret can be read")
	}
}

func TestLastLine(t *testing.T) {
	for in, want := range map[string]string{"": "", "a": "a", "a\n": "a", "a\nb": "b", "a\nb\n": "b", "a\n\n": "", "\n\na\n": "a"} {
		for cut := range len(in) + 1 {
			var to bytes.Buffer
			l := &LastLine{To: &to}
			_, _ = l.Write([]byte(in[:cut]))
			_, _ = l.Write([]byte(in[cut:]))
			if string(l.Line()) != want || to.String() != in {
				t.Errorf("%q cut at %d: %q", in, cut, l.Line())
			}
		}
	}
}

// BenchmarkRun measures the transport; its sub-benchmark "bare" is the cost of the standard library
// alone.
func BenchmarkRun(b *testing.B) {
	sh := []string{"/bin/sh", "-c", ":"}
	b.Run("local", func(b *testing.B) {
		l := newLocal(b)
		b.SetParallelism(8)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := l.Run(b.Context(), Command{Args: sh, Env: []string{"PATH=/bin"}, Stdout: new(bytes.Buffer),
					Stderr: new(bytes.Buffer)}); err != nil {
					b.Error(err)
				}
			}
		})
	})
	b.Run("bare", func(b *testing.B) {
		b.SetParallelism(8)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := (&exec.Cmd{Path: sh[0], Args: sh, Env: []string{"PATH=/bin"}}).Run(); err != nil {
					b.Error(err)
				}
			}
		})
	})
}
