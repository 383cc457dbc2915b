package act

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/coopr/coopr/engine/change/builtin"
)

// filetree is files, links and directories with their modes and owners.
//
// Each tree has a git repository with three folders: site has the files of the site's
// document; live has the files as they were written, with people's edits; found has the
// files that were there before, which are restored when the tree is removed. Every change
// is a commit, so that no edit is ever lost. state.json has the state of every file after
// the last action, so that a check needs no git.
type filetree struct {
	*object
	content *builtin.FileTree
	repo    *repo
}

// treeState is state.json.
type treeState struct {
	Content    uint64               `json:"content"` // 0: nothing is in place
	Generation uint64               `json:"generation"`
	Root       string               `json:"root"`
	Files      map[string]fileState `json:"files"`
	Made       []string             `json:"made,omitempty"` // directories that were not there before
}

// fileState is the state of a file, or its wanted state.
type fileState struct {
	Kind  string      `json:"kind"` // "file", "link", "directory"
	Sum   string      `json:"sum,omitempty"`
	Link  string      `json:"link,omitempty"`
	Mode  fs.FileMode `json:"mode,omitempty"`
	Owner string      `json:"owner,omitempty"`
	Group string      `json:"group,omitempty"`
}

func sum(b []byte) string { s := sha256.Sum256(b); return hex.EncodeToString(s[:]) }

func (t *filetree) open(ctx context.Context) (*treeState, error) {
	dir := filepath.Join(t.p.cfg.Dir, "trees", plain(t.job.Tenant), plain(t.job.Site), plain(t.job.Object.Name))
	t.repo = &repo{dir: dir, launcher: t.p.cfg.Launcher}
	if !t.m.Local {
		if err := t.fetch(ctx); err != nil {
			return nil, err
		}
	}
	st := &treeState{Files: map[string]fileState{}}
	b, err := os.ReadFile(filepath.Join(t.repo.dir, "state.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return st, nil
	}
	if err == nil {
		err = json.Unmarshal(b, st)
	}
	if err == nil {
		err = st.check()
	}
	return st, err
}

// check refuses a state that names files outside the tree: a node may have written it.
func (st *treeState) check() error {
	if st.Content != 0 && (!path.IsAbs(st.Root) || path.Clean(st.Root) != st.Root || st.Root == "/") {
		return fmt.Errorf("the record of the tree on the node names %q as its root: that is not the path of a folder", st.Root)
	}
	for _, name := range append(paths(st.Files), st.Made...) {
		if !filepath.IsLocal(name) || path.Clean(name) != name || strings.ContainsRune(name, 0) {
			return fmt.Errorf("the record of the tree on the node names %q, which is not a path within the tree", name)
		}
	}
	return nil
}

func (t *filetree) check(ctx context.Context) (string, string, error) {
	st, err := t.open(ctx)
	if err != nil {
		return "", "", err
	}
	if st.Content == 0 {
		return "down", "", nil
	}
	if st.Content != t.job.Content || st.Root != t.content.Root {
		return "outdated", "of an earlier content", nil
	}
	files, err := t.files(st.Root)
	if err != nil {
		return "", "", err
	}
	have, err := files.stat(ctx, paths(st.Files), false)
	if err != nil {
		return "", "", err
	}
	var changed []string
	for name, want := range st.Files {
		if is, ok := have[name]; !ok || is.fileState != want {
			changed = append(changed, name)
		}
	}
	if len(changed) == 0 {
		return "up", "", nil
	}
	sort.Strings(changed)
	if len(changed) > 5 {
		changed = append(changed[:5], "…")
	}
	return "outdated", "changed by hand: " + strings.Join(changed, ", "), nil
}

func paths(m map[string]fileState) []string {
	var out []string
	for p := range m {
		out = append(out, p)
	}
	sort.Strings(out)
	return out
}

func (t *filetree) run(ctx context.Context, action string) error {
	st, err := t.open(ctx)
	if err != nil {
		return err
	}
	if err := t.repo.init(ctx); err != nil {
		return err
	}
	if action == "stop" || action == "cleanup" {
		err = t.down(ctx, st)
	} else {
		err = t.up(ctx, st)
	}
	if err == nil && !t.m.Local {
		err = t.store(ctx)
	}
	return err
}

// up puts the content into place, merged with edits by hand.
func (t *filetree) up(ctx context.Context, st *treeState) error {
	if st.Content != 0 && st.Root != t.content.Root {
		if err := t.down(ctx, st); err != nil { // the tree moves
			return err
		}
		*st = treeState{Files: map[string]fileState{}}
	}
	entries, faults := t.content.Entries()
	if len(faults) > 0 {
		return faults
	}
	want := map[string]builtin.Entry{}
	for _, e := range entries {
		want[e.Path] = e
	}
	all := paths(st.Files)
	for _, e := range entries {
		if _, ok := st.Files[e.Path]; !ok {
			all = append(all, e.Path)
		}
	}
	files, err := t.files(t.content.Root)
	if err != nil {
		return err
	}
	have, err := files.stat(ctx, all, true)
	if err != nil {
		return err
	}
	if err := t.keep(ctx, st, have); err != nil {
		return err
	}
	m := merging{t: t, st: st, have: have, write: map[string]builtin.Entry{}}
	for _, e := range entries {
		if err := m.entry(ctx, e); err != nil {
			return err
		}
	}
	for name, was := range st.Files {
		if _, ok := want[name]; !ok {
			m.drop(name, was)
		}
	}
	if len(m.conflicts) > 0 {
		for _, c := range m.conflicts {
			if c.marked != nil {
				if err := files.put(ctx, builtin.Entry{Path: c.path + mergeSuffix, Content: c.marked, Mode: 0o600}); err != nil {
					return err
				}
			}
		}
		return m.conflict()
	}
	made, err := files.apply(ctx, entries, m.write, m.remove)
	if err != nil {
		return err
	}
	for _, name := range m.resolved {
		if err := files.remove(ctx, name+mergeSuffix); err != nil {
			return err
		}
	}
	next := &treeState{Content: t.job.Content, Generation: t.job.Generation, Root: t.content.Root, Files: map[string]fileState{},
		Made: st.Made}
	for _, d := range made {
		if !slices.Contains(next.Made, d) {
			next.Made = append(next.Made, d)
		}
	}
	return t.commit(ctx, next, entries, m.write, m.remove)
}

// keep commits edits by hand before anything else is done. Before the first action it commits the
// files that were there.
func (t *filetree) keep(ctx context.Context, st *treeState, have map[string]seen) error {
	for name, is := range have {
		was, ours := st.Files[name]
		switch {
		case !ours && is.Kind != "directory":
			if err := t.repo.put("found", name, is); err != nil {
				return err
			}
		case ours && is.fileState != was && is.Kind != "directory":
			if err := t.repo.put("live", name, is); err != nil {
				return err
			}
		}
	}
	return t.repo.commit(ctx, "found by hand")
}

// commit records what is in place now.
func (t *filetree) commit(ctx context.Context, next *treeState, entries []builtin.Entry, wrote map[string]builtin.Entry,
	removed []string) error {
	files, err := t.files(next.Root)
	if err != nil {
		return err
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Path)
	}
	have, err := files.stat(ctx, all, true)
	if err != nil {
		return err
	}
	for _, e := range entries {
		is, ok := have[e.Path]
		if !ok {
			return fmt.Errorf("%s went away while it was written", path.Join(next.Root, e.Path))
		}
		next.Files[e.Path] = is.fileState
		if e.Directory {
			continue
		}
		if err := errors.Join(t.repo.put("site", e.Path, seenOf(e)), t.repo.put("live", e.Path, is)); err != nil {
			return err
		}
	}
	for _, name := range removed {
		if err := errors.Join(t.repo.drop("site", name), t.repo.drop("live", name)); err != nil {
			return err
		}
	}
	if err := t.repo.state(next); err != nil {
		return err
	}
	return t.repo.commit(ctx, fmt.Sprintf("generation %d of site %s", t.job.Generation, t.job.Site))
}

// down removes the tree and restores the files that were there before.
func (t *filetree) down(ctx context.Context, st *treeState) error {
	if st.Content == 0 {
		return nil
	}
	files, err := t.files(st.Root)
	if err != nil {
		return err
	}
	have, err := files.stat(ctx, paths(st.Files), true)
	if err != nil {
		return err
	}
	if err := t.keep(ctx, st, have); err != nil {
		return err
	}
	names := paths(st.Files)
	slices.Reverse(names) // what is in a directory before it
	for _, name := range names {
		if st.Files[name].Kind == "directory" {
			continue
		}
		before, ok, err := t.repo.get("found", name)
		if err != nil {
			return err
		}
		if ok {
			err = files.put(ctx, builtin.Entry{Path: name, Content: before.content, Link: before.Link, Mode: before.Mode, Owner: before.Owner,
				Group: before.Group})
		} else {
			err = files.remove(ctx, name)
		}
		if err != nil {
			return err
		}
	}
	made := slices.Clone(st.Made)
	sort.Sort(sort.Reverse(sort.StringSlice(made)))
	for _, d := range made {
		if err := files.rmdir(ctx, d); err != nil {
			return err
		}
	}
	for _, dir := range []string{"site", "live", "found"} {
		if err := os.RemoveAll(filepath.Join(t.repo.dir, dir)); err != nil {
			return err
		}
	}
	if err := t.repo.state(&treeState{Files: map[string]fileState{}}); err != nil {
		return err
	}
	return t.repo.commit(ctx, "taken away")
}

// mergeSuffix is the suffix of the files in which users resolve conflicts.
const mergeSuffix = ".coopr-merge"

// merging decides which files to write and to remove.
type merging struct {
	t         *filetree
	st        *treeState
	have      map[string]seen
	write     map[string]builtin.Entry
	remove    []string
	resolved  []string
	conflicts []conflicted
}

type conflicted struct {
	path, why string
	marked    []byte // with the marks of the conflict; nil where it cannot be marked
}

// entry decides about one file of the content.
func (m *merging) entry(ctx context.Context, e builtin.Entry) error {
	is, there := m.have[e.Path]
	was, ours := m.st.Files[e.Path]
	put := e
	edited := ours && there && is.fileState != was && is.Kind == "file"
	switch {
	case !ours || e.Directory || e.Link != "" || m.t.content.Edits == "restore":
		m.write[e.Path] = put
		return nil
	case there && !edited && is.Kind == "file", !there, edited:
	default: // no file any more, but something else
		m.write[e.Path] = put
		return nil
	}
	base, ok, err := m.t.repo.get("site", e.Path)
	if err != nil {
		return err
	}
	mine := is
	if !there { // removed by hand: the last written content is restored
		var kept bool
		if mine, kept, err = m.t.repo.get("live", e.Path); err != nil {
			return err
		}
		ok = ok && kept
	}
	switch {
	case !ok || bytes.Equal(mine.content, base.content):
		m.write[e.Path] = put
		return nil
	case bytes.Equal(base.content, e.Content), bytes.Equal(mine.content, e.Content):
		put.Content = mine.content // changed by hand only, or in the same way by both
	default:
		merged, clean, err := m.t.repo.merge(ctx, mine.content, base.content, e.Content)
		if err != nil {
			return err
		}
		if !clean {
			return m.clash(ctx, e, mine, merged)
		}
		put.Content = merged
	}
	m.write[e.Path] = put
	return nil
}

// clash takes the resolution that a user has written, or reports the conflict.
func (m *merging) clash(ctx context.Context, e builtin.Entry, mine seen, marked []byte) error {
	files, err := m.t.files(m.t.content.Root)
	if err != nil {
		return err
	}
	name := e.Path + mergeSuffix
	got, err := files.stat(ctx, []string{name}, true)
	if err != nil {
		return err
	}
	if r, ok := got[name]; ok && !bytes.Contains(r.content, []byte("<<<<<<<")) && !bytes.Contains(r.content, []byte(">>>>>>>")) {
		e.Content = r.content
		m.write[e.Path] = e
		m.resolved = append(m.resolved, e.Path)
		return nil
	}
	if r, ok := got[name]; ok && len(r.content) > 0 {
		marked = nil // a user is resolving the conflict
	}
	m.conflicts = append(m.conflicts, conflicted{e.Path, "was changed by hand and by the site in the same place", marked})
	return nil
}

// drop decides about a file that the content does not have any more.
func (m *merging) drop(name string, was fileState) {
	is, there := m.have[name]
	if there && is.fileState != was && was.Kind == "file" && m.t.content.Edits != "restore" {
		m.conflicts = append(m.conflicts, conflicted{name,
			"was changed by hand, and the site does not have it any more: put it elsewhere, or remove it", nil})
		return
	}
	if was.Kind != "directory" {
		m.remove = append(m.remove, name)
	}
}

// conflict returns the error for the conflicts. Nothing has been written.
func (m *merging) conflict() error {
	var texts []string
	for _, c := range m.conflicts {
		full := path.Join(m.t.content.Root, c.path)
		text := full + " " + c.why
		if strings.Contains(c.why, "same place") {
			text += fmt.Sprintf(": take the marks out of %s%s, and it is used", full, mergeSuffix)
		}
		texts = append(texts, text)
	}
	return errors.New("conflict: " + strings.Join(texts, "; "))
}

// seen is a file as it was found.
type seen struct {
	fileState
	content []byte
}

func seenOf(e builtin.Entry) seen {
	s := seen{content: e.Content, fileState: fileState{Kind: "file", Mode: e.Mode, Owner: e.Owner, Group: e.Group}}
	if e.Link != "" {
		s.Kind, s.Link = "link", e.Link
	}
	return s
}
