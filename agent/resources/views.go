package resources

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
	"strconv"
	"sync"
	"time"

	"github.com/coopr/coopr/engine/model"
)

// Views are folders with resources as plugins see them: <type>/<name>, which is a file,
// or the folder that an archive was unpacked into. Tasks that were planned with the same
// versions share one; a folder that is complete never changes.
type Views struct {
	dir   string
	open  func(ctx context.Context, p model.ResourcePin) (*os.File, error)
	mu    sync.Mutex
	views map[string]*view
}

type view struct {
	uses  int
	idle  time.Time     // since when nobody uses it
	ready chan struct{} // closed when it is made, or cannot be
	err   error
}

// OpenViews makes the folder anew: what an earlier agent laid out may not be whole.
// open gives a pin's content, compared with its checksum, from wherever it is.
func OpenViews(dir string, open func(ctx context.Context, p model.ResourcePin) (*os.File, error)) (*Views, error) {
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700)); err != nil {
		return nil, fmt.Errorf("plugin resources: %w", err)
	}
	return &Views{dir: dir, open: open, views: map[string]*view{}}, nil
}

// Use gives the folder of these versions, and keeps it until it is released.
func (v *Views) Use(ctx context.Context, pins []model.ResourcePin) (dir string, release func(), err error) {
	name, err := viewName(pins)
	if err != nil {
		return "", nil, err
	}
	for {
		v.mu.Lock()
		w, there := v.views[name]
		if !there {
			w = &view{ready: make(chan struct{})}
			v.views[name] = w
		}
		w.uses++
		v.mu.Unlock()
		if !there {
			w.err = v.make(ctx, name, pins)
			if w.err != nil {
				v.mu.Lock()
				delete(v.views, name)
				v.mu.Unlock()
			}
			close(w.ready)
		}
		release := sync.OnceFunc(func() {
			v.mu.Lock()
			defer v.mu.Unlock()
			w.uses--
			w.idle = time.Now()
		})
		select {
		case <-w.ready:
		case <-ctx.Done():
			release()
			return "", nil, ctx.Err()
		}
		if w.err == nil {
			return filepath.Join(v.dir, name), release, nil
		}
		release()
		if there && ctx.Err() == nil && (errors.Is(w.err, context.Canceled) || errors.Is(w.err, context.DeadlineExceeded)) {
			continue // whose task made it was stopped, ours was not
		}
		return "", nil, w.err
	}
}

// viewName names a folder after all that is in it.
func viewName(pins []model.ResourcePin) (string, error) {
	b, err := json.Marshal(pins)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16]), nil
}

func (v *Views) make(ctx context.Context, name string, pins []model.ResourcePin) (err error) {
	dir, err := os.MkdirTemp(v.dir, unfinished)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(dir)
		}
	}()
	for _, p := range pins {
		if err := v.lay(ctx, dir, p); err != nil {
			return fmt.Errorf("resource %s: %w", p, err)
		}
	}
	return os.Rename(dir, filepath.Join(v.dir, name))
}

// lay puts one resource into the folder.
func (v *Views) lay(ctx context.Context, dir string, p model.ResourcePin) error {
	if !filepath.IsLocal(p.Type) || !filepath.IsLocal(p.Name) || p.Type == "." || p.Name == "." {
		return fmt.Errorf("%q is no name for a file", p.Type+"/"+p.Name)
	}
	f, err := v.open(ctx, p)
	if err != nil {
		return err
	}
	defer f.Close()
	at := filepath.Join(dir, p.Type, p.Name)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	if p.Format == "archive" {
		if err := os.Mkdir(at, 0o755); err != nil {
			return err
		}
		return Unpack(f, at, p.Name)
	}
	out, err := os.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, f)
	return errors.Join(err, out.Chmod(fileMode(p)), out.Close())
}

// fileMode is that of a file's type; a secret's is for the owner alone.
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

// Sweep removes the folders that nobody has used since a time.
func (v *Views) Sweep(unused time.Time) error {
	var errs error
	for _, dir := range v.retire(unused) {
		errs = errors.Join(errs, os.RemoveAll(dir))
	}
	return errs
}

// retire puts folders that are to go out of the way: whoever needs one again makes it anew.
func (v *Views) retire(unused time.Time) (gone []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for name, w := range v.views {
		if w.uses > 0 || w.idle.After(unused) {
			continue
		}
		dir := filepath.Join(v.dir, unfinished+name)
		if os.Rename(filepath.Join(v.dir, name), dir) == nil {
			delete(v.views, name)
			gone = append(gone, dir)
		}
	}
	return gone
}
