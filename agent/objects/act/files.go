package act

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/coopr/coopr/engine/change/builtin"
)

// treeFiles is a tree on a machine. Paths are below its root.
type treeFiles interface {
	// stat returns those of the paths that exist, with their contents if asked.
	stat(ctx context.Context, names []string, contents bool) (map[string]seen, error)
	// put writes one file or link, whole or not at all, in directories that are made.
	put(ctx context.Context, e builtin.Entry) error
	// apply creates the directories among entries, writes and removes. It returns the
	// directories that did not exist before.
	apply(ctx context.Context, entries []builtin.Entry, write map[string]builtin.Entry, remove []string) (made []string, err error)
	// remove removes a file or link; none is fine.
	remove(ctx context.Context, name string) error
	// rmdir removes a directory, if it is empty.
	rmdir(ctx context.Context, name string) error
}

// files returns the files below a root.
func (t *filetree) files(root string) (treeFiles, error) {
	if t.m.Local {
		return &localFiles{root}, nil
	}
	return &remoteFiles{t.object, root}, nil
}

// localFiles is a tree of this machine.
type localFiles struct{ root string }

func (l *localFiles) full(name string) string { return filepath.Join(l.root, filepath.FromSlash(name)) }

func (l *localFiles) stat(_ context.Context, names []string, _ bool) (map[string]seen, error) {
	out := map[string]seen{}
	for _, name := range names {
		fi, err := os.Lstat(l.full(name))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var s seen
		switch {
		case fi.IsDir():
			s.Kind = "directory"
		case fi.Mode()&fs.ModeSymlink != 0:
			s.Kind = "link"
			if s.Link, err = os.Readlink(l.full(name)); err != nil {
				return nil, err
			}
		case fi.Mode().IsRegular():
			s.Kind = "file"
			if s.content, err = os.ReadFile(l.full(name)); err != nil {
				return nil, err
			}
			s.Sum = sum(s.content)
		default:
			return nil, fmt.Errorf("%s is neither a file, a link nor a directory, so it is not changed", l.full(name))
		}
		if s.Kind != "link" {
			s.Mode = fi.Mode().Perm()
		}
		if st, ok := fi.Sys().(*syscall.Stat_t); ok {
			s.Owner, s.Group = strconv.Itoa(int(st.Uid)), strconv.Itoa(int(st.Gid))
		}
		out[name] = s
	}
	return out, nil
}

func (l *localFiles) put(_ context.Context, e builtin.Entry) error {
	_, err := l.write(e)
	return err
}

// write writes an entry, and returns the directories that it created for it.
func (l *localFiles) write(e builtin.Entry) (made []string, err error) {
	for dir := path.Dir(e.Path); dir != "."; dir = path.Dir(dir) {
		if _, err := os.Lstat(l.full(dir)); errors.Is(err, fs.ErrNotExist) {
			made = append(made, dir)
		}
	}
	full := l.full(e.Path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		return nil, err
	}
	if e.Directory {
		if fi, err := os.Lstat(full); err == nil && fi.IsDir() {
			return made, errors.Join(os.Chmod(full, e.Mode), own(full, e))
		}
		if err := os.Mkdir(full, e.Mode); err != nil {
			return made, err
		}
		return append(made, e.Path), errors.Join(os.Chmod(full, e.Mode), own(full, e))
	}
	tmp := full + ".coopr-new"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return made, err
	}
	if e.Link != "" {
		err = os.Symlink(e.Link, tmp)
	} else if err = os.WriteFile(tmp, e.Content, e.Mode); err == nil {
		err = os.Chmod(tmp, e.Mode) // whatever the umask is
	}
	if err == nil {
		err = own(tmp, e)
	}
	if err == nil {
		err = os.Rename(tmp, full)
	}
	if err != nil {
		return made, errors.Join(err, os.Remove(tmp))
	}
	return made, nil
}

// own sets the owner and the group of a file.
func own(file string, e builtin.Entry) error {
	uid, gid := -1, -1
	if e.Owner != "" {
		u, err := user.Lookup(e.Owner)
		if err == nil {
			uid, err = strconv.Atoi(u.Uid)
		} else if n, nerr := strconv.Atoi(e.Owner); nerr == nil {
			uid, err = n, nil
		}
		if err != nil {
			return err
		}
	}
	if e.Group != "" {
		g, err := user.LookupGroup(e.Group)
		if err == nil {
			gid, err = strconv.Atoi(g.Gid)
		} else if n, nerr := strconv.Atoi(e.Group); nerr == nil {
			gid, err = n, nil
		}
		if err != nil {
			return err
		}
	}
	if uid < 0 && gid < 0 {
		return nil
	}
	return os.Lchown(file, uid, gid)
}

func (l *localFiles) apply(_ context.Context, entries []builtin.Entry, write map[string]builtin.Entry, remove []string) (made []string,
	err error) {
	if _, err := os.Stat(l.root); errors.Is(err, fs.ErrNotExist) {
		made = append(made, ".")
	}
	for _, e := range entries { // ascending: directories before what is in them
		w, ok := write[e.Path]
		if !ok {
			continue
		}
		more, err := l.write(w)
		if err != nil {
			return made, err
		}
		made = append(made, more...)
	}
	for _, name := range remove {
		if err := os.Remove(l.full(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return made, err
		}
	}
	slices.Sort(made)
	return slices.Compact(made), nil
}

func (l *localFiles) remove(_ context.Context, name string) error {
	err := os.Remove(l.full(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (l *localFiles) rmdir(_ context.Context, name string) error {
	err := os.Remove(l.full(name))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST) {
		return nil
	}
	return err
}
