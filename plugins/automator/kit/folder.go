package kit

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/remote"
	"github.com/coopr/coopr/plugins/sdk"
)

// unpacker unpacks an archive on a node, unless its content has been unpacked before. $1 is the
// archive, $2 the folder.
const unpacker = `set -eu
[ -d "$2" ] && exit 0
mkdir -p "$2.$$"
tar -xzf "$1" -C "$2.$$"
mv -T "$2.$$" "$2" 2>/dev/null || rm -rf "$2.$$"`

// Folder sends folders of this machine to a node and returns the folder there that holds them by
// name. Each is merged from several folders; of two entries with the same name the first one
// counts. A content is sent and unpacked once, and stays on the node. The node needs tar and gzip.
// The error is marked.
func Folder(ctx context.Context, t *sdk.Task, in *model.TaskInput, node remote.Node, folders map[string][]string) (string, error) {
	dir, err := os.MkdirTemp("", "coopr-folder-")
	if err != nil {
		return "", sdk.NothingDone(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "folder.tar.gz")
	sum, err := packInto(file, folders)
	if err != nil {
		return "", sdk.NothingDone(fmt.Errorf("pack the files for the node: %w", err))
	}
	// The name follows from the content.
	there := path.Join(node.Dir(), ".coopr/folders", sum)
	packed, err := node.Script(ctx, file)
	if err != nil {
		return "", NotBegun(err)
	}
	exit, err := Run(ctx, node, remote.Command{
		Args: []string{"/bin/sh", "-c", unpacker, "unpack", packed, there}, Env: Plain(t, in, node), Stdout: t.Stdout(), Stderr: t.Stderr(),
	})
	if err != nil {
		return "", err
	}
	return there, Succeeded("unpacking files on the node", exit)
}

// packInto writes the archive of folders to a new file. It returns the archive's SHA-256 in
// hexadecimal.
func packInto(file string, folders map[string][]string) (string, error) {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	err = errors.Join(archive(io.MultiWriter(f, h), folders), f.Close())
	return hex.EncodeToString(h.Sum(nil)), err
}

// archive writes a tar.gz archive of folders. The keys are the names of the folders in the archive.
// A value lists the folders of this machine that are merged into one; of two entries with the same
// name the first one counts. The archives of equal contents are equal, whatever their times and
// owners.
func archive(out io.Writer, folders map[string][]string) error {
	z := gzip.NewWriter(out)
	w := tar.NewWriter(z)
	for _, name := range slices.Sorted(maps.Keys(folders)) {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755}); err != nil {
			return err
		}
		taken := map[string]bool{}
		for _, dir := range folders[name] {
			entries, err := os.ReadDir(dir)
			if err != nil {
				return err
			}
			for _, e := range entries {
				if taken[e.Name()] {
					continue
				}
				taken[e.Name()] = true
				if err := add(w, filepath.Join(dir, e.Name()), path.Join(name, e.Name())); err != nil {
					return err
				}
			}
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return z.Close()
}

// add packs a file or a folder. Symbolic links are kept; special files are skipped.
func add(w *tar.Writer, at, as string) error {
	return filepath.WalkDir(at, func(file string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(at, file)
		if err != nil {
			return err
		}
		h := &tar.Header{Name: path.Join(as, filepath.ToSlash(below)), Mode: 0o644}
		switch {
		case e.IsDir():
			h.Typeflag, h.Mode, h.Name = tar.TypeDir, 0o755, h.Name+"/"
			return w.WriteHeader(h)
		case e.Type()&fs.ModeSymlink != 0:
			h.Typeflag = tar.TypeSymlink
			if h.Linkname, err = os.Readlink(file); err != nil {
				return err
			}
			return w.WriteHeader(h)
		case !e.Type().IsRegular():
			return nil
		}
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		fi, err := f.Stat()
		if err != nil {
			return err
		}
		if fi.Mode()&0o111 != 0 {
			h.Mode = 0o755
		}
		h.Size = fi.Size()
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		_, err = io.CopyN(w, f, h.Size)
		return err
	})
}
