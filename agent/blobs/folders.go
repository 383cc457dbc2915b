package blobs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/coopr/coopr/engine/model"
)

// Folders lays out resources as plugins see them: <type>/<name>, which is a file
// or the folder into which an archive was unpacked. Tasks that were planned with
// the same versions share a folder, which is in a folder of their plugin type, so that
// other plugins can be kept out. A complete folder never changes. Folders is
// safe for concurrent use.
type Folders struct {
	dir  string
	lend func(dir string) error
	open func(ctx context.Context, p model.ResourcePin) (*Content, error)

	mu      sync.Mutex
	folders map[string]*folder
	cleared bool // what an earlier process left is gone
}

type folder struct {
	users     int
	idleSince time.Time     // when the last user released it
	ready     chan struct{} // closed once the folder is complete or err is set
	err       error         // why the folder could not be made
}

// OpenFolders returns an empty Folders in dir. What an earlier process left there may be
// incomplete and is removed: at once, or before the first folder is created if the directory
// cannot be written now. lend, which may be nil, lets plugins read a folder. open returns the verified content of a resource, from
// wherever it is.
func OpenFolders(dir string, lend func(dir string) error, open func(ctx context.Context, p model.ResourcePin) (*Content, error)) *Folders {
	if lend == nil {
		lend = func(string) error { return nil }
	}
	f := &Folders{dir: dir, lend: lend, open: open, folders: map[string]*folder{}}
	_ = f.clear() // create tries it again and reports why it fails
	return f
}

// clear removes what an earlier process left. The folders of plugin types stay: what a plugin that runs may read is bound to them.
func (f *Folders) clear() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cleared {
		return nil
	}
	err := os.MkdirAll(f.dir, 0o700)
	if err == nil {
		err = errors.Join(f.empty(), f.lend(f.dir))
	}
	if err != nil {
		return fmt.Errorf("plugin resources: %w", err)
	}
	f.cleared = true
	return nil
}

// empty removes all but the folders of plugin types.
func (f *Folders) empty() (errs error) {
	kinds, errs := os.ReadDir(f.dir)
	for _, kind := range kinds {
		at := filepath.Join(f.dir, kind.Name())
		if name := model.Kind(kind.Name()); !kind.IsDir() || name != model.KindProviderType && name != model.KindAutomatorType {
			errs = errors.Join(errs, os.RemoveAll(at))
			continue
		}
		plugins, err := os.ReadDir(at)
		errs = errors.Join(errs, err)
		for _, plugin := range plugins {
			errs = errors.Join(errs, emptyPlugin(filepath.Join(at, plugin.Name()), plugin.IsDir()))
		}
	}
	return errs
}

// emptyPlugin removes what is in the folder of a plugin type, or what is there instead of a folder.
func emptyPlugin(at string, isDir bool) error {
	if !isDir {
		return os.Remove(at)
	}
	left, errs := os.ReadDir(at)
	for _, e := range left {
		errs = errors.Join(errs, os.RemoveAll(filepath.Join(at, e.Name())))
	}
	return errs
}

// Use returns the folder with these resources, all of one plugin type, and keeps it until release is called.
func (f *Folders) Use(ctx context.Context, pins []model.ResourcePin) (dir string, release func(), err error) {
	name, err := folderName(pins)
	if err != nil {
		return "", nil, err
	}
	secret := slices.ContainsFunc(pins, func(p model.ResourcePin) bool { return p.Secret })
	for {
		f.mu.Lock()
		w, exists := f.folders[name]
		if !exists {
			w = &folder{ready: make(chan struct{})}
			f.folders[name] = w
		}
		w.users++
		f.mu.Unlock()
		if !exists {
			w.err = f.create(ctx, name, pins)
			if w.err != nil {
				f.mu.Lock()
				delete(f.folders, name)
				f.mu.Unlock()
			}
			close(w.ready)
		}
		release := sync.OnceFunc(func() { f.release(name, w, secret) })
		select {
		case <-w.ready:
		case <-ctx.Done():
			release()
			return "", nil, ctx.Err()
		}
		if w.err == nil {
			return filepath.Join(f.dir, name), release, nil
		}
		release()
		if exists && ctx.Err() == nil && (errors.Is(w.err, context.Canceled) || errors.Is(w.err, context.DeadlineExceeded)) {
			continue // the task that was creating the folder was cancelled, but this one was not
		}
		return "", nil, w.err
	}
}

// release ends one use of a folder. One with a secret is removed with its last use.
func (f *Folders) release(name string, w *folder, secret bool) {
	f.mu.Lock()
	w.users--
	w.idleSince = time.Now()
	dir := ""
	if secret && w.users == 0 && f.folders[name] == w {
		dir = f.retireOne(name)
	}
	f.mu.Unlock()
	if dir != "" {
		_ = os.RemoveAll(dir) // what stays is removed at the next start
	}
}

// retireOne renames a folder that is to be removed and returns its new path, or "" if it cannot. The caller holds mu.
func (f *Folders) retireOne(name string) string {
	dir, err := os.MkdirTemp(f.dir, unfinishedPrefix)
	if err == nil {
		err = os.Rename(filepath.Join(f.dir, name), filepath.Join(dir, filepath.Base(name)))
	}
	if err != nil {
		return ""
	}
	delete(f.folders, name)
	return dir
}

// folderName returns the path of the folder with these resources: that of their plugin type, and a hash of all of
// them.
func folderName(pins []model.ResourcePin) (string, error) {
	b, err := json.Marshal(pins)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	of := pins[0].Folder()
	if !filepath.IsLocal(of) {
		return "", fmt.Errorf("%q is not a valid path of resources", of)
	}
	return filepath.Join(of, hex.EncodeToString(sum[:16])), nil
}

func (f *Folders) create(ctx context.Context, name string, pins []model.ResourcePin) (err error) {
	if err := f.clear(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(f.dir, unfinishedPrefix)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(dir)
		}
	}()
	for _, p := range pins {
		if err := f.add(ctx, dir, p); err != nil {
			return fmt.Errorf("resource %s: %w", p, err)
		}
	}
	if err := f.lend(dir); err != nil {
		return err
	}
	at := filepath.Join(f.dir, name)
	if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil { // the plugin's host lets the plugin pass
		return err
	}
	return os.Rename(dir, at)
}

// add puts one resource into a folder.
func (f *Folders) add(ctx context.Context, dir string, p model.ResourcePin) error {
	if !filepath.IsLocal(p.Type) || !filepath.IsLocal(p.Name) || p.Type == "." || p.Name == "." {
		return fmt.Errorf("%q is not a valid file name", p.Type+"/"+p.Name)
	}
	in, err := f.open(ctx, p)
	if err != nil {
		return err
	}
	defer in.Close()
	at := filepath.Join(dir, p.Type, p.Name)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	if p.Format == "archive" {
		if err := os.Mkdir(at, 0o755); err != nil {
			return err
		}
		return Unpack(in, at, p.Name)
	}
	out, err := os.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Chmod(fileMode(p)), out.Close())
}

// fileMode returns the mode that a resource's type declares, 0644 by default. Only
// the owner can access a secret.
func fileMode(p model.ResourcePin) fs.FileMode {
	mode := fs.FileMode(0o644)
	if n, err := strconv.ParseUint(p.Permissions, 8, 12); err == nil && p.Permissions != "" {
		mode = fs.FileMode(n).Perm()
	}
	if p.Secret {
		mode &= 0o700
	}
	return mode
}

// Sweep removes the folders that have not been used since a time.
func (f *Folders) Sweep(unusedSince time.Time) error {
	var errs error
	for _, dir := range f.retire(unusedSince) {
		errs = errors.Join(errs, os.RemoveAll(dir))
	}
	return errs
}

// retire renames the folders that are to be removed and returns their new paths. A
// task that needs one of them from now on creates it again.
func (f *Folders) retire(unusedSince time.Time) (retired []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, w := range f.folders {
		if w.users > 0 || w.idleSince.After(unusedSince) {
			continue
		}
		if dir := f.retireOne(name); dir != "" {
			retired = append(retired, dir)
		}
	}
	return retired
}
