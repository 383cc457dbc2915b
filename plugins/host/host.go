package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/words"
	"github.com/coopr/coopr/plugins/sdk/spawn"
	"github.com/coopr/coopr/rpc/proto"
)

// Host finds and runs plugins. It is safe for concurrent use.
type Host struct {
	cfg   Config
	spawn *spawn.Spawner
	left  *leftovers
	meter *meter
	// secrets are hidden in the log.
	secrets *secrets

	ctx    context.Context // done when the host closes; its cause says so
	cancel context.CancelCauseFunc
	tasks  sync.WaitGroup // background goroutines of the host
	calls  sync.WaitGroup // running calls: Execute, Validate, List, Remove, Rank

	scanning sync.Mutex    // serialises scans; guards files
	first    chan struct{} // closed after the first scan
	scanned  atomic.Int64  // Unix nanoseconds of the last scan
	files    map[string]*file

	crashes atomic.Int64 // of plugin processes, since the start
	tally   tally

	mu      sync.RWMutex
	plugs   map[typeKey]*plug
	faults  []error // faults of plugins, as of the last scan
	closed  bool
	closing sync.Once
}

type typeKey struct {
	automator bool
	name      string
}

func (k typeKey) String() string {
	if k.automator {
		return "automator type " + k.name
	}
	return "provider type " + k.name
}

// New ends the processes that an earlier agent left behind and starts to look for plugins. Types
// from the cache are offered at once; new files are asked for their types in the background.
func New(cfg Config) (*Host, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	passed := &secrets{}
	for _, b := range cfg.Plugins {
		passed.settings = append(passed.settings, settingTexts(b.Settings)...)
	}
	cfg.Logger = slog.New(hiding{cfg.Logger.Handler(), passed})
	left, err := newLeftovers(filepath.Join(cfg.DataDir, "run"), cfg.Logger)
	if err != nil {
		return nil, fmt.Errorf("plugins: %w", err)
	}
	left.reap()
	if err := makeFolders(cfg); err != nil {
		return nil, fmt.Errorf("plugins: create a folder that they may write to: %w", err)
	}
	if err := left.makeSockets(cfg.SocketDir, cfg.Launcher); err != nil {
		return nil, fmt.Errorf("plugins: create a folder for their sockets: %w", err)
	}
	h := &Host{
		cfg: cfg, spawn: spawn.New(), left: left, meter: newMeter(cfg.Launcher, cfg.Logger), first: make(chan struct{}),
		files: map[string]*file{}, plugs: map[typeKey]*plug{}, secrets: passed,
	}
	h.ctx, h.cancel = context.WithCancelCause(context.Background())
	// Files in the cache are known at once; others have to be started, which takes time.
	again := h.scan(false)
	if !again {
		close(h.first)
	} else {
		h.tasks.Go(func() {
			h.scan(true)
			close(h.first)
		})
	}
	h.tasks.Go(h.watch)
	h.tasks.Go(func() { h.meter.run(h.ctx) })
	return h, nil
}

// makeFolders creates the folders of local nodes and those that single plugins may change, because
// only what is there can be granted.
func makeFolders(cfg Config) error {
	for _, dir := range cfg.Local {
		if err := cfg.Launcher.Own(dir); err != nil {
			return err
		}
	}
	for _, b := range cfg.Plugins {
		for _, path := range b.Writes {
			if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
				if err := cfg.Launcher.Own(path); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Wait waits until every plugin that was present at the start has reported its types.
func (h *Host) Wait(ctx context.Context) error {
	select {
	case <-h.first:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-h.ctx.Done():
		return errClosed
	}
}

// Rescan scans the plugins' files now, and returns the faults of those that cannot be used.
func (h *Host) Rescan() error {
	h.scan(true)
	return h.Faults()
}

// Faults returns the faults of plugins that cannot be used, or nil.
func (h *Host) Faults() error {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return errors.Join(h.faults...)
}

// Types returns the offered types: providers first, then by name.
func (h *Host) Types() []Type {
	h.mu.RLock()
	defer h.mu.RUnlock()
	types := make([]Type, 0, len(h.plugs))
	for _, p := range h.plugs {
		t := p.Type
		t.Actions = maps.Clone(t.Actions)
		types = append(types, t)
	}
	slices.SortFunc(types, func(a, b Type) int {
		// "providertypes" sorts before "automatortypes".
		if c := strings.Compare(string(b.Kind), string(a.Kind)); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	return types
}

// Catalog returns the descriptors of the offered types.
func (h *Host) Catalog() []model.PluginType {
	types := h.Types()
	out := make([]model.PluginType, len(types))
	for i, t := range types {
		out[i] = t.PluginType
	}
	return out
}

// Processes returns the number of running plugin processes.
func (h *Host) Processes() int {
	pids, _ := filepath.Glob(filepath.Join(h.left.dir, "*.json"))
	return len(pids)
}

// enter registers a call, unless the host is closing.
func (h *Host) enter() bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.closed {
		return false
	}
	h.calls.Add(1)
	return true
}

// Close kills every plugin process and waits until none is left. Running tasks end with
// OUTCOME_UNKNOWN; cancel them first for a clean end. A second call waits for the first one.
func (h *Host) Close() error {
	h.closing.Do(func() {
		h.mu.Lock()
		h.closed = true
		h.mu.Unlock()
		h.cancel(errClosed)
		h.calls.Wait()
		h.tasks.Wait()
		h.spawn.Stop()
		h.left.removeSockets(h.left.sockets)
	})
	return nil
}

// recheck is the shortest interval at which one file is checked for a change.
const recheck = time.Second

// lookup returns the server of a type. It notices new and changed files.
func (h *Host) lookup(ctx context.Context, key typeKey) (*plug, error) {
	get := func() *plug {
		h.mu.RLock()
		defer h.mu.RUnlock()
		return h.plugs[key]
	}
	now := time.Now().UnixNano()
	p := get()
	if p == nil {
		// The type may belong to a plugin that is still being asked.
		select {
		case <-h.first:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-h.ctx.Done():
			return nil, errClosed
		}
		if p = get(); p == nil && now-h.scanned.Load() > int64(5*recheck) {
			h.scan(true)
			p = get()
		}
	} else if last := p.file.checked.Load(); now-last > int64(recheck) && p.file.checked.CompareAndSwap(last, now) {
		if id, err := identify(p.file.path); err != nil || id != p.file.id {
			h.scan(true)
			p = get()
		}
	}
	if p == nil {
		msg := fmt.Sprintf("no plugin here offers %s: install one in %s", key, words.Or(h.cfg.Dirs))
		if err := h.Faults(); err != nil {
			msg += "; plugins that cannot be used: " + err.Error()
		}
		return nil, errors.New(msg)
	}
	return p, nil
}

// Execute carries out one attempt at a task (Executor).
func (h *Host) Execute(ctx context.Context, t *proto.Task, sink Sink) *proto.Result {
	if !h.enter() {
		return result(t, proto.Outcome_OUTCOME_NOTHING_DONE, errClosed.Error())
	}
	defer h.calls.Done()
	if sink == nil {
		sink = Discard{}
	}
	h.secrets.add(t.Secrets...)
	for {
		p, err := h.lookup(ctx, typeKey{t.Automator, t.Plugin})
		if err != nil {
			return result(t, proto.Outcome_OUTCOME_NOTHING_DONE, err.Error())
		}
		begun := time.Now()
		if p.exec != nil {
			r := h.hideSettings(p, sink, func(sink Sink) *proto.Result { return p.exec.execute(ctx, p, t, sink) })
			h.tally.task(p, t.Action, begun, r.Outcome)
			return r
		}
		proc, err := p.sup.acquire(ctx)
		if errors.Is(err, errRetired) {
			continue // a newer version has replaced it
		}
		if err != nil {
			h.tally.task(p, t.Action, begun, proto.Outcome_OUTCOME_NOTHING_DONE)
			return result(t, proto.Outcome_OUTCOME_NOTHING_DONE, err.Error())
		}
		r := h.hideSettings(p, sink, func(sink Sink) *proto.Result { return proc.execute(ctx, t, sink) })
		p.sup.release(proc)
		h.afterDelete(t, r)
		if r.Outcome == proto.Outcome_OUTCOME_CANCELLED && p.Repeat(t.Action) == Observe && !t.Automator {
			// A plugin that is cancelled while it creates a machine cannot tell whether the machine
			// exists, so the next attempt observes first.
			r.Outcome = proto.Outcome_OUTCOME_UNKNOWN
		}
		h.tally.task(p, t.Action, begun, r.Outcome)
		return r
	}
}

// Validate checks the values of a type's fields against its descriptor and asks the plugin to check
// them. An error means that the plugin could not be asked.
func (h *Host) Validate(ctx context.Context, kind model.Kind, name, scope string, fields map[string]any) (model.Faults, error) {
	raw, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("ask plugin type %s to check fields: %w", name, err)
	}
	var faults model.Faults
	err = h.with(ctx, typeKey{kind == model.KindAutomatorType, name}, func(p *plug, proc *process) (err error) {
		defer h.tally.call(p, callValidate, time.Now(), &err)
		h.secrets.addFields(p.PluginType, raw)
		if p.exec != nil {
			faults, err = p.exec.validate(ctx, p, scope, fields)
			return err
		}
		req := &proto.ValidateRequest{Scope: scope, Fields: raw}
		var resp *proto.ValidateResponse
		if kind == model.KindAutomatorType {
			resp, err = proto.NewAutomatorClient(proc.conn).Validate(ctx, req)
		} else {
			resp, err = proto.NewProviderClient(proc.conn).Validate(ctx, req)
		}
		for _, f := range resp.GetFaults() {
			faults.Add(f.Path, f.Message)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("ask plugin type %s to check fields: %w", name, err)
	}
	return faults, nil
}

// List calls found for everything that a provider has created and that still exists, of one cluster
// or, if the request names none, of all.
func (h *Host) List(ctx context.Context, provider string, req *proto.ListRequest, found func(*proto.Resource) error) error {
	err := h.with(ctx, typeKey{false, provider}, func(p *plug, proc *process) (err error) {
		defer h.tally.call(p, callList, time.Now(), &err)
		h.secrets.addFields(p.PluginType, req.Fields)
		if p.exec != nil {
			return p.exec.list(ctx, p, req, found)
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := proto.NewProviderClient(proc.conn).List(ctx, req)
		if err != nil {
			return err
		}
		for {
			page, err := stream.Recv()
			if isEOF(err) {
				return nil
			}
			if err != nil {
				return err
			}
			for _, r := range page.Resources {
				if err := found(r); err != nil {
					return err
				}
			}
		}
	})
	if err != nil {
		return fmt.Errorf("list the machines of provider type %s: %w", provider, said(err))
	}
	return nil
}

// Remove removes one listed resource that belongs to no node.
func (h *Host) Remove(ctx context.Context, provider string, req *proto.RemoveRequest) error {
	err := h.with(ctx, typeKey{false, provider}, func(p *plug, proc *process) (err error) {
		defer h.tally.call(p, callRemove, time.Now(), &err)
		h.secrets.addFields(p.PluginType, req.Fields)
		if p.exec != nil {
			return p.exec.remove(ctx, p, req)
		}
		_, err = proto.NewProviderClient(proc.conn).Remove(ctx, req)
		if e := h.endNode(req.GetResource().GetId()); err == nil {
			err = e
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("remove %s with provider type %s: %w", req.GetResource().GetId(), provider, said(err))
	}
	return nil
}

// said returns an error with the plugin's message alone, if the gRPC error came from the plugin.
func said(err error) error {
	if s, ok := status.FromError(err); ok && (s.Code() == codes.Unknown || s.Code() == codes.Unimplemented) {
		return errors.New(s.Message())
	}
	return err
}

// with calls f with the server of a type, and with its live process, which is nil for "exec".
func (h *Host) with(ctx context.Context, key typeKey, f func(*plug, *process) error) error {
	if !h.enter() {
		return errClosed
	}
	defer h.calls.Done()
	for {
		p, err := h.lookup(ctx, key)
		if err != nil {
			return err
		}
		if p.exec != nil {
			return f(p, nil)
		}
		proc, err := p.sup.acquire(ctx)
		if errors.Is(err, errRetired) {
			continue
		}
		if err != nil {
			return err
		}
		defer p.sup.release(proc)
		return f(p, proc)
	}
}

// identify returns a text that changes when the file is replaced or written.
func identify(path string) (string, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	return identity(fi), nil
}
