package act

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/coopr/coopr/engine/change/builtin"
)

// remoteFiles is a tree of a machine on which nothing of ours is installed: a
// shell and tar do.
type remoteFiles struct {
	*object
	root string
}

func (r *remoteFiles) stat(ctx context.Context, names []string, _ bool) (map[string]seen, error) {
	out := map[string]seen{}
	if len(names) == 0 {
		return out, nil
	}
	words := make([]string, len(names))
	for i, n := range names {
		words[i] = quote("./" + n)
	}
	var b bytes.Buffer
	// Names that there are not are left out first: tar would fail for them.
	code, said, err := r.exec(ctx, []string{"/bin/sh", "-c", "cd " + quote(r.root) + " 2>/dev/null || exit 0\nset --  " +
		strings.Join(words, " ") + `
for f; do shift; if [ -e "$f" ] || [ -L "$f" ]; then set -- "$@" "$f"; fi; done
[ $# -eq 0 ] && exit 0
tar --no-recursion -cf - "$@" | base64`}, "/", nil, &b)
	if err := failed("read "+r.root, code, said, err); err != nil {
		return nil, err
	}
	raw, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(b.String()), ""))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", r.root, err)
	}
	for t := tar.NewReader(bytes.NewReader(raw)); len(raw) > 0; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", r.root, err)
		}
		s := seen{fileState: fileState{Kind: "file", Mode: h.FileInfo().Mode().Perm(), Owner: strconv.Itoa(h.Uid), Group: strconv.Itoa(h.Gid)}}
		switch h.Typeflag {
		case tar.TypeDir:
			s.Kind = "directory"
		case tar.TypeSymlink:
			s.Kind, s.Link, s.Mode = "link", h.Linkname, 0
		case tar.TypeReg:
			if s.content, err = io.ReadAll(t); err != nil {
				return nil, err
			}
			s.Sum = sum(s.content)
		default:
			return nil, fmt.Errorf("%s is neither a file, a link nor a directory: it is left alone", path.Join(r.root, h.Name))
		}
		out[path.Clean(strings.TrimPrefix(h.Name, "./"))] = s
	}
	return out, nil
}

func (r *remoteFiles) put(ctx context.Context, e builtin.Entry) error {
	_, err := r.apply(ctx, []builtin.Entry{e}, map[string]builtin.Entry{e.Path: e}, nil)
	return err
}

// apply puts every file beside its place first, and then moves it there.
func (r *remoteFiles) apply(ctx context.Context, entries []builtin.Entry, write map[string]builtin.Entry,
	remove []string) ([]string, error) {
	var script strings.Builder
	script.WriteString("set -e\nroot=" + quote(r.root) + "\n[ -d \"$root\" ] || echo MADE .\nmkdir -p \"$root\"; cd \"$root\"\n")
	dir := func(d string) {
		var up []string
		for ; d != "."; d = path.Dir(d) {
			up = append(up, d)
		}
		slices.Reverse(up)
		for _, d := range up {
			fmt.Fprintf(&script, "[ -d %[1]s ] || { mkdir %[1]s; echo MADE %[2]s; }\n", quote("./"+d), quote(d))
		}
	}
	for _, e := range entries {
		w, ok := write[e.Path]
		if !ok {
			continue
		}
		at, tmp := quote("./"+w.Path), quote("./"+w.Path+".coopr-new")
		if w.Directory {
			dir(w.Path)
			tmp = at
		} else {
			dir(path.Dir(w.Path))
			if w.Link != "" {
				fmt.Fprintf(&script, "rm -f %s; ln -s %s %s\n", tmp, quote(w.Link), tmp)
			} else {
				fmt.Fprintf(&script, "base64 -d >%s <<'END-OF-FILE'\n%s\nEND-OF-FILE\n", tmp, base64.StdEncoding.EncodeToString(w.Content))
			}
		}
		if w.Link == "" {
			fmt.Fprintf(&script, "chmod %o %s\n", w.Mode, tmp)
		}
		if owner := w.Owner; owner != "" || w.Group != "" {
			if w.Group != "" {
				owner += ":" + w.Group
			}
			fmt.Fprintf(&script, "chown -h %s %s\n", quote(owner), tmp)
		}
		if !w.Directory {
			fmt.Fprintf(&script, "mv -fT %s %s\n", tmp, at)
		}
	}
	for _, name := range remove {
		fmt.Fprintf(&script, "rm -f %s\n", quote("./"+name))
	}
	out, err := r.program(ctx, "write "+r.root, script.String())
	var made []string
	for _, line := range strings.Split(out, "\n") {
		if d, ok := strings.CutPrefix(line, "MADE "); ok {
			made = append(made, d)
		}
	}
	return made, err
}

// program runs a script that may be longer than a command line, as a file.
func (r *remoteFiles) program(ctx context.Context, what, text string) (string, error) {
	name := r.file("program.sh")
	if err := r.m.Put(ctx, name, 0o700, []byte(text)); err != nil {
		return "", err
	}
	var b bytes.Buffer
	code, said, err := r.exec(ctx, []string{"/bin/sh", path.Join(r.m.Dir(), name)}, "/", nil, &b)
	return b.String(), failed(what, code, said, err)
}

func (r *remoteFiles) remove(ctx context.Context, name string) error {
	return r.must(ctx, "remove "+name, "rm -f "+quote(path.Join(r.root, name)), "/", nil)
}

func (r *remoteFiles) rmdir(ctx context.Context, name string) error {
	return r.must(ctx, "remove "+name, "rmdir "+quote(path.Join(r.root, name))+" 2>/dev/null || :", "/", nil)
}

// fetch brings the tree's repository from its machine, where it is kept too: the
// home may be another than last time.
func (t *filetree) fetch(ctx context.Context) error {
	b, err := t.m.Read(ctx, t.file("tree.tar"))
	if errors.Is(err, fs.ErrNotExist) {
		return t.repo.clear()
	}
	if err != nil {
		return err
	}
	return t.repo.unpack(b)
}

// store brings it back.
func (t *filetree) store(ctx context.Context) error {
	b, err := t.repo.pack()
	if err != nil {
		return err
	}
	return t.m.Put(ctx, t.file("tree.tar"), 0o600, b)
}
