package blobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/coopr/coopr/agent/member"
	"github.com/coopr/coopr/consensus/duty/loop"
	"github.com/coopr/coopr/engine/model"
)

const (
	sweepInterval = time.Minute
	// uploadGrace is how long a member of the Raft group keeps blobs that the state
	// does not refer to, or not yet.
	uploadGrace = time.Hour
	// taskGrace is how long any other agent keeps blobs that its tasks have used.
	taskGrace = 24 * time.Hour
	// folderGrace is how long folders that were laid out for tasks are kept.
	folderGrace = 10 * time.Minute
)

// ErrNoDisk is returned by an agent that has no data directory.
var ErrNoDisk = errors.New("this agent has no data directory, so it stores no plugin resources")

// Config configures a Cache.
type Config struct {
	// Dir is the folder of the cache. If it is empty, the agent keeps no blobs, and
	// the methods of the cache that need one fail with ErrNoDisk.
	Dir string
	// Folders is where resources are laid out for tasks. Default: folders in Dir.
	Folders string
	// Lend lets plugins read a folder. Nil: they can read what the agent can.
	Lend func(dir string) error
	// ID is this agent's identity.
	ID         string
	Supervisor *member.Supervisor
	Locator    *member.Locator
	Mesh       member.Mesh
	Peers      member.Peers
	Ring       Ring // of the mesh's keys, for tickets and blobs
	// Worker reports whether this agent's certificate has the role worker, so that it has to show tickets. Nil: never.
	Worker func() bool
	Logger *slog.Logger
}

// Cache is this agent's blob cache. A member of the Raft group keeps every blob that
// the state refers to; any other agent fetches the blobs that its tasks need. It is
// safe for concurrent use.
type Cache struct {
	cfg     Config
	store   *Store   // nil: the agent has no disk
	folders *Folders // nil: the agent has no disk
	flight  singleflight.Group
	queue   *loop.Queue[chore]
	sets    *sets
	tickets *tickets // of a worker

	// ctx ends with Close. It bounds transfers, which may outlive the request that
	// started them; wg counts them.
	ctx  context.Context
	stop context.CancelFunc
	mu   sync.Mutex // orders start and Close
	wg   sync.WaitGroup
}

// Open opens the agent's blob cache.
func Open(cfg Config) (*Cache, error) {
	c := &Cache{cfg: cfg, sets: newSets(), tickets: newTickets()}
	c.queue = loop.New(loop.Config[chore]{Reconcile: c.do})
	c.ctx, c.stop = context.WithCancel(context.Background())
	if cfg.Dir == "" {
		return c, nil
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, err
	}
	c.store = OpenStore(filepath.Join(dir, "contents"), cfg.Ring, c.worker)
	folders := filepath.Join(dir, "folders")
	if cfg.Folders != "" && cfg.Folders != folders {
		_ = os.RemoveAll(folders) // of an earlier version of the agent
		folders = cfg.Folders
	}
	c.folders = OpenFolders(folders, cfg.Lend, c.Content)
	return c, nil
}

// worker reports whether this agent has to show tickets, and has no keys of the mesh.
func (c *Cache) worker() bool { return c.cfg.Worker != nil && c.cfg.Worker() }

// Close cancels all transfers and waits for their end.
func (c *Cache) Close() {
	c.mu.Lock()
	c.stop()
	c.mu.Unlock()
	c.wg.Wait()
}

// start counts a transfer that outlives its request; the caller ends it with
// wg.Done. It fails once the cache is closed.
func (c *Cache) start() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.ctx.Err(); err != nil {
		return fmt.Errorf("this agent is stopping: %w", err)
	}
	c.wg.Add(1)
	return nil
}

// Notify makes Run compare the cache with the state soon.
func (c *Cache) Notify() { c.queue.Add(fill) }

// Run fetches the blobs that the state refers to and removes unused ones, until ctx
// ends.
func (c *Cache) Run(ctx context.Context) error {
	if c.store == nil {
		return nil
	}
	c.queue.Add(fill)
	c.queue.AddAfter(sweep, sweepInterval)
	_ = c.queue.Run(ctx) // the end of ctx
	return nil
}

// chore is what Run does.
type chore int

const (
	fill  chore = iota // fetch the blobs that the state refers to
	sweep              // remove unused ones
)

// do carries out a chore. It returns when the chore is due again.
func (c *Cache) do(ctx context.Context, what chore) (time.Time, error) {
	if what == fill {
		c.fill(ctx)
	} else {
		c.sweep(time.Now())
	}
	return time.Now().Add(sweepInterval), nil
}

// groupMember returns the Raft member if it belongs to a group, else nil.
func (c *Cache) groupMember() *member.Member {
	if m := c.cfg.Supervisor.Member(); m != nil && m.Group.Member() {
		return m
	}
	return nil
}

// fill fetches the missing blobs that a member of the Raft group has to keep.
func (c *Cache) fill(ctx context.Context) {
	c.reseal()
	m := c.groupMember()
	if m == nil {
		return
	}
	for sum, size := range m.Machine.View().Blobs() {
		if c.store.Has(sum, size) {
			continue
		}
		if err := c.fetch(ctx, sum, size, ""); err != nil && ctx.Err() == nil {
			c.cfg.Logger.Warn("the content of a plugin resource could not be fetched", "sha256", sum, "error", err)
		}
	}
}

// reseal encrypts the blobs that are not encrypted with the active key.
func (c *Cache) reseal() {
	if err := c.store.Reseal(); err != nil {
		c.cfg.Logger.Warn("contents of plugin resources are not encrypted with the key in use; this agent tries again", "error", err)
	}
}

// Followed reports whether this agent's blobs need no key of the mesh but the active one. If they do, it has Run encrypt them again.
func (c *Cache) Followed() (bool, error) {
	if c.store == nil {
		return true, nil
	}
	done, err := c.store.Followed()
	if !done {
		c.Notify()
	}
	return done, err
}

func (c *Cache) sweep(now time.Time) {
	needed, unusedSince := map[string]int64{}, now.Add(-taskGrace)
	if m := c.groupMember(); m != nil {
		if id, _ := m.Group.Leader(); id == "" {
			return // without a leader, this member's state may be old
		}
		needed, unusedSince = m.Machine.View().Blobs(), now.Add(-uploadGrace)
	}
	_, err := c.store.Sweep(func(sum string) bool { _, ok := needed[sum]; return ok }, unusedSince)
	if err = errors.Join(err, c.folders.Sweep(now.Add(-folderGrace))); err != nil {
		c.cfg.Logger.Warn("unused plugin resources could not be removed", "error", err)
	}
}

// Store returns the cache's store, or ErrNoDisk.
func (c *Cache) Store() (*Store, error) {
	if c.store == nil {
		return nil, ErrNoDisk
	}
	return c.store, nil
}

// Content returns the verified content of a resource, from this disk or from another
// agent.
func (c *Cache) Content(ctx context.Context, p model.ResourcePin) (*Content, error) {
	if c.store == nil {
		return nil, ErrNoDisk
	}
	f, err := c.store.Open(p.SHA256)
	if errors.Is(err, ErrMissing) || errors.Is(err, ErrCorrupt) {
		if errors.Is(err, ErrCorrupt) {
			c.cfg.Logger.Error("the disk has corrupted the content of a plugin resource; it is fetched again", "resource", p.String(), "sha256",
				p.SHA256)
		}
		if err = c.fetch(ctx, p.SHA256, p.Size, ""); err == nil {
			f, err = c.store.Open(p.SHA256)
		}
	}
	if err == nil {
		c.store.Touch(p.SHA256)
	}
	return f, err
}

// Planned returns the folder with the resources of a plugin that set number of a
// tenant has, and keeps the folder until release is called. dir is "" if the plugin
// has none.
func (c *Cache) Planned(ctx context.Context, tenant string, number uint64, kind model.Kind, plugin string) (dir string, release func(),
	err error) {
	set, err := c.set(ctx, tenant, number)
	if err != nil {
		return "", nil, err
	}
	return c.layOut(forTenant(ctx, tenant), set.Of(kind, plugin))
}

// Current is like Planned, with the versions that are in force now.
func (c *Cache) Current(ctx context.Context, tenant string, kind model.Kind, plugin string) (dir string, release func(), err error) {
	set, err := c.currentSet(ctx, tenant)
	if err != nil {
		return "", nil, err
	}
	return c.layOut(forTenant(ctx, tenant), set.Of(kind, plugin))
}

func (c *Cache) layOut(ctx context.Context, pins []model.ResourcePin) (dir string, release func(), err error) {
	switch {
	case len(pins) == 0:
		return "", func() {}, nil
	case c.folders == nil:
		return "", nil, ErrNoDisk
	}
	return c.folders.Use(ctx, pins)
}
