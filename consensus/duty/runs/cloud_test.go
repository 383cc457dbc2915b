package runs

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/coopr/coopr/engine/profile"
)

// cloud is a provider of whole clusters with switchable failures. Names are unique in it, and
// every call takes a while: the caller may be gone when it is done.
type cloud struct {
	mu    sync.Mutex
	calls int
	there map[string]*resource
	made  int

	latency time.Duration
	takes   time.Duration // until a new cluster is up
	// The knobs of the original's mock (docs/spec/profiles.md §14).
	everyN      int             // every n-th call fails, and may be tried again
	fail        map[string]bool // calls that fail for good, by name
	first       profile.Seen    // the state that the first cluster reaches
	down        func(call string) bool
	loseAnswers bool // a create is done, and then fails
	vanish      func(call string) bool
	bad         int // so many clusters come to FAILED
}

type resource struct {
	upAt    time.Time
	status  profile.Seen
	deleted time.Time
}

func newCloud() *cloud {
	return &cloud{there: map[string]*resource{}, latency: 20 * time.Millisecond, takes: 300 * time.Millisecond, fail: map[string]bool{}}
}

var errBug = errors.New("the provisioner has a bug")

// enter is the way to the cloud: it takes time, and may fail.
func (c *cloud) enter(ctx context.Context, call string) error {
	timer := time.NewTimer(c.latency)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	switch {
	case c.fail[call]:
		return errBug
	case c.everyN > 0 && c.calls%c.everyN == 0, c.down != nil && c.down(call):
		return Againf("the cloud is down")
	case c.vanish != nil && c.vanish(call):
		clear(c.there)
	}
	return nil
}

// leave is the way back: an answer may come too late.
func (c *cloud) leave(ctx context.Context) error {
	timer := time.NewTimer(c.latency)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

func (c *cloud) Create(ctx context.Context, in Request) (Made, error) {
	if err := c.enter(ctx, "create"); err != nil {
		return Made{}, err
	}
	c.mu.Lock()
	name := in.Run.Cluster.Name
	if c.there[name] == nil {
		c.made++
		r := &resource{upAt: time.Now().Add(c.takes), status: profile.SeenRunning}
		switch {
		case c.bad > 0:
			c.bad--
			r.status = profile.SeenFailed
		case c.made == 1 && c.first != "":
			r.status = c.first
		}
		if c.made == 1 && c.first == profile.SeenNotExists {
			r = nil
		}
		if r != nil {
			c.there[name] = r
		}
	}
	lose := c.loseAnswers
	c.mu.Unlock()
	if lose {
		return Made{}, errors.New("the connection was closed")
	}
	return Made{Cluster: &profile.RunCluster{Name: name, Status: profile.SeenCreating}}, c.leave(ctx)
}

func (c *cloud) Status(ctx context.Context, in Request) (profile.Seen, string, error) {
	if err := c.enter(ctx, "get"); err != nil {
		return "", "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.there[in.Run.Cluster.Name]
	switch {
	case r == nil:
		return profile.SeenNotExists, "", nil
	case !r.deleted.IsZero() && time.Since(r.deleted) > c.takes, r.status == profile.SeenDeleting && time.Now().After(r.upAt):
		delete(c.there, in.Run.Cluster.Name)
		return profile.SeenNotExists, "", nil
	case !r.deleted.IsZero(), r.status == profile.SeenDeleting:
		return profile.SeenDeleting, "", nil
	case time.Now().Before(r.upAt):
		return profile.SeenCreating, "", nil
	}
	return r.status, "there is no room", nil
}

func (c *cloud) Initialize(ctx context.Context, in Request) (*profile.RunCluster, error) {
	if err := c.enter(ctx, "init"); err != nil {
		return nil, err
	}
	return &profile.RunCluster{Name: in.Run.Cluster.Name, Nodes: []profile.RunNode{{ID: "n1"}, {ID: "n2"}}}, nil
}

func (c *cloud) Delete(ctx context.Context, in Request) (string, error) {
	if err := c.enter(ctx, "delete"); err != nil {
		return "", err
	}
	c.mu.Lock()
	if r := c.there[in.Run.Cluster.Name]; r != nil && r.deleted.IsZero() {
		r.deleted = time.Now()
	}
	c.mu.Unlock()
	return "", c.leave(ctx)
}

func (c *cloud) Poll() time.Duration { return 100 * time.Millisecond }

// left returns the number of clusters that exist.
func (c *cloud) left() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.there)
}
