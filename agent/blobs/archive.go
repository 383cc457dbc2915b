package blobs

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

// ErrArchive is returned for an archive that is damaged, unsafe or too large.
var ErrArchive = errors.New("the archive is refused")

// Limits of an archive's content.
const (
	maxEntries  = 50_000
	maxUnpacked = 1 << 30 // bytes
	maxDepth    = 64      // nested folders
)

// entry is one file, folder or link in an archive.
type entry struct {
	name string // as written in the archive
	mode fs.FileMode
	link string // target of a symbolic link
	hard string // name of the file that a hard link refers to
	body func() (io.ReadCloser, error)
}

// source is an archive.
type source interface {
	io.ReadSeeker
	io.ReaderAt
}

// Check reads an archive as Unpack does, and writes nothing.
func Check(f source) error {
	return walk(f, newUnpacker(nil).add)
}

// Unpack unpacks an archive (tar, tar.gz or zip, recognised by its first bytes) into
// an empty folder. If everything in the archive is below one folder with the
// resource's own name, and no link leaves it, that folder is stripped. Unpack writes
// nothing outside the folder and creates no link that leaves it.
func Unpack(f source, dir, name string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	u, strip := newUnpacker(root), true
	err = walk(f, func(e *entry) error {
		clean, err := inside(e.name)
		below, in := strings.CutPrefix(clean, name+"/")
		strip = strip && (in || clean == "." || clean == name && e.mode.IsDir()) && (e.mode&fs.ModeSymlink == 0 || stays(below, e.link))
		return err
	})
	if err != nil {
		return err
	}
	if strip {
		u.strip = name
	}
	return walk(f, u.add)
}

// walk calls fn for each entry of an archive.
func walk(f source, fn func(*entry) error) error {
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
	// A small file may unpack to an endless stream, of headers too.
	bounded := &io.LimitedReader{R: r, N: maxUnpacked + maxEntries*1024}
	t := tar.NewReader(bounded)
	for entries := 0; ; entries++ {
		h, err := t.Next()
		if errors.Is(err, io.EOF) && bounded.N > 0 {
			if entries == 0 {
				return fmt.Errorf("%w: it is empty; the formats are tar, tar.gz and zip", ErrArchive)
			}
			return nil
		}
		if bounded.N <= 0 {
			return errTooMuch()
		}
		if err != nil {
			return fmt.Errorf("%w: it is not a tar, tar.gz or zip file, or it is incomplete: %w", ErrArchive, err)
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
			return fmt.Errorf("%w: %q is a device, a pipe or another special file; only files, folders and links are accepted", ErrArchive, h.Name)
		}
		if err := fn(e); err != nil {
			return err
		}
	}
}

func walkZip(f source, fn func(*entry) error) error {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	z, err := zip.NewReader(f, size)
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
			return fmt.Errorf("%w: %q is a special file; only files, folders and links are accepted", ErrArchive, x.Name)
		}
		if err := fn(e); err != nil {
			return err
		}
	}
	return nil
}

// inside returns the clean path of an entry below the folder.
func inside(name string) (string, error) {
	clean := path.Clean(strings.ReplaceAll(name, "\\", "/"))
	switch {
	case name == "" || strings.ContainsRune(name, 0):
		return "", fmt.Errorf("%w: %q is not a valid name", ErrArchive, name)
	case path.IsAbs(clean) || clean == ".." || strings.HasPrefix(clean, "../"):
		return "", fmt.Errorf("%w: the path %q leaves the archive's folder", ErrArchive, name)
	case slices.ContainsFunc(strings.Split(clean, "/"), func(part string) bool { return len(part) > 255 }):
		return "", fmt.Errorf("%w: the name %q is too long for a file system", ErrArchive, name)
	case strings.Count(clean, "/") > maxDepth:
		return "", fmt.Errorf("%w: %q is nested more than %d folders deep", ErrArchive, name, maxDepth)
	}
	return clean, nil
}

func errTooMuch() error {
	return fmt.Errorf("%w: it has more than %d bytes when unpacked", ErrArchive, maxUnpacked)
}

// unpacker writes entries. It writes no path twice and nothing through a link, so a link has
// exactly the place and the target that its entry names.
type unpacker struct {
	root  *os.Root               // nil: nothing is written
	strip string                 // folder that is stripped from all names; may be empty
	left  int64                  // bytes that may still be unpacked
	room  int                    // limit of files and folders
	seen  map[string]fs.FileMode // type of every path so far
}

func newUnpacker(root *os.Root) *unpacker {
	return &unpacker{root: root, left: maxUnpacked, room: maxEntries, seen: map[string]fs.FileMode{}}
}

func (u *unpacker) add(e *entry) error {
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
		return fmt.Errorf("%w: %q occurs twice", ErrArchive, e.name)
	}
	if err := u.count(name, e.mode.Type()); err != nil {
		return err
	}
	switch {
	case e.mode.IsDir():
		return u.do(func() error { return u.root.Mkdir(name, 0o755) })
	case e.mode&fs.ModeSymlink != 0:
		if !stays(name, e.link) {
			return fmt.Errorf("%w: the link %q leaves the archive's folder: it points to %q", ErrArchive, e.name, e.link)
		}
		return u.do(func() error { return u.root.Symlink(e.link, name) })
	case e.hard != "":
		other, err := inside(e.hard)
		if err != nil {
			return err
		}
		other = u.place(other)
		if was, there := u.seen[other]; !there || !was.IsRegular() || other == name {
			return fmt.Errorf("%w: %q is a hard link to %q, which is not an earlier file of the archive", ErrArchive, e.name, e.hard)
		}
		return u.do(func() error { return u.root.Link(other, name) })
	}
	return u.file(e, name)
}

// place returns the path to which an entry is unpacked.
func (u *unpacker) place(name string) string {
	if u.strip == "" {
		return name
	}
	if name == u.strip {
		return "."
	}
	return strings.TrimPrefix(name, u.strip+"/")
}

// folders creates the parent folders of an entry.
func (u *unpacker) folders(dir, of string) error {
	if dir == "." {
		return nil
	}
	if was, there := u.seen[dir]; there {
		if !was.IsDir() {
			return fmt.Errorf("%w: %q is below %q, which is not a folder", ErrArchive, of, dir)
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

// count records a path, up to the limit.
func (u *unpacker) count(name string, kind fs.FileMode) error {
	if len(u.seen) >= u.room {
		return fmt.Errorf("%w: it has more than %d files and folders", ErrArchive, u.room)
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
		return errTooMuch()
	}
	if err != nil {
		return fmt.Errorf("%w: %q: %w", ErrArchive, e.name, err)
	}
	return nil
}

// stays reports whether a link's target is below the folder. The link's own folder is a real
// folder, so leading ".." parts lead where they seem to. After any other part, ".." is refused:
// that part may be another link.
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
