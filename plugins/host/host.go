package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

	ctx    context.Context // done when the host closes
	cancel context.CancelCauseFunc
	tasks  sync.WaitGroup // goroutines of the host
	calls  sync.WaitGroup // Execute, Validate, List

	scanning sync.Mutex    // one scan at a time; guards files
	first    chan struct{} // closed after the first scan
	scanned  atomic.Int64  // Unix nanoseconds of the last scan
	files    map[string]*file

	mu     sync.RWMutex
	plugs  map[typeKey]*plug
	faults []error // what is wrong with plugins, of the last scan
	closed bool
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

// New ends what an earlier agent left behind and begins to look for plugins.
// Types that were known before are on offer as soon as it returns; new files
// are asked what they are in the background.
func New(cfg Config) (*Host, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	left, err := newLeftovers(filepath.Join(cfg.DataDir, "run"), cfg.Logger)
	if err != nil {
		return nil, fmt.Errorf("plugins: %w", err)
	}
	left.reap()
	if err := left.makeSockets(cfg.SocketDir); err != nil {
		return nil, fmt.Errorf("plugins: a folder for their sockets: %w", err)
	}
	h := &Host{
		cfg: cfg, spawn: spawn.New(), left: left, first: make(chan struct{}),
		files: map[string]*file{}, plugs: map[typeKey]*plug{},
	}
	h.ctx, h.cancel = context.WithCancelCause(context.Background())
	// What the cache knows is known at once; the rest takes processes to ask.
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
	return h, nil
}

// Wait waits until every plugin that was there at the start has been asked
// what it offers.
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

// Rescan looks for plugins again, now. It gives what is wrong with those
// that cannot be used.
func (h *Host) Rescan() error {
	h.scan(true)
	return h.Faults()
}

// Faults gives what is wrong with plugins that cannot be used, or nil.
func (h *Host) Faults() error {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return errors.Join(h.faults...)
}

// Types gives the types on offer, providers first, by name.
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
		// "providertypes" goes before "automatortypes".
		if c := strings.Compare(string(b.Kind), string(a.Kind)); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	return types
}

// Catalog gives the descriptors of the types on offer.
func (h *Host) Catalog() []model.PluginType {
	types := h.Types()
	out := make([]model.PluginType, len(types))
	for i, t := range types {
		out[i] = t.PluginType
	}
	return out
}

// Processes counts the plugin processes that run now.
func (h *Host) Processes() int {
	pids, _ := filepath.Glob(filepath.Join(h.left.dir, "*.json"))
	return len(pids)
}

// enter counts a call, unless the host closes.
func (h *Host) enter() bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.closed {
		return false
	}
	h.calls.Add(1)
	return true
}

// Close kills every plugin process and waits until nothing is left. Tasks that
// run end with OUTCOME_UNKNOWN; cancel them first to end them well.
func (h *Host) Close() error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil
	}
	h.closed = true
	h.mu.Unlock()
	h.cancel(errClosed)
	h.calls.Wait()
	h.tasks.Wait()
	h.spawn.Stop()
	h.left.removeSockets(h.left.sockets)
	return nil
}

// recheck is how often at most a file is looked at for a change.
const recheck = time.Second

// lookup finds what serves a type. It notices new and changed files.
func (h *Host) lookup(ctx context.Context, key typeKey) (*plug, error) {
	get := func() *plug {
		h.mu.RLock()
		defer h.mu.RUnlock()
		return h.plugs[key]
	}
	now := time.Now().UnixNano()
	p := get()
	if p == nil {
		// It may be among the plugins that are still being asked.
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
		msg := fmt.Sprintf("no plugin here offers %s: put one into %s", key, words.Or(h.cfg.Dirs))
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
	for {
		p, err := h.lookup(ctx, typeKey{t.Automator, t.Plugin})
		if err != nil {
			return result(t, proto.Outcome_OUTCOME_NOTHING_DONE, err.Error())
		}
		if p.exec != nil {
			return p.exec.execute(ctx, p, t, sink)
		}
		proc, err := p.sup.acquire(ctx)
		if errors.Is(err, errRetired) {
			continue // a newer version has taken its place
		}
		if err != nil {
			return result(t, proto.Outcome_OUTCOME_NOTHING_DONE, err.Error())
		}
		r := proc.execute(ctx, t, sink)
		p.sup.release(proc)
		if r.Outcome == proto.Outcome_OUTCOME_CANCELLED && p.Repeat(t.Action) == Observe && !t.Automator {
			// Told to stop in the middle of making a machine, it cannot say
			// whether there is one: the next attempt looks.
			r.Outcome = proto.Outcome_OUTCOME_UNKNOWN
		}
		return r
	}
}

// Validate checks values of fields of a type: what the descriptor says and
// what the plugin itself finds. The error says that it could not be asked.
func (h *Host) Validate(ctx context.Context, kind model.Kind, name, scope string, fields map[string]any) (model.Faults, error) {
	raw, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("validate fields of %s: %w", name, err)
	}
	var faults model.Faults
	err = h.with(ctx, typeKey{kind == model.KindAutomatorType, name}, func(p *plug, proc *process) error {
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
		return nil, fmt.Errorf("validate fields of %s: %w", name, err)
	}
	return faults, nil
}

// List calls found for everything that a provider made and that still exists,
// of one cluster or, where the request names none, of all.
func (h *Host) List(ctx context.Context, provider string, req *proto.ListRequest, found func(*proto.Resource) error) error {
	err := h.with(ctx, typeKey{false, provider}, func(p *plug, proc *process) error {
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
		return fmt.Errorf("list what provider type %s has made: %w", provider, said(err))
	}
	return nil
}

// Remove removes one listed resource that is no node's.
func (h *Host) Remove(ctx context.Context, provider string, req *proto.RemoveRequest) error {
	err := h.with(ctx, typeKey{false, provider}, func(p *plug, proc *process) error {
		if p.exec != nil {
			return p.exec.remove(ctx, p, req)
		}
		_, err := proto.NewProviderClient(proc.conn).Remove(ctx, req)
		return err
	})
	if err != nil {
		return fmt.Errorf("remove %s by provider type %s: %w", req.GetResource().GetId(), provider, said(err))
	}
	return nil
}

// said takes a plugin's own error for what it says.
func said(err error) error {
	if s, ok := status.FromError(err); ok && (s.Code() == codes.Unknown || s.Code() == codes.Unimplemented) {
		return errors.New(s.Message())
	}
	return err
}

// with calls f with what serves a type: a live process, or nil for "exec".
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

// identify gives what changes when a file does.
func identify(path string) (string, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	return identity(fi), nil
}
