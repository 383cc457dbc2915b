package state

import (
	"maps"
	"sync"

	"github.com/coopr/coopr/engine/model"
)

// Census counts the clusters of all tenants, and their nodes.
type Census struct {
	Clusters  map[ClusterGroup]int
	Nodes     map[string]int // by health; a node that was not checked does not count
	Abandoned int            // nodes that fail and on which recovery stopped trying
}

// ClusterGroup groups clusters. Health is that of model.HealthOf.
type ClusterGroup struct {
	Status model.ClusterStatus
	Health string
}

// Census counts clusters and nodes. It counts again only what changed since the call before, so that a call costs little
// however many clusters there are.
func (m *Machine) Census() Census {
	c := &m.census
	c.counting.Lock()
	defer c.counting.Unlock()
	changed, all := c.take()
	v := m.View() // after take: a later change is noted again
	if all {
		c.shares = map[clusterName]share{}
		c.sum = Census{Clusters: map[ClusterGroup]int{}, Nodes: map[string]int{}}
		changed = map[clusterName]bool{}
		for _, cl := range v.Clusters("") {
			changed[clusterName{cl.Tenant, cl.ID}] = true
		}
	}
	for name := range changed {
		c.recount(v, name)
	}
	return Census{maps.Clone(c.sum.Clusters), maps.Clone(c.sum.Nodes), c.sum.Abandoned}
}

// census is what the last count found, and which clusters changed since then.
type census struct {
	mu      sync.Mutex
	counted bool // as long as nobody counts, changes are not noted
	changed map[clusterName]bool

	counting sync.Mutex // held during a count; it guards the fields below
	shares   map[clusterName]share
	sum      Census
}

type clusterName struct{ tenant, id string }

// share is what one cluster adds to the census.
type share struct {
	ClusterGroup
	nodes     map[string]int // nil if no node was checked
	abandoned int
}

// note notes changed clusters after the state has them.
func (c *census) note(names []clusterName) {
	if len(names) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.counted {
		return
	}
	for _, name := range names {
		c.changed[name] = true
	}
	if len(c.changed) > maxChanged { // nobody counts any more, or so much changed that a new count costs as little
		c.counted, c.changed = false, nil
	}
}

// maxChanged bounds the changed clusters that are noted.
const maxChanged = 10_000

// reset makes the next count a new one.
func (c *census) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counted, c.changed = false, nil
}

// take returns the clusters that changed. all reports that all have to be counted.
func (c *census) take() (changed map[clusterName]bool, all bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed, all = c.changed, !c.counted
	c.counted, c.changed = true, map[clusterName]bool{}
	return changed, all
}

// recount replaces the share of a cluster, which may not exist any more.
func (c *census) recount(v *View, name clusterName) {
	if s, ok := c.shares[name]; ok {
		c.sum.add(s, -1)
		delete(c.shares, name)
	}
	cl, ok := v.Cluster(name.tenant, name.id)
	if !ok {
		return
	}
	s := share{ClusterGroup: ClusterGroup{Status: cl.Status}}
	for _, h := range v.ClusterHealth(name.tenant, name.id) {
		status := h.Status()
		if status == "" {
			continue
		}
		if s.nodes == nil {
			s.nodes = map[string]int{}
		}
		s.nodes[status]++
		if h.Abandoned() {
			s.abandoned++
		}
		s.Health = model.HealthWith(s.Health, status)
	}
	c.shares[name] = s
	c.sum.add(s, 1)
}

func (c *Census) add(s share, sign int) {
	if c.Clusters[s.ClusterGroup] += sign; c.Clusters[s.ClusterGroup] == 0 {
		delete(c.Clusters, s.ClusterGroup)
	}
	for health, n := range s.nodes {
		c.Nodes[health] += sign * n
	}
	c.Abandoned += sign * s.abandoned
}
