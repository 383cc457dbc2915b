package act

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// packed returns the file that has the checksum of the archive that the repository was
// unpacked from, or packed into.
func (r *repo) packed() string { return r.dir + ".packed" }

// clear forgets the repository.
func (r *repo) clear() error {
	return errors.Join(os.RemoveAll(r.dir), os.RemoveAll(r.packed()))
}

// pack returns the whole repository as an archive.
func (r *repo) pack() ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	err := filepath.WalkDir(r.dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() && !d.IsDir() {
			return err
		}
		name, err := filepath.Rel(r.dir, file)
		if err != nil || name == "." {
			return err
		}
		if d.IsDir() {
			return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: filepath.ToSlash(name) + "/", Mode: 0o700})
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: filepath.ToSlash(name), Mode: 0o600, Size: int64(len(data))}); err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	})
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, err
	}
	return b.Bytes(), os.WriteFile(r.packed(), []byte(sum(b.Bytes())), 0o600)
}

// unpack creates the repository from an archive, unless it was unpacked from it already.
func (r *repo) unpack(data []byte) error {
	if was, err := os.ReadFile(r.packed()); err == nil && string(was) == sum(data) {
		return nil
	}
	if err := r.clear(); err != nil {
		return err
	}
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(r.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for t := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("the repository of the tree is damaged: %w", err)
		}
		name := filepath.FromSlash(filepath.Clean(h.Name))
		if h.Typeflag == tar.TypeDir {
			if err := root.MkdirAll(name, 0o700); err != nil {
				return err
			}
			continue
		}
		b, err := io.ReadAll(t)
		if err == nil {
			err = errors.Join(root.MkdirAll(filepath.Dir(name), 0o700), root.WriteFile(name, b, 0o600))
		}
		if err != nil {
			return err
		}
	}
	return os.WriteFile(r.packed(), []byte(sum(data)), 0o600)
}
