package resources

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// ErrArchive says that an archive cannot be taken, and why.
var ErrArchive = errors.New("the archive cannot be taken")

// The bounds of an archive's inside.
const (
	mostEntries  = 50_000
	mostUnpacked = 1 << 30 // bytes
	deepest      = 64      // folders in one another
)

// entry is one thing in an archive.
type entry struct {
	name string // as it stands there
	mode fs.FileMode
	link string // of a symbolic link
	hard string // name of the entry that it is another name of
	body func() (io.ReadCloser, error)
}

// Check reads an archive through as Unpack does, and writes nothing.
func Check(f *os.File) error {
	return walk(f, newUnpacker(nil).take)
}

// Unpack writes an archive (tar, tar.gz or zip, told apart by how they begin) into a
// folder, which is empty. Where everything in it stands in one folder of the
// resource's own name, and no link leads out of that, it is left out. Nothing is written outside the folder, and
// no link leads out of it.
func Unpack(f *os.File, dir, name string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	u, alone := newUnpacker(root), true
	err = walk(f, func(e *entry) error {
		clean, err := inside(e.name)
		below, in := strings.CutPrefix(clean, name+"/")
		alone = alone && (in || clean == "." || clean == name && e.mode.IsDir()) && (e.mode&fs.ModeSymlink == 0 || stays(below, e.link))
		return err
	})
	if err != nil {
		return err
	}
	if alone {
		u.strip = name
	}
	return walk(f, u.take)
}

// walk calls fn for each entry of an archive.
func walk(f *os.File, fn func(*entry) error) error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	var magic [4]byte
	n, err := io.ReadFull(f, magic[:])
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	switch {
	case bytes.HasPrefix(magic[:n], []byte("PK\x03\x04")) || bytes.HasPrefix(magic[:n], []byte("PK\x05\x06")):
		return walkZip(f, fn)
	case bytes.HasPrefix(magic[:n], []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(f)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrArchive, err)
		}
		return walkTar(z, fn)
	}
	return walkTar(f, fn)
}

func walkTar(r io.Reader, fn func(*entry) error) error {
	// What comes out of a small file may be without end, headers included.
	bounded := &io.LimitedReader{R: r, N: mostUnpacked + mostEntries*1024}
	t := tar.NewReader(bounded)
	for entries := 0; ; entries++ {
		h, err := t.Next()
		if errors.Is(err, io.EOF) && bounded.N > 0 {
			if entries == 0 {
				return fmt.Errorf("%w: there is nothing in it; tar, tar.gz and zip are taken", ErrArchive)
			}
			return nil
		}
		if bounded.N <= 0 {
			return tooMuch()
		}
		if err != nil {
			return fmt.Errorf("%w: it is no tar, tar.gz or zip, or not whole: %w", ErrArchive, err)
		}
		e := &entry{name: h.Name, mode: fs.FileMode(h.Mode).Perm(), body: func() (io.ReadCloser, error) { return io.NopCloser(t), nil }}
		switch h.Typeflag {
		case tar.TypeReg:
		case tar.TypeDir:
			e.mode |= fs.ModeDir
		case tar.TypeSymlink:
			e.mode |= fs.ModeSymlink
			e.link = h.Linkname
		case tar.TypeLink:
			e.hard = h.Linkname
		case tar.TypeXGlobalHeader:
			continue
		default:
			return fmt.Errorf("%w: %q is a device, a pipe or something else that is no file, folder or link", ErrArchive, h.Name)
		}
		if err := fn(e); err != nil {
			return err
		}
	}
}

func walkZip(f *os.File, fn func(*entry) error) error {
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	z, err := zip.NewReader(f, fi.Size())
	if err != nil {
		return fmt.Errorf("%w: %w", ErrArchive, err)
	}
	for _, x := range z.File {
		e := &entry{name: x.Name, mode: x.Mode(), body: x.Open}
		switch {
		case e.mode.IsDir(), e.mode.IsRegular():
		case e.mode&fs.ModeSymlink != 0:
			body, err := x.Open()
			if err != nil {
				return fmt.Errorf("%w: %q: %w", ErrArchive, x.Name, err)
			}
			target, err := io.ReadAll(io.LimitReader(body, 4096))
			_ = body.Close()
			if err != nil {
				return fmt.Errorf("%w: %q: %w", ErrArchive, x.Name, err)
			}
			e.link = string(target)
		default:
			return fmt.Errorf("%w: %q is no file, folder or link", ErrArchive, x.Name)
		}
		if err := fn(e); err != nil {
			return err
		}
	}
	return nil
}

// inside gives an entry's path below the folder, cleaned.
func inside(name string) (string, error) {
	clean := path.Clean(strings.ReplaceAll(name, "\\", "/"))
	switch {
	case name == "" || strings.ContainsRune(name, 0):
		return "", fmt.Errorf("%w: %q is no name", ErrArchive, name)
	case path.IsAbs(clean) || clean == ".." || strings.HasPrefix(clean, "../"):
		return "", fmt.Errorf("%w: %q leads out of it", ErrArchive, name)
	case slices.ContainsFunc(strings.Split(clean, "/"), func(part string) bool { return len(part) > 255 }):
		return "", fmt.Errorf("%w: %q is too long for a file system", ErrArchive, name)
	case strings.Count(clean, "/") > deepest:
		return "", fmt.Errorf("%w: %q is more than %d folders deep", ErrArchive, name, deepest)
	}
	return clean, nil
}

func tooMuch() error {
	return fmt.Errorf("%w: more than %d bytes come out of it", ErrArchive, mostUnpacked)
}

// unpacker writes entries. What is there once is not written again, and nothing is
// written through a link: so a link's place is where its name says, and it leads
// where its target says.
type unpacker struct {
	root  *os.Root // nil: nothing is written
	strip string
	left  int64                  // bytes that may come still
	room  int                    // for files and folders, of all there may be
	seen  map[string]fs.FileMode // type of all that is there
}

func newUnpacker(root *os.Root) *unpacker {
	return &unpacker{root: root, left: mostUnpacked, room: mostEntries, seen: map[string]fs.FileMode{}}
}

func (u *unpacker) take(e *entry) error {
	name, err := inside(e.name)
	if err != nil {
		return err
	}
	name = u.place(name)
	if name == "." {
		return nil
	}
	if err := u.folders(path.Dir(name), e.name); err != nil {
		return err
	}
	if was, there := u.seen[name]; there {
		if was.IsDir() && e.mode.IsDir() {
			return nil
		}
		return fmt.Errorf("%w: %q is in it twice", ErrArchive, e.name)
	}
	if err := u.count(name, e.mode.Type()); err != nil {
		return err
	}
	switch {
	case e.mode.IsDir():
		return u.do(func() error { return u.root.Mkdir(name, 0o755) })
	case e.mode&fs.ModeSymlink != 0:
		if !stays(name, e.link) {
			return fmt.Errorf("%w: the link %q leads out of it, to %q", ErrArchive, e.name, e.link)
		}
		return u.do(func() error { return u.root.Symlink(e.link, name) })
	case e.hard != "":
		other, err := inside(e.hard)
		if err != nil {
			return err
		}
		other = u.place(other)
		if was, there := u.seen[other]; !there || !was.IsRegular() || other == name {
			return fmt.Errorf("%w: %q is another name of %q, which is no file before it", ErrArchive, e.name, e.hard)
		}
		return u.do(func() error { return u.root.Link(other, name) })
	}
	return u.file(e, name)
}

// place is where an entry goes, without the folder that is left out.
func (u *unpacker) place(name string) string {
	if u.strip == "" {
		return name
	}
	if name == u.strip {
		return "."
	}
	return strings.TrimPrefix(name, u.strip+"/")
}

// folders makes the folders that an entry stands in.
func (u *unpacker) folders(dir, of string) error {
	if dir == "." {
		return nil
	}
	if was, there := u.seen[dir]; there {
		if !was.IsDir() {
			return fmt.Errorf("%w: %q stands in %q, which is no folder", ErrArchive, of, dir)
		}
		return nil
	}
	if err := u.folders(path.Dir(dir), of); err != nil {
		return err
	}
	if err := u.count(dir, fs.ModeDir); err != nil {
		return err
	}
	return u.do(func() error { return u.root.Mkdir(dir, 0o755) })
}

// count notes what is there from now on.
func (u *unpacker) count(name string, kind fs.FileMode) error {
	if len(u.seen) >= u.room {
		return fmt.Errorf("%w: there are more than %d files and folders in it", ErrArchive, u.room)
	}
	u.seen[name] = kind
	return nil
}

func (u *unpacker) do(f func() error) error {
	if u.root == nil {
		return nil
	}
	return f()
}

func (u *unpacker) file(e *entry, name string) error {
	body, err := e.body()
	if err != nil {
		return fmt.Errorf("%w: %q: %w", ErrArchive, e.name, err)
	}
	defer body.Close()
	var out io.Writer = io.Discard
	if u.root != nil {
		f, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, e.mode.Perm()&0o755|0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		out = f
	}
	n, err := io.Copy(out, io.LimitReader(body, u.left+1))
	if u.left -= n; u.left < 0 {
		return tooMuch()
	}
	if err != nil {
		return fmt.Errorf("%w: %q: %w", ErrArchive, e.name, err)
	}
	return nil
}

// stays says whether a link stays below the folder. Its folder is a real one, so that going
// up from there is what it looks like; once it has gone down it may not go up again,
// for it may have gone through another link.
func stays(name, target string) bool {
	if target == "" || path.IsAbs(target) || strings.ContainsRune(target, 0) {
		return false
	}
	depth := strings.Count(name, "/")
	down := false
	for part := range strings.SplitSeq(target, "/") {
		switch part {
		case "", ".":
		case "..":
			if depth--; depth < 0 || down {
				return false
			}
		default:
			down = true
		}
	}
	return true
}
