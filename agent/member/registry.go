package member

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/coopr/coopr/agent/mesh"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/identity"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Registry is this agent's copy of the agent registry: every agent of the mesh as
// the replicated state has it. A member of the Raft group loads it from its own
// state; any other agent receives it from the leader. It is safe for concurrent
// use.
type Registry struct {
	changed chan struct{} // one slot

	mu      sync.Mutex
	agents  []model.Agent
	removed map[string]bool // ids of agents that were removed from the mesh; nobody returns from there
	gossip  identity.Ring   // the keys of gossip as the leader sent them last
	bundle  identity.Bundle // the CAs as the leader sent them last
	absent  map[string]bool // sessions whose agents do not answer, according to the last leader
}

// NewRegistry returns an empty Registry.
func NewRegistry() *Registry {
	return &Registry{changed: make(chan struct{}, 1), removed: map[string]bool{}}
}

// Agents returns the registry. The caller must not change it.
func (r *Registry) Agents() []model.Agent {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.agents
}

// Removed returns the ids of the agents that were removed from the mesh, in order.
func (r *Registry) Removed() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.removed))
}

// Refuse adds agents that were removed from the mesh, as this agent's disk has them.
func (r *Registry) Refuse(removed []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.setLocked(r.agents, removed)
}

// Receive replaces the registry by the one that the leader sent.
func (r *Registry) Receive(m *pb.AgentRegistry) {
	agents := logformat.DecodeRegistry(m)
	absent := map[string]bool{}
	for _, n := range agents {
		if n.Session != "" && !n.Alive {
			absent[n.Session] = true
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.absent = absent
	if g := GossipRing(m.Gossip); g != nil {
		r.gossip = *g
	}
	if c := m.Cas; c != nil {
		r.bundle = identity.Bundle{Version: c.Version, CAs: c.Cas, Bridges: c.Bridges}
	}
	r.setLocked(agents, m.Removed)
}

// Bundle returns the CAs as the leader has sent them. There are none before it has.
func (r *Registry) Bundle() identity.Bundle {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bundle
}

// Gossip returns the keys of gossip as the leader has sent them. There are none before it has.
func (r *Registry) Gossip() identity.Ring {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gossip
}

// load replaces the registry by the one in this agent's own state. That state
// still has the sessions of absent agents until they expire.
func (r *Registry) load(agents []model.Agent, removed []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	markAbsent(agents, r.absent)
	r.setLocked(agents, removed)
}

func (r *Registry) setLocked(agents []model.Agent, removed []string) {
	r.agents = agents
	for _, id := range removed {
		r.removed[id] = true
	}
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// absentSessions returns the sessions whose agents do not answer, according to
// the last leader.
func (r *Registry) absentSessions() map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]bool{}
	maps.Copy(out, r.absent)
	return out
}

// markAbsent marks the agents whose sessions are absent as dead. It returns those
// of the sessions that the list has.
func markAbsent(list []model.Agent, absent map[string]bool) map[string]bool {
	still := map[string]bool{}
	for i := range list {
		if absent[list[i].Session] {
			list[i].Alive, still[list[i].Session] = false, true
		}
	}
	return still
}

// Run completes the view that gossip has of the mesh with the registry, until ctx
// ends. It calls refuse, if that is not nil, with the agents that were removed from the mesh.
func (r *Registry) Run(ctx context.Context, view interface {
	Repair(records []mesh.Member, removed []string)
}, refuse func(removed []string)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.changed:
		}
		if refuse != nil {
			refuse(r.Removed())
		}
		agents := r.Agents()
		members := make([]mesh.Member, 0, len(agents))
		for _, a := range agents {
			members = append(members, meshMember(a))
		}
		view.Repair(members, r.Removed())
	}
}

// meshMember returns an agent of the registry as an entry of the mesh's view.
func meshMember(r model.Agent) mesh.Member {
	m := mesh.Member{
		ID: r.ID, Addr: r.GossipAddr, Epoch: r.Incarnation, Status: mesh.StatusAlive,
		Self: mesh.Self{
			Name: r.Name, RPCAddr: r.PeerAddr, APIAddr: r.APIAddr, Build: r.Build, FeatureLevel: r.FeatureLevel,
			Zone: r.Zone, Class: r.Class, Eligible: r.Eligible,
		},
	}
	switch {
	case r.Left:
		m.Status = mesh.StatusLeft
	case !r.Alive:
		m.Status = mesh.StatusFailed
	}
	return m
}
