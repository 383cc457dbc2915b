package blobs

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/wire"
)

const (
	maxSets      = 64               // that are cached
	currentTTL   = 10 * time.Second // of the set in force, as the leader answered
	leaderWithin = 30 * time.Second // for the leader's answer
)

// sets caches sets of resource versions on an agent outside the Raft group.
type sets struct {
	mu      sync.Mutex
	planned map[string]*model.ResourceSet // by tenant and number; a set never changes
	current map[string]currentSet         // by tenant
}

// currentSet is a set that was in force at a time.
type currentSet struct {
	*model.ResourceSet
	at time.Time
}

func newSets() *sets {
	return &sets{planned: map[string]*model.ResourceSet{}, current: map[string]currentSet{}}
}

// set returns a set of versions, from this member's state or from the leader.
func (c *Cache) set(ctx context.Context, tenant string, number uint64) (*model.ResourceSet, error) {
	if m := c.cfg.Supervisor.Member(); m != nil {
		if set, ok := m.Machine.View().ResourceSet(tenant, number); ok {
			return set, nil
		}
	}
	key := fmt.Sprintf("%s\x00%d", tenant, number)
	c.sets.mu.Lock()
	set := c.sets.planned[key]
	c.sets.mu.Unlock()
	if set != nil {
		return set, nil
	}
	set, err := c.askLeader(ctx, tenant, number)
	if err != nil {
		return nil, err
	}
	c.sets.mu.Lock()
	defer c.sets.mu.Unlock()
	if len(c.sets.planned) >= maxSets {
		clear(c.sets.planned)
	}
	c.sets.planned[key] = set
	return set, nil
}

// currentSet returns the versions that are in force now, from this member's state.
// An agent outside the Raft group asks the leader every few seconds; while there is
// no leader, it uses the last answer.
func (c *Cache) currentSet(ctx context.Context, tenant string) (*model.ResourceSet, error) {
	if m := c.groupMember(); m != nil {
		set, ok := m.Machine.View().ResourcesInForce(tenant)
		if !ok {
			set = &model.ResourceSet{Tenant: tenant}
		}
		return set, nil
	}
	c.sets.mu.Lock()
	known, ok := c.sets.current[tenant]
	c.sets.mu.Unlock()
	if ok && time.Since(known.at) < currentTTL {
		return known.ResourceSet, nil
	}
	set, err := c.askLeader(ctx, tenant, 0)
	if err != nil {
		if ok && ctx.Err() == nil {
			return known.ResourceSet, nil
		}
		return nil, err
	}
	c.sets.mu.Lock()
	defer c.sets.mu.Unlock()
	c.sets.current[tenant] = currentSet{set, time.Now()}
	return set, nil
}

// askLeader asks the leader for a set of versions. Number 0 means the set in force.
func (c *Cache) askLeader(ctx context.Context, tenant string, number uint64) (*model.ResourceSet, error) {
	ctx, cancel := context.WithTimeout(ctx, leaderWithin)
	defer cancel()
	ticket, err := c.ticket(ctx, tenant)
	if err != nil {
		return nil, err
	}
	leader, err := c.leader(ctx)
	if err != nil {
		return nil, err
	}
	r, err := leader.ResourceSet(ctx, &pb.ResourceSetRequest{Tenant: tenant, Number: number, Ticket: ticket})
	if err != nil {
		c.tickets.refused(tenant, err)
		return nil, fmt.Errorf("ask the leader for the versions of plugin resources: %w", err)
	}
	set, err := logformat.DecodeResourceSet(r.Set)
	if err != nil {
		return nil, fmt.Errorf("decode the leader's answer about plugin resources: %w", err)
	}
	return set, nil
}

// leader returns a client of the leader, as soon as there is one.
func (c *Cache) leader(ctx context.Context) (pb.PeerClient, error) {
	id, addr, err := c.cfg.Locator.AwaitLeader(ctx)
	if err != nil {
		return nil, err
	}
	return c.cfg.Peers.Client(wire.Leader(addr, id).String())
}
