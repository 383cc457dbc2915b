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
	if len(names) == 0 {
		return map[string]seen{}, nil
	}
	words := make([]string, len(names))
	for i, n := range names {
		words[i] = quote("./" + n)
	}
	// Names that there are not are left out first: tar would fail for them.
	b, err := r.answer(ctx, "read "+r.root, []string{"/bin/sh", "-c", "cd " + quote(r.root) + " 2>/dev/null || exit 0\nset --  " +
		strings.Join(words, " ") + `
for f; do shift; if [ -e "$f" ] || [ -L "$f" ]; then set -- "$@" "$f"; fi; done
[ $# -eq 0 ] && exit 0
tar --no-recursion -cf - "$@" | base64`})
	if err != nil {
		return nil, err
	}
	return parseFiles(r.root, names, b)
}

// parseFiles reads an answer with files below root: a tar archive in Base64. It refuses files that are
// not among names.
func parseFiles(root string, names []string, answer string) (map[string]seen, error) {
	out := map[string]seen{}
	raw, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(answer), ""))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", root, err)
	}
	for t := tar.NewReader(bytes.NewReader(raw)); len(raw) > 0; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", root, err)
		}
		name := path.Clean(strings.TrimPrefix(h.Name, "./"))
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("read %s: the answer names %q, which was not asked for", root, h.Name)
		}
		s := seen{fileState: fileState{Kind: "file", Mode: h.FileInfo().Mode().Perm(), Owner: strconv.Itoa(h.Uid), Group: strconv.Itoa(h.Gid)}}
		switch h.Typeflag {
		case tar.TypeDir:
			s.Kind = "directory"
		case tar.TypeSymlink:
			s.Kind, s.Link, s.Mode = "link", h.Linkname, 0
		case tar.TypeReg:
			// A sparse file may claim any size.
			if s.content, err = io.ReadAll(io.LimitReader(t, maxAnswer)); err != nil {
				return nil, err
			}
			if int64(len(s.content)) != h.Size {
				return nil, fmt.Errorf("read %s: %s is too large", root, name)
			}
			s.Sum = sum(s.content)
		default:
			return nil, fmt.Errorf("%s is neither a file, a link nor a directory, so it is not changed", path.Join(root, h.Name))
		}
		out[name] = s
	}
	return out, nil
}

// maxAnswer bounds what a machine may answer to one question.
const maxAnswer = 128 << 20

// limited keeps what is written to it, and ends the command that writes too much.
type limited struct {
	kept bytes.Buffer
	end  context.CancelCauseFunc
}

func (l *limited) Write(p []byte) (int, error) {
	if l.kept.Len()+len(p) > maxAnswer {
		err := fmt.Errorf("the answer has more than %d bytes", maxAnswer)
		l.end(err)
		return 0, err
	}
	return l.kept.Write(p)
}

// answer returns what a command that has to end with 0 writes to its standard output.
func (r *remoteFiles) answer(ctx context.Context, what string, args []string) (string, error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	out := &limited{end: end}
	code, said, err := r.exec(ctx, args, "/", nil, out)
	if cause := context.Cause(ctx); err == nil && cause != nil {
		err = cause
	}
	return out.kept.String(), failed(what, code, said, err)
}

func (r *remoteFiles) put(ctx context.Context, e builtin.Entry) error {
	_, err := r.apply(ctx, []builtin.Entry{e}, map[string]builtin.Entry{e.Path: e}, nil)
	return err
}

// apply writes every file under a temporary name in its directory first, and then renames it.
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
	return r.answer(ctx, what, []string{"/bin/sh", path.Join(r.m.Dir(), name)})
}

func (r *remoteFiles) remove(ctx context.Context, name string) error {
	return r.must(ctx, "remove "+name, "rm -f "+quote(path.Join(r.root, name)), "/", nil)
}

func (r *remoteFiles) rmdir(ctx context.Context, name string) error {
	return r.must(ctx, "remove "+name, "rmdir "+quote(path.Join(r.root, name))+" 2>/dev/null || :", "/", nil)
}

// recordName is the file of a tree's record.
const recordName = "tree.record"

// fetch copies the tree's repository from its machine, which has a copy because another agent may
// have run the object last time.
func (t *filetree) fetch(ctx context.Context) error {
	b, err := t.m.Read(ctx, t.file(recordName))
	if errors.Is(err, fs.ErrNotExist) {
		return t.repo.clear()
	}
	if err != nil {
		return err
	}
	return t.repo.unpack(ctx, b)
}

// store brings it back.
func (t *filetree) store(ctx context.Context) error {
	b, err := t.repo.pack(ctx)
	if err != nil || b == nil {
		return err
	}
	return t.m.Put(ctx, t.file(recordName), 0o600, b)
}
