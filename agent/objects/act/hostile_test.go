package act

import (
	"archive/tar"
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// record returns the path, on the bench's machine, of a file in the directory of a tree's record.
func (b *bench) record(name string) string {
	return filepath.Join(b.p.cfg.Dir, "work", ".coopr-changes", "t", "s", "part%of%it", name)
}

// forget removes this agent's copy of the tree, as if another agent had run the object.
func (b *bench) forget() {
	b.t.Helper()
	if err := os.RemoveAll(filepath.Join(b.p.cfg.Dir, "trees")); err != nil {
		b.t.Fatal(err)
	}
}

// plainFiles returns what there is in the agent's folder of repositories.
func (b *bench) plainFiles() (names []string) {
	b.t.Helper()
	err := filepath.WalkDir(filepath.Join(b.p.cfg.Dir, "trees"), func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, p)
		}
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		b.t.Fatal(err)
	}
	return names
}

// A node's record was a whole repository, and its configuration named a program that git starts.
func TestRecordStartsNoProgram(t *testing.T) {
	b := newBench(t, tree(filepath.Join(t.TempDir(), "etc")), true)
	b.run("start")
	b.forget()
	started := filepath.Join(t.TempDir(), "started")
	var evil bytes.Buffer
	w := tar.NewWriter(&evil)
	for name, text := range map[string]string{
		".git/HEAD":        "ref: refs/heads/main\n",
		".git/config":      "[core]\n\trepositoryformatversion = 0\n\tfsmonitor = \"touch " + started + "; false\"\n",
		".git/objects/x":   "",
		".git/refs/heads/": "",
		"state.json":       `{"content":1,"root":"/etc","files":{}}`,
	} {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"tree.tar", recordName} {
		if err := os.WriteFile(b.record(name), evil.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	err := b.p.Run(t.Context(), b.job(), "restart")
	if _, serr := os.Stat(started); !os.IsNotExist(serr) {
		t.Error("the node's program was started on the agent")
	}
	if err == nil || !strings.Contains(err.Error(), "record on its node is refused") {
		t.Errorf("the record was taken: %v", err)
	}
}

// gitStore is a repository that a test fills by hand.
type gitStore struct {
	t   *testing.T
	dir string
}

func (g *gitStore) git(stdin []byte, args ...string) []byte {
	g.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Stdin = g.dir, bytes.NewReader(stdin)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=x", "GIT_AUTHOR_EMAIL=x@x",
		"GIT_COMMITTER_NAME=x", "GIT_COMMITTER_EMAIL=x@x")
	out, err := cmd.CombinedOutput()
	if err != nil {
		g.t.Fatalf("git %q: %v: %s", args, err, out)
	}
	return bytes.TrimSpace(out)
}

// tree stores a tree of one entry, whatever its name and mode are.
func (g *gitStore) tree(mode, name string, id []byte) []byte {
	g.t.Helper()
	raw, err := hex.DecodeString(string(id))
	if err != nil {
		g.t.Fatal(err)
	}
	return g.git(fmt.Appendf(nil, "%s %s\x00%s", mode, name, raw), "hash-object", "-w", "-t", "tree", "--literally", "--stdin")
}

func TestHostileRecords(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	for name, c := range map[string]struct {
		mode, name string // of an entry in the folder live
		top        string // instead of live
		content    string
		cut        int
	}{
		"link":               {mode: "120000", name: "x", content: outside},
		"repository":         {mode: "160000", name: "x"},
		"program":            {mode: "100755", name: "x"},
		"configuration":      {mode: "100644", name: ".git"},
		"its other spelling": {mode: "100644", name: ".GiT"},
		"attributes":         {mode: "100644", name: ".gitattributes", content: "* filter=x"},
		"parent":             {mode: "100644", name: ".."},
		"slash":              {mode: "100644", name: "../../../../x"},
		"another folder":     {mode: "100644", name: "x", top: "hooks"},
		"a folder as state":  {mode: "100644", name: "x", top: "state.json"},
		"cut short":          {mode: "100644", name: "x", cut: 10},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, tree(filepath.Join(t.TempDir(), "etc")), true)
			b.run("start")
			b.forget()
			g := &gitStore{t, t.TempDir()}
			g.git(nil, "init", "-q", "-b", "main")
			id := g.git([]byte(c.content), "hash-object", "-w", "--stdin")
			if c.mode == "160000" {
				id = bytes.Repeat([]byte("1"), 40)
			}
			if c.top == "" {
				c.top = "live"
			}
			root := g.tree("40000", c.top, g.tree(c.mode, c.name, id))
			commit := g.git(nil, "commit-tree", "-m", "x", string(root))
			g.git(nil, "update-ref", "refs/heads/main", string(commit))
			pack := g.git([]byte("refs/heads/main\n"), "pack-objects", "-q", "--revs", "--stdout")
			data := append(fmt.Appendf(nil, "coopr tree 1 %s\n", commit), pack[:len(pack)-c.cut]...)
			if err := os.WriteFile(b.record(recordName), data, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, _, err := b.p.Check(t.Context(), b.job()); err == nil || !strings.Contains(err.Error(), "record on its node is refused") {
				t.Errorf("the record was taken: %v", err)
			}
			if left := b.plainFiles(); len(left) > 0 {
				t.Errorf("left are %q", left)
			}
		})
	}
}

// The state within a record names files: none of them may be outside the tree.
func TestHostileStates(t *testing.T) {
	for _, state := range []string{
		`{"content":1,"root":"/etc/web","files":{"../../x":{"kind":"file"}}}`,
		`{"content":1,"root":"/etc/web","files":{"/x":{"kind":"file"}}}`,
		`{"content":1,"root":"/etc/web","files":{},"made":["../x"]}`,
		`{"content":1,"root":"../x","files":{}}`,
		`{"content":1,"root":"/","files":{}}`,
	} {
		b := newBench(t, tree(filepath.Join(t.TempDir(), "etc")), true)
		r := &repo{dir: t.TempDir()}
		if err := r.init(t.Context()); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(r.dir, "state.json"), state)
		if err := r.commit(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		data, err := r.pack(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(b.record(recordName)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(b.record(recordName), data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := b.p.Check(t.Context(), b.job()); err == nil || !strings.Contains(err.Error(), "the record of the tree on the node names") {
			t.Errorf("%s was taken: %v", state, err)
		}
	}
}

// A hostile machine sends an arbitrary answer to a request for files.
func TestHostileAnswers(t *testing.T) {
	tar, err := exec.LookPath("tar")
	if err != nil {
		t.Fatal(err)
	}
	large := filepath.Join(t.TempDir(), "large")
	write(t, large, "")
	if err := os.Truncate(large, 1<<40); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ script, want string }{
		"another name": {tar + " -cf - --transform 's,.*,../../../../evil,' -P /dev/null", "which was not asked for"},
		"a device":     {tar + " -cf - --transform 's,.*,./other.conf,' -P /dev/null", "neither a file"},
		"a claim":      {tar + " -cf - --format=posix --sparse --transform 's,.*,./other.conf,' -P " + large + " 2>/dev/null", "too large"},
	} {
		t.Run(name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "etc")
			if err := os.MkdirAll(root, 0o755); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(root, "other.conf"), "of the machine\n")
			b := newBench(t, tree(root), true)
			bin := t.TempDir()
			if err := os.WriteFile(filepath.Join(bin, "tar"), []byte("#!/bin/sh\n"+c.script+"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
			if err := b.p.Run(t.Context(), b.job(), "start"); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the answer was taken: %v", err)
			}
			for _, f := range b.plainFiles() {
				if strings.Contains(f, "evil") {
					t.Errorf("%s was written", f)
				}
			}
		})
	}
}

// A tree may have files that git would take for its own; their names in the record are others.
func TestFileTreeOfGitFiles(t *testing.T) {
	root := filepath.Join(t.TempDir(), "etc")
	o := tree(root)
	files := o.Content["files"].(map[string]any)
	for name, text := range map[string]string{
		"app/.gitattributes":  "* working-tree-encoding=nonsense\n",
		"app/%.gitattributes": "another\n",
		".gitignore":          "*\n",
		"lines":               "a\r\nb\r\n",
	} {
		files[name] = map[string]any{"content": text}
	}
	b := newBench(t, o, true)
	b.run("start")
	b.is("up")
	write(t, filepath.Join(root, ".gitignore"), "*\n# mine\n")
	b.forget()
	b.files("app/.gitattributes", "* text eol=crlf\n")
	b.run("restart")
	b.is("up")
	if got := read(t, filepath.Join(root, ".gitignore")); !strings.Contains(got, "# mine") {
		t.Errorf("the edit is lost: %q", got)
	}
	if got := read(t, filepath.Join(root, "app/.gitattributes")); got != "* text eol=crlf\n" {
		t.Errorf("%q", got)
	}
	b.run("stop")
	b.is("down")
}

func TestKeptNames(t *testing.T) {
	for name, want := range map[string]string{"a/b": "a/b", ".git/config": "%.git/config", "a/.GIT": "a/%.GIT", "%.git/x": "%%.git/x",
		"../x": "", "/x": "", "a/../../x": "", "a\x00": ""} {
		if got, err := kept(name); got != want || err == nil != (want != "") {
			t.Errorf("%q is kept as %q: %v", name, got, err)
		}
	}
}

// From the answer to a request for files, only files are taken that were asked for, with contents that
// match their checksums.
func FuzzParseFiles(f *testing.F) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range []*tar.Header{
		{Name: "./a", Typeflag: tar.TypeReg, Size: 3, Mode: 0o640}, {Name: "./d", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "./l", Typeflag: tar.TypeSymlink, Linkname: "a"},
	} {
		if err := w.WriteHeader(h); err != nil {
			f.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := w.Write([]byte("abc")); err != nil {
				f.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add(b.Bytes()[:700])
	f.Add([]byte{})
	names := []string{"a", "d", "l", "sub/b"}
	f.Fuzz(func(t *testing.T, archive []byte) {
		got, err := parseFiles("/etc", names, base64.StdEncoding.EncodeToString(archive))
		if err != nil {
			return
		}
		for name, s := range got {
			switch {
			case !slices.Contains(names, name):
				t.Errorf("%q was not asked for", name)
			case s.Kind == "file" && s.Sum != sum(s.content), s.Kind != "file" && len(s.content) > 0, len(s.content) > len(archive):
				t.Errorf("%q: %+v", name, s)
			}
		}
	})
}

// A record that is taken has plain files within its folders, and no more content than is allowed.
func FuzzCheckRecord(f *testing.F) {
	const blob = "100644 blob 1111111111111111111111111111111111111111 "
	for _, list := range []string{
		blob + "3\tlive/a\x00" + blob + "0\tstate.json\x00", blob + "3\t../a\x00", "120000 blob 1 3\tlive/a\x00", "",
		blob + "1\tlive/a\x00" + blob + "9223372036854775807\tlive/b\x00", blob + "1\tlive/.git/config\x00",
	} {
		f.Add(list)
	}
	f.Fuzz(func(t *testing.T, list string) {
		if checkRecord(list) != nil {
			return
		}
		total := new(big.Int)
		for line := range strings.SplitSeq(strings.TrimSuffix(list, "\x00"), "\x00") {
			about, name, _ := strings.Cut(line, "\t")
			size, ok := new(big.Int).SetString(strings.Fields(about)[3], 10)
			if !ok || size.Sign() < 0 {
				t.Fatalf("%q was taken", line)
			}
			total.Add(total, size)
			if !filepath.IsLocal(name) || strings.Contains(strings.ToLower(name), "/.git") {
				t.Errorf("%q was taken", name)
			}
		}
		if total.Cmp(big.NewInt(maxRecordFiles)) > 0 {
			t.Errorf("%s bytes were taken", total)
		}
	})
}
