package mesh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/hashicorp/serf/serf"
)

// ErrStopped is returned by methods that need the network after Run has returned.
var ErrStopped = errors.New("the mesh is stopped")

// ErrAlive is returned by Remove for an agent that is alive.
var ErrAlive = errors.New("the agent is alive")

// ErrUnknown is returned by Remove for an agent that gossip does not know.
var ErrUnknown = errors.New("no such agent in the mesh")

// ready waits until Run has started gossip.
func (m *Mesh) ready(ctx context.Context) error {
	select {
	case <-m.stopped:
		return ErrStopped
	default:
	}
	select {
	case <-m.started:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Self returns what this agent announces about itself now.
func (m *Mesh) Self() Self {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.self
}

// Epoch returns this agent's epoch (see Member.Epoch).
func (m *Mesh) Epoch() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.epoch
}

// SetSelf changes what this agent announces about itself. It returns at once; gossip carries the change. If self does not
// fit in gossip, SetSelf returns a *TagsTooLongError and changes nothing.
func (m *Mesh) SetSelf(self Self) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if self == m.self {
		return nil
	}
	if err := checkTags(encodeTags(self, m.epoch)); err != nil {
		return err
	}
	m.self = self
	signal(m.announce)
	return nil
}

// announceLoop announces this agent's tags when they have changed.
func (m *Mesh) announceLoop(ctx context.Context) {
	for {
		select {
		case <-m.announce:
		case <-ctx.Done():
			return
		}
		m.mu.Lock()
		tags := encodeTags(m.self, m.epoch)
		m.mu.Unlock()
		if err := m.now().serf.SetTags(tags); err != nil {
			// SetTags waits until the tags are sent. They are queued anyway, and push/pulls carry them too.
			m.log.Debug("this agent's tags could not be announced in time", "error", err)
		}
	}
}

// Leave announces the departure, so that other agents see this one as left at once, and waits until the news has spread (a
// second or a few). Afterwards the caller ends Run's context. If ctx ends first, the news spreads in the background.
func (m *Mesh) Leave(ctx context.Context) error {
	if err := m.ready(ctx); err != nil {
		return err
	}
	m.turn.Lock()
	for g := m.now(); ; g = m.now() {
		m.turn.Unlock()
		select { // a new generation does not know the other agents yet
		case <-g.entered:
		case <-m.stopped:
			return ErrStopped
		case <-ctx.Done():
			return ctx.Err()
		}
		m.turn.Lock()
		if m.now() == g {
			break
		}
	}
	m.mu.Lock()
	done := m.leaving
	if done == nil {
		done = make(chan struct{})
		m.leaving = done
		s := m.gen.serf
		go func() {
			defer close(done)
			if err := s.Leave(); err != nil {
				m.log.Warn("this agent could not announce to the mesh that it leaves; the others will detect it", "error", err)
			}
			m.sayGoodbye(s)
		}()
	}
	m.mu.Unlock()
	m.turn.Unlock()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// sayGoodbye exchanges states with each agent that is alive. The news of a departure spreads at random: now and then it
// misses an agent, which would then take this one for failed.
func (m *Mesh) sayGoodbye(s *serf.Serf) {
	var addrs []string
	for _, x := range s.Members() {
		if x.Status == serf.StatusAlive && x.Name != m.cfg.ID {
			addrs = append(addrs, addrOf(x))
		}
	}
	if _, err := s.Memberlist().Join(addrs); err != nil {
		m.log.Debug("not every agent was told directly that this one leaves", "error", err)
	}
}

// Remove removes a failed agent from the view of all agents at once, instead of after three days. The agent may join
// again. Remove fails with ErrAlive for an agent that is alive; such an agent can leave by itself.
func (m *Mesh) Remove(ctx context.Context, id string) error {
	if err := m.ready(ctx); err != nil {
		return err
	}
	member, _ := m.view.member(id)
	if member.Gossip.Alive() {
		return fmt.Errorf("remove agent %s (%s): %w: stop it first", id, member.Name, ErrAlive)
	}
	// The view may have forgotten the agent, as the registry has it no more.
	if _, ok := m.now().member(id); !ok && member.Gossip == StatusNone {
		return fmt.Errorf("remove agent %s: %w", id, ErrUnknown)
	}
	return m.background(ctx, func() error { return m.now().serf.RemoveFailedNodePrune(id) })
}

// pruneAfter is how long an agent waits before it removes a removed agent from gossip itself. By then
// the removal by another agent has usually arrived.
const pruneAfter = 5 * time.Second

// pruneLoop removes agents from gossip that the registry has no more, until ctx ends. Remove reaches all
// agents but those that are cut off at the time, and only if the agent that removes knows of the death.
func (m *Mesh) pruneLoop(ctx context.Context) {
	for {
		select {
		case <-m.view.prune:
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(pruneAfter):
		case <-ctx.Done():
			return
		}
		gone := m.view.gone()
		if len(gone) == 0 {
			continue
		}
		g := m.now()
		for _, sm := range g.serf.Members() {
			if !gone[sm.Name] || sm.Status != serf.StatusFailed && sm.Status != serf.StatusLeft {
				continue
			}
			if err := m.background(ctx, func() error { return g.serf.RemoveFailedNodePrune(sm.Name) }); err != nil {
				m.log.Debug("the removal of an agent could not be announced in time", "agent", sm.Name, "error", err)
			}
		}
	}
}

// Answers probes an agent, whatever the view has of it, and reports whether it answers. A dead agent is detected within two
// probe timeouts (one second at most), so a leader whose session with an agent broke need not wait for gossip. Answers
// returns false for an agent whose address is unknown.
func (m *Mesh) Answers(ctx context.Context, id string) bool {
	if m.ready(ctx) != nil {
		return false
	}
	member, _ := m.view.member(id)
	addr, err := netip.ParseAddrPort(member.Addr)
	if err != nil {
		return false
	}
	return m.background(ctx, func() error {
		var err error
		for range 2 {
			if _, err = m.now().serf.Memberlist().Ping(id, net.UDPAddrFromAddrPort(addr)); err == nil {
				break
			}
		}
		return err
	}) == nil
}

// background runs a slow call of serf on a goroutine, because the call accepts no context. It returns when
// the call has returned, or when ctx or Run has ended; the call may still be running then.
func (m *Mesh) background(ctx context.Context, f func() error) error {
	result := make(chan error, 1)
	go func() { result <- f() }()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-m.stopped:
		return ErrStopped
	}
}

// Health is the state of gossip on this agent.
type Health struct {
	// Score is 0 while probes are answered in time. It grows, up to Profile.SlowDown, while this agent or its network is too
	// slow.
	Score int
	// Encrypted reports whether gossip is encrypted.
	Encrypted bool
	// Profile is the current profile.
	Profile Profile
}

// Health returns the state of gossip. It is zero before Run.
func (m *Mesh) Health() Health {
	select {
	case <-m.started:
	default:
		return Health{}
	}
	g := m.now()
	return Health{Score: g.serf.Memberlist().GetHealthScore(), Encrypted: m.keyring != nil, Profile: g.profile}
}
