package hunt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Hunt looks for canaries. Any number of goroutines may use it.
type Hunt struct {
	// filter has a bit for each hash of the first bytes of a pattern, and table the patterns by these bytes.
	filter [1 << 10]uint64
	table  map[uint64][]pattern
}

type pattern struct {
	kind, form string
	text       []byte
}

// Find is a place that has a canary.
type Find struct {
	Kind  string // of the canary
	Form  string // how it is written there
	Where string
	// Before is the text before it there, to recognize the place by.
	Before string
}

// String returns the find for people.
func (f Find) String() string {
	return fmt.Sprintf("%s (%s) in %s, after %q", f.Kind, f.Form, f.Where, f.Before)
}

// New returns a hunt for canaries. It panics if a value is too short to be told from others, or two canaries have one kind or value.
func New(canaries ...Canary) *Hunt {
	h := &Hunt{table: map[uint64][]pattern{}}
	kinds, values := map[string]bool{}, map[string]bool{}
	for _, c := range canaries {
		if len(c.Value) < shortest || kinds[c.Kind] || values[c.Value] {
			panic(fmt.Sprintf("hunt: the canary %q is too short, or not the only one of its kind or value", c.Kind))
		}
		kinds[c.Kind], values[c.Value] = true, true
		seen := map[string]bool{}
		for _, part := range parts(c.Value) {
			for _, f := range forms(part) {
				if len(f.text) < shortest || seen[f.text] {
					continue
				}
				seen[f.text] = true
				first := binary.LittleEndian.Uint64([]byte(f.text))
				h.table[first] = append(h.table[first], pattern{c.Kind, f.name, []byte(f.text)})
				at := hash(first)
				h.filter[at>>6] |= 1 << (at & 63)
			}
		}
	}
	return h
}

// hash returns 16 bits that depend on all of x.
func hash(x uint64) uint64 { return x * 0x9e3779b97f4a7c15 >> 48 }

// Bytes returns the canaries in data, one find for each kind. It also looks into compressed data within it.
func (h *Hunt) Bytes(where string, data []byte) []Find {
	found := map[string]Find{}
	h.scan(where, data, found)
	inside(data, func(what string, data []byte) { h.scan(where+" ("+what+")", data, found) })
	out := make([]Find, 0, len(found))
	for _, f := range found {
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b Find) int { return strings.Compare(a.Kind, b.Kind) })
	return out
}

func (h *Hunt) scan(where string, data []byte, found map[string]Find) {
	for i := 0; i+shortest <= len(data); i++ {
		first := binary.LittleEndian.Uint64(data[i:])
		if at := hash(first); h.filter[at>>6]&(1<<(at&63)) == 0 {
			continue
		}
		for _, p := range h.table[first] {
			if _, ok := found[p.kind]; !ok && bytes.HasPrefix(data[i:], p.text) {
				found[p.kind] = Find{Kind: p.kind, Form: p.form, Where: where, Before: string(data[max(0, i-60):i])}
			}
		}
	}
}

// Folder returns the canaries in all files of a folder, in the names of its files and in the targets of its links, and the number of
// its files. It leaves out what skip reports, which gets paths within the folder. A file that is removed meanwhile is left out, too.
func (h *Hunt) Folder(dir string, skip func(path string) bool) (found []Find, files int, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path != dir {
			return nil
		}
		if err != nil {
			return err
		}
		at, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		switch {
		case skip != nil && skip(at):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case at != ".":
			found = append(found, h.Bytes("the name "+path, []byte(d.Name()))...)
		}
		var data []byte
		switch d.Type() {
		case 0:
			files++
			data, err = os.ReadFile(path)
		case fs.ModeSymlink:
			var target string
			target, err = os.Readlink(path)
			data = []byte(target)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		found = append(found, h.Bytes(path, data)...)
		return err
	})
	return found, files, err
}

// Reader returns the canaries in what r has until its end.
func (h *Hunt) Reader(where string, r io.Reader) ([]Find, error) {
	data, err := io.ReadAll(r)
	return h.Bytes(where, data), err
}

// Process returns the canaries in the environment and the command line of a process. The error is fs.ErrNotExist or
// syscall.ESRCH if it has ended.
func (h *Hunt) Process(pid int) (found []Find, err error) {
	for _, file := range []string{"cmdline", "environ"} {
		path := filepath.Join("/proc", strconv.Itoa(pid), file)
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		found = append(found, h.Bytes(path, data)...)
	}
	return found, nil
}
