package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/proto"
)

// plug is the server of one type: a supervised binary, or an "exec" descriptor.
type plug struct {
	Type
	file *file
	sup  *supervisor
	exec *execPlugin
}

// file is a plugin's file as it was at the last scan.
type file struct {
	path  string
	id    string // identity; a change means that the content may have changed
	sum   string
	types []Type
	sup   *supervisor
	exec  *execPlugin
	// program is the absolute path of a descriptor's command, or "" if the command is found on the
	// PATH.
	program string
	err     error
	checked atomic.Int64 // Unix nanoseconds
}

// cacheFile is the content of plugins.json: checksums and descriptors of plugins' files from
// earlier runs, so that a starting agent need not start every plugin to learn its types.
type cacheFile struct {
	// Sums are the checksums of files by path and identity.
	Sums map[string]cachedSum `json:"sums"`
	// Types are the types of binaries by checksum.
	Types map[string][]cachedType `json:"types"`
}

type cachedSum struct {
	ID  string `json:"id"`
	Sum string `json:"sum"`
}

type cachedType struct {
	Kind       model.Kind       `json:"kind"`
	Descriptor model.PluginType `json:"descriptor"`
}

func identity(fi fs.FileInfo) string {
	st := fi.Sys().(*syscall.Stat_t)
	return fmt.Sprintf("%d.%d.%d.%d.%d", st.Dev, st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano())
}

func isEOF(err error) bool { return errors.Is(err, io.EOF) }

// scan reads all plugins' files. Without ask it starts no plugin and reports whether some file has
// to be started to learn its types.
func (h *Host) scan(ask bool) (more bool) {
	h.scanning.Lock()
	defer h.scanning.Unlock()
	if h.ctx.Err() != nil {
		return false
	}
	cache := h.readCache()
	paths, want, faults := h.candidates()

	seen := map[string]*file{}
	var unknown []*file
	for _, path := range paths {
		id, err := identify(path)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		if old := h.files[path]; old != nil && old.id == id && (old.err == nil || !ask) {
			seen[path] = old
			continue
		}
		f := &file{path: path, id: id}
		f.checked.Store(time.Now().UnixNano())
		seen[path] = f
		if isDescriptor(path) {
			h.readDescriptor(f, want[path])
			continue
		}
		if !ask && cache.Sums[path].ID != id {
			unknown = append(unknown, f) // hashing takes time, so it is left to a scan with ask
			continue
		}
		if f.err = h.checksum(f, want[path], cache); f.err != nil {
			continue
		}
		f.sup = &supervisor{host: h, path: path, sum: f.sum}
		if known, ok := cache.Types[f.sum]; ok {
			f.setTypes(known)
		} else {
			unknown = append(unknown, f)
		}
	}
	if !ask {
		// Unknown files are left for the next scan.
		for _, f := range unknown {
			delete(seen, f.path)
		}
	} else {
		h.askAll(unknown, cache)
	}
	for _, f := range seen {
		if f.err != nil {
			faults = append(faults, fmt.Errorf("plugin %s: %w", f.path, f.err))
		}
	}
	h.install(paths, seen, faults, want)
	h.writeCache(cache, seen)
	h.scanned.Store(time.Now().UnixNano())
	return !ask && len(unknown) > 0
}

// candidates returns the plugins' paths, in order of preference, and the configured checksums by
// path.
func (h *Host) candidates() (paths []string, want map[string]string, faults []error) {
	want = map[string]string{}
	for _, b := range h.cfg.Plugins {
		path, err := filepath.Abs(b.Path)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		paths = append(paths, path)
		want[path] = strings.ToLower(b.SHA256)
	}
	for _, dir := range h.cfg.Dirs {
		dir, err := filepath.Abs(dir)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				faults = append(faults, err)
			}
			continue
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			fi, err := os.Stat(path)
			if err != nil || !fi.Mode().IsRegular() || slices.Contains(paths, path) {
				continue
			}
			if isDescriptor(path) || isPluginName(e.Name()) && fi.Mode()&0o111 != 0 {
				paths = append(paths, path)
			}
		}
	}
	return paths, want, faults
}

func isPluginName(name string) bool {
	for _, p := range []string{"coopr-provider-", "coopr-automator-", "coopr-plugin-"} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

func isDescriptor(path string) bool {
	switch filepath.Ext(path) {
	case ".json", ".yaml", ".yml":
		return true
	}
	return false
}

// checksum fills in the file's checksum and compares it with a configured one.
func (h *Host) checksum(f *file, want string, cache *cacheFile) error {
	if known := cache.Sums[f.path]; known.ID == f.id {
		f.sum = known.Sum
	} else {
		open, err := os.Open(f.path)
		if err != nil {
			return err
		}
		defer open.Close()
		if f.sum, err = hashFile(open); err != nil {
			return err
		}
	}
	if want != "" && f.sum != want {
		return fmt.Errorf("its SHA-256 is %s, but %s is configured: install the right file or correct the configuration", f.sum, want)
	}
	return nil
}

func (f *file) setTypes(known []cachedType) {
	for _, t := range known {
		f.types = append(f.types, Type{Kind: t.Kind, PluginType: t.Descriptor, Checksum: f.sum, Path: f.path})
	}
}

// askAll starts each binary to learn its types, two at a time, and adds the answers to the cache.
func (h *Host) askAll(files []*file, cache *cacheFile) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, 2)
	for _, f := range files {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			types, err := h.ask(f)
			if err != nil {
				f.err = err
				return
			}
			f.setTypes(types)
		})
	}
	wg.Wait()
	for _, f := range files {
		if f.err == nil {
			types := make([]cachedType, len(f.types))
			for i, t := range f.types {
				types[i] = cachedType{t.Kind, t.PluginType}
			}
			cache.Types[f.sum] = types
		}
	}
}

// ask starts a binary, reads its descriptors and closes it.
func (h *Host) ask(f *file) ([]cachedType, error) {
	p, err := f.sup.launch()
	if err != nil {
		return nil, err
	}
	defer p.close(errIdle)
	ctx, cancel := context.WithTimeout(h.ctx, h.cfg.StartTimeout)
	defer cancel()
	var types []cachedType
	for _, kind := range []model.Kind{model.KindProviderType, model.KindAutomatorType} {
		var resp *proto.DescribeResponse
		if kind == model.KindProviderType {
			resp, err = proto.NewProviderClient(p.conn).Describe(ctx, &proto.DescribeRequest{})
		} else {
			resp, err = proto.NewAutomatorClient(p.conn).Describe(ctx, &proto.DescribeRequest{})
		}
		if status.Code(err) == codes.Unimplemented {
			continue
		}
		t := cachedType{Kind: kind}
		if err == nil {
			err = json.Unmarshal(resp.Descriptor_, &t.Descriptor)
		}
		if err == nil {
			err = CheckDescriptor(kind, &t.Descriptor).Err()
		}
		if err != nil {
			return nil, fmt.Errorf("it returned no valid descriptor for %s: %w", kind, err)
		}
		types = append(types, t)
	}
	if len(types) == 0 {
		return nil, errors.New("it is neither a provider nor an automator")
	}
	return types, nil
}

// install publishes the types of the files and retires the processes of replaced files, and of those that serve other types.
func (h *Host) install(order []string, seen map[string]*file, faults []error, explicit map[string]string) {
	plugs := map[typeKey]*plug{}
	for _, path := range order {
		f := seen[path]
		if f == nil || f.err != nil {
			continue
		}
		for _, t := range f.types {
			key := typeKey{t.Kind == model.KindAutomatorType, t.Name}
			if old := plugs[key]; old != nil {
				_, named := explicit[old.Path]
				if named || compareVersions(t.Plugin, old.Plugin) <= 0 {
					h.cfg.Logger.Warn("several plugins offer the same type", "type", key.String(), "used", old.Path, "left out", path)
					continue
				}
				h.cfg.Logger.Warn("several plugins offer the same type", "type", key.String(), "used", path, "left out", old.Path)
			}
			plugs[key] = &plug{Type: t, file: f, sup: f.sup, exec: f.exec}
		}
	}
	old := retired(h, seen, plugs)
	h.files = seen

	h.mu.Lock()
	changed := len(plugs) != len(h.plugs)
	for key, p := range plugs {
		old := h.plugs[key]
		if changed = changed || old == nil || old.Checksum != p.Checksum; changed {
			break
		}
	}
	h.plugs, h.faults = plugs, faults
	h.mu.Unlock()
	for _, s := range old {
		s.retire()
	}
	for _, err := range faults {
		h.cfg.Logger.Error("plugin cannot be used", "error", err)
	}
	if changed && h.cfg.OnChange != nil {
		h.tasks.Go(h.cfg.OnChange)
	}
}

// retired returns the supervisors of processes that must end: those of files that are gone or have another content, and those of files
// that now serve other types, because a process keeps the grants of the types that it started with. Other processes stay, also those
// of files that were touched and have the same content.
func retired(h *Host, seen map[string]*file, plugs map[typeKey]*plug) (old []*supervisor) {
	for path, f := range h.files {
		if f.sup == nil {
			continue
		}
		now := seen[path]
		if now == nil || now.sup == nil || now.sum != f.sum || now.err != nil {
			old = append(old, f.sup)
			continue
		}
		keep := f.sup
		if !slices.Equal(served(h.plugs, path), served(plugs, path)) {
			old = append(old, f.sup)
			keep = &supervisor{host: h, path: path, sum: f.sum}
		}
		now.sup = keep
		for _, p := range plugs {
			if p.file == now {
				p.sup = keep
			}
		}
	}
	return old
}

// served returns the types that a file serves, sorted.
func served(plugs map[typeKey]*plug, path string) (types []string) {
	for key, p := range plugs {
		if p.file.path == path {
			types = append(types, key.String())
		}
	}
	slices.Sort(types)
	return types
}

func (c *Config) cachePath() string { return filepath.Join(c.DataDir, "plugins.json") }

// readCache returns the cache, or an empty one if the file is missing or unreadable.
func (h *Host) readCache() *cacheFile {
	c := &cacheFile{}
	if b, err := os.ReadFile(h.cfg.cachePath()); err == nil {
		if err := json.Unmarshal(b, c); err != nil {
			h.cfg.Logger.Warn("the plugins' cache cannot be read, so every plugin is asked again", "error", err)
			c = &cacheFile{}
		}
	}
	if c.Sums == nil {
		c.Sums = map[string]cachedSum{}
	}
	if c.Types == nil {
		c.Types = map[string][]cachedType{}
	}
	return c
}

// writeCache saves what is known about the present files, if that differs from the saved content.
func (h *Host) writeCache(old *cacheFile, seen map[string]*file) {
	c := &cacheFile{Sums: map[string]cachedSum{}, Types: map[string][]cachedType{}}
	for _, path := range slices.Sorted(maps.Keys(seen)) {
		f := seen[path]
		if f.sup == nil || f.sum == "" {
			continue
		}
		c.Sums[path] = cachedSum{f.id, f.sum}
		if t, ok := old.Types[f.sum]; ok {
			c.Types[f.sum] = t
		}
	}
	b, err := json.MarshalIndent(c, "", "  ")
	if err == nil {
		if have, rerr := os.ReadFile(h.cfg.cachePath()); rerr == nil && string(have) == string(b) {
			return
		}
		tmp := h.cfg.cachePath() + ".new"
		if err = os.WriteFile(tmp, b, 0o600); err == nil {
			err = os.Rename(tmp, h.cfg.cachePath())
		}
	}
	if err != nil {
		h.cfg.Logger.Warn("the plugins' cache cannot be written", "error", err)
	}
}
