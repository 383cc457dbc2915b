package member

import (
	"context"
	"sync"
	"time"

	"github.com/coopr/coopr/consensus/duty/keys"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/roster"
	"github.com/coopr/coopr/rpc/identity"
	pb "github.com/coopr/coopr/rpc/proto"
)

const (
	// Changes of the registry are gathered for gatherTime, plus gatherPerAgent for
	// each agent: many agents join at once, and every agent receives every change.
	gatherTime     = 50 * time.Millisecond
	gatherPerAgent = time.Millisecond
	// returnTime is how long agents have to open a session with a new leader
	// before it probes them.
	returnTime = 500 * time.Millisecond
)

// broadcaster is the duty that sends the agent registry to every agent when it
// changes. A session survives its connection for its TTL, as the agent may return
// to its leases. Whether the agent is alive is known sooner, by a probe.
type broadcaster struct {
	machine    *state.Machine
	message    func([]model.Agent) *pb.AgentRegistry
	mesh       Mesh
	registry   *Registry
	leadership *Leadership
}

// Bundle returns the CAs of a view. Their version is the index of the entry with which the phase of their rotation began.
func Bundle(v *state.View) identity.Bundle {
	m := v.MeshIdentity()
	if m == nil {
		return identity.Bundle{}
	}
	r, _ := v.Rotation(roster.KindCA)
	out := identity.Bundle{Version: r.Index, CAs: m.CAs}
	for _, b := range m.Bridges {
		if time.Now().UnixMilli() < b.Until {
			out.Bridges = append(out.Bridges, b.Certificate, b.Old)
		}
	}
	return out
}

// Replaced returns the CAs of a mesh that others have replaced, as long as a bridge leads from them.
func Replaced(m *table.MeshIdentity) (cas [][]byte) {
	for _, b := range m.Bridges {
		if time.Now().UnixMilli() < b.Until {
			cas = append(cas, b.Old)
		}
	}
	return cas
}

// RegistryMessage returns the agent registry with some agents, with the keys of gossip and the CAs.
func (m *Member) RegistryMessage(agents []model.Agent) *pb.AgentRegistry {
	v := m.Machine.View()
	out := logformat.EncodeRegistry(agents, v.RemovedAgents())
	if b := Bundle(v); len(b.CAs) > 0 {
		out.Cas = &pb.CABundle{Version: b.Version, Cas: b.CAs, Bridges: b.Bridges}
	}
	var err error
	if out.Gossip, err = keys.GossipRing(v, m.cfg.Keyring); err != nil {
		m.cfg.Logger.Debug("the keys of gossip cannot be sent", "error", err) // the duty of the keys reports a keyring without keys
	}
	return out
}

// GossipRing returns the keys of gossip in a message, or nil if it has none.
func GossipRing(m *pb.GossipRing) *identity.Ring {
	if m == nil {
		return nil
	}
	return &identity.Ring{Version: m.Version, Keys: m.Keys}
}

// brokenSession is a session whose connection is closed.
type brokenSession struct{ session, agent string }

// SessionBroken reports that the connection of an agent's session is closed.
func (l *Leadership) SessionBroken(session, agent string) {
	select {
	case l.broken <- brokenSession{session, agent}:
	default: // if very many break at once, the rest are noticed when their TTL ends
	}
}

// Name returns the name of the duty in logs.
func (b *broadcaster) Name() string { return "membership broadcaster" }

// Restore does nothing: the registry is part of the state.
func (b *broadcaster) Restore(context.Context) error { return nil }

// Run sends the registry after each change until ctx ends.
func (b *broadcaster) Run(ctx context.Context) error {
	changed := make(chan struct{}, 1)
	stop := b.machine.Watch(func(batch state.Batch) {
		if batch.Agents {
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	})
	defer stop()
	absent := b.registry.absentSessions()
	silent := make(chan string) // sessions whose agents did not answer the probe
	var probes sync.WaitGroup
	defer probes.Wait()
	probe := func(s brokenSession) {
		probes.Go(func() {
			if !b.mesh.Answers(ctx, s.agent) {
				select {
				case silent <- s.session:
				case <-ctx.Done():
				}
			}
		})
	}
	begun := time.After(returnTime)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case s := <-b.leadership.broken:
			probe(s)
			continue
		case <-begun:
			live := b.leadership.Dispatcher.Live()
			for _, n := range b.machine.View().Agents() {
				if _, ok := live[n.ID]; !ok && n.Session != "" {
					probe(brokenSession{n.Session, n.ID})
				}
			}
			continue
		case session := <-silent:
			absent[session] = true
		case <-changed:
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(gatherTime + time.Duration(len(b.machine.View().Agents()))*gatherPerAgent):
		}
		list := b.machine.View().Agents()
		absent = markAbsent(list, absent)
		b.leadership.Dispatcher.Tell(b.message(list))
	}
}
