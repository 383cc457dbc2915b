package act

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// A tree of a node is recorded on that node too. The record is hostile when it comes back: it
// names one commit and has git's objects, and nothing else. A repository's configuration, hooks
// and index can start programs, so those are always the agent's own.

const (
	// maxRecord bounds a record, and maxRecordFiles the content of its files.
	maxRecord      = 64 << 20
	maxRecordFiles = 256 << 20
	maxRecordNames = 100_000
)

var recordHead = regexp.MustCompile(`^coopr tree 1 ([0-9a-f]{40})\n`)

// packed returns the file that has the checksum of the record that the repository was unpacked
// from, or packed into.
func (r *repo) packed() string { return r.dir + ".packed" }

// clear forgets the repository.
func (r *repo) clear() error {
	return errors.Join(os.RemoveAll(r.dir), os.RemoveAll(r.packed()))
}

// pack returns the repository's record, or nil if nothing was ever committed.
func (r *repo) pack(ctx context.Context) ([]byte, error) {
	commit, err := r.git(ctx, "for-each-ref", "--format=%(objectname)", "refs/heads/main")
	if err != nil || len(commit) == 0 {
		return nil, err
	}
	objects, err := r.feed(ctx, strings.NewReader("refs/heads/main\n"), "pack-objects", "-q", "--revs", "--stdout")
	if err != nil {
		return nil, err
	}
	if len(objects) > maxRecord-100 {
		return nil, fmt.Errorf("the tree's history of %d bytes is too large to be kept on its node: at most %d are allowed",
			len(objects), maxRecord)
	}
	b := append([]byte("coopr tree 1 "+strings.TrimSpace(string(commit))+"\n"), objects...)
	return b, os.WriteFile(r.packed(), []byte(sum(b)), 0o600)
}

// unpack creates the repository from a record, unless it was unpacked from it already.
func (r *repo) unpack(ctx context.Context, data []byte) error {
	if was, err := os.ReadFile(r.packed()); err == nil && string(was) == sum(data) {
		return nil
	}
	if err := r.clear(); err != nil {
		return err
	}
	err := r.restore(ctx, data)
	if err != nil {
		return errors.Join(fmt.Errorf("the tree's record on its node is refused: %w", err), r.clear())
	}
	return os.WriteFile(r.packed(), []byte(sum(data)), 0o600)
}

// restore fills an empty repository.
func (r *repo) restore(ctx context.Context, data []byte) error {
	head := recordHead.FindSubmatch(data)
	if head == nil || len(data) > maxRecord {
		return errors.New("it is not a tree's record, or too large")
	}
	commit := string(head[1])
	if err := r.init(ctx); err != nil {
		return err
	}
	// Each object is checked: its checksum, its form, and the names of trees.
	if _, err := r.feed(ctx, bytes.NewReader(data[len(head[0]):]), "index-pack", "--strict", "--stdin"); err != nil {
		return err
	}
	list, err := r.git(ctx, "ls-tree", "-r", "-l", "-z", "--full-tree", commit)
	if err != nil {
		return err
	}
	if err := checkRecord(string(list)); err != nil {
		return err
	}
	if _, err := r.git(ctx, "update-ref", "refs/heads/main", commit); err != nil {
		return err
	}
	if _, err := r.git(ctx, "read-tree", "refs/heads/main"); err != nil {
		return err
	}
	_, err = r.git(ctx, "checkout-index", "-a", "-q")
	return err
}

// checkRecord checks the list of a record's files.
func checkRecord(list string) error {
	files := strings.Split(strings.TrimSuffix(list, "\x00"), "\x00")
	if len(files) > maxRecordNames {
		return fmt.Errorf("it has %d files", len(files))
	}
	var total int64
	for _, f := range files {
		is, name, _ := strings.Cut(f, "\t")
		about := strings.Fields(is) // mode, type, object, size
		if len(about) != 4 || about[0] != "100644" || about[1] != "blob" {
			return fmt.Errorf("%q is not a plain file", name)
		}
		size, err := strconv.ParseInt(about[3], 10, 64)
		if err != nil {
			return fmt.Errorf("%q has no size", name)
		}
		if size < 0 || size > maxRecordFiles-total {
			return fmt.Errorf("its files have more than %d bytes", maxRecordFiles)
		}
		total += size
		top, rest, below := strings.Cut(name, "/")
		switch top {
		case "site", "live", "found", "site.modes", "live.modes", "found.modes":
			if below && filepath.IsLocal(rest) && !special(rest) {
				continue
			}
		case "state.json":
			if !below {
				continue
			}
		}
		return fmt.Errorf("%q has no place in it", name)
	}
	return nil
}

// special reports whether git would take part of a path for something of its own.
func special(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if strings.HasPrefix(strings.ToLower(part), ".git") {
			return true
		}
	}
	return false
}

// kept returns the path in the repository of a file of the tree. No part of it begins with
// ".git": a repository within the repository could start programs.
func kept(name string) (string, error) {
	if !filepath.IsLocal(name) || strings.ContainsRune(name, 0) {
		return "", fmt.Errorf("%q is not a path within the tree", name)
	}
	parts := strings.Split(name, "/")
	for i, part := range parts {
		if special(part) || strings.HasPrefix(part, "%") {
			parts[i] = "%" + part
		}
	}
	return filepath.Join(parts...), nil
}
