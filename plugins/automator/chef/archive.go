package chef

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
)

// archive packs folders, each with the content of several folders of this machine.
// The same content gives the same bytes, whatever its times and owners are.
func archive(folders map[string][]string) ([]byte, error) {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	for _, name := range slices.Sorted(maps.Keys(folders)) {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755}); err != nil {
			return nil, err
		}
		for _, dir := range folders[name] {
			if err := add(w, dir, name); err != nil {
				return nil, err
			}
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	err := z.Close()
	return out.Bytes(), err
}

// add packs the content of a folder: folders and plain files.
func add(w *tar.Writer, dir, as string) error {
	return filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
		if err != nil || file == dir {
			return err
		}
		below, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		h := &tar.Header{Name: path.Join(as, filepath.ToSlash(below)), Mode: 0o644}
		switch {
		case e.IsDir():
			h.Typeflag, h.Mode, h.Name = tar.TypeDir, 0o755, h.Name+"/"
			return w.WriteHeader(h)
		case !e.Type().IsRegular():
			return nil
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if fi, err := e.Info(); err == nil && fi.Mode()&0o111 != 0 {
			h.Mode = 0o755
		}
		h.Size = int64(len(content))
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		_, err = w.Write(content)
		return err
	})
}
