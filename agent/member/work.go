package member

import (
	"context"
	"sync"

	"github.com/coopr/coopr/consensus/state"
)

// Works reports whether an agent has work of a tenant, which may need the tenant's plugin resources: a leased task, a
// change object's host, a health check, or a machine to remove.
func (l *Leadership) Works(ctx context.Context, v *state.View, agent, tenant string) bool {
	for _, op := range v.ActiveOperations() {
		if op.Tenant != tenant {
			continue
		}
		if s, ok := v.Plan(op.ID); ok {
			for _, u := range s.Leased("") {
				if s.Task(u).Holder.Agent == agent {
					return true
				}
			}
		}
	}
	for _, r := range v.Sites(tenant) {
		for _, h := range r.Hosts {
			if h.Agent == agent {
				return true
			}
		}
	}
	return l.removals.has(agent, tenant) || l.Watcher.Watches(ctx, agent, tenant)
}

// removals counts the machines that agents are asked to remove at this moment, by agent and tenant.
type removals struct {
	mu    sync.Mutex
	under map[[2]string]int
}

// begin counts a removal until end is called.
func (r *removals) begin(agent, tenant string) (end func()) {
	r.add(agent, tenant, 1)
	return func() { r.add(agent, tenant, -1) }
}

func (r *removals) add(agent, tenant string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.under == nil {
		r.under = map[[2]string]int{}
	}
	k := [2]string{agent, tenant}
	if r.under[k] += n; r.under[k] == 0 {
		delete(r.under, k)
	}
}

func (r *removals) has(agent, tenant string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.under[[2]string{agent, tenant}] > 0
}
