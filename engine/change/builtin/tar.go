package builtin

import (
	"archive/tar"
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
)

// largestTar bounds the content of an archive, because a document is an entry of the log.
const largestTar = 64 << 20

// untar reads a base64 tar archive.
func untar(text string) ([]Entry, error) {
	b, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		return nil, err
	}
	r := tar.NewReader(bytes.NewReader(b))
	var out []Entry
	total := 0
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		name := path.Clean(strings.TrimPrefix(h.Name, "./"))
		if name == "." {
			continue
		}
		if !below(name) {
			return nil, fmt.Errorf("%s leads out of the root", h.Name)
		}
		e := Entry{Path: name, Mode: h.FileInfo().Mode().Perm()}
		switch h.Typeflag {
		case tar.TypeDir:
			e.Directory = true
		case tar.TypeSymlink:
			e.Link = h.Linkname
		case tar.TypeReg:
			if e.Content, err = io.ReadAll(io.LimitReader(r, largestTar)); err != nil {
				return nil, err
			}
			if total += len(e.Content); total >= largestTar {
				return nil, fmt.Errorf("it holds %d bytes or more", largestTar)
			}
		default:
			return nil, fmt.Errorf("%s is neither a file, a link nor a directory", h.Name)
		}
		out = append(out, e)
	}
}
