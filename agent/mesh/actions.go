package mesh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// ErrStopped is returned by what needs the network after Run has returned.
var ErrStopped = errors.New("the mesh is stopped")

// ErrAlive is wrapped by Remove's error for an agent that answers.
var ErrAlive = errors.New("the agent is alive")

// ErrUnknown is wrapped by Remove's error for an agent gossip does not know.
var ErrUnknown = errors.New("no such agent in the mesh")

// ready waits until Run has brought gossip up.
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

// Self is what this agent tells about itself now.
func (m *Mesh) Self() Self {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.self
}

// Epoch is this agent's epoch now; what an agent says of itself to the leader carries it (Member.Epoch).
func (m *Mesh) Epoch() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.epoch
}

// SetSelf changes what this agent tells about itself. It returns at once; the others hear of it by gossip. What does
// not fit in gossip is refused with a *TagsTooLongError, and nothing changes.
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

// announceLoop tells the others when our tags changed.
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
			// It waits for the news to go out. They are queued in any case, and push/pulls carry them too.
			m.log.Debug("announcing this agent's tags is slow", "error", err)
		}
	}
}

// Leave says goodbye, so that the others see this agent as left at once, and waits until that has gone round (a second
// or a few). End Run's context afterwards. Where ctx ends first, the goodbye goes on behind.
func (m *Mesh) Leave(ctx context.Context) error {
	if err := m.ready(ctx); err != nil {
		return err
	}
	m.turn.Lock()
	for g := m.now(); ; g = m.now() {
		m.turn.Unlock()
		select { // one that has just begun anew knows nobody to tell
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
				m.log.Warn("leaving the mesh: the others will notice by themselves", "error", err)
			}
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

// Remove takes a failed agent out of everybody's view at once, instead of after three days. The agent may join again.
// It refuses an agent that answers: let that one leave by itself.
func (m *Mesh) Remove(ctx context.Context, id string) error {
	if err := m.ready(ctx); err != nil {
		return err
	}
	member, ok := m.view.member(id)
	if !ok || member.Gossip == StatusNone {
		return fmt.Errorf("remove agent %s: %w", id, ErrUnknown)
	}
	if member.Gossip.Alive() {
		return fmt.Errorf("remove agent %s (%s): %w: stop it first", id, member.Name, ErrAlive)
	}
	return m.behind(ctx, func() error { return m.now().serf.RemoveFailedNodePrune(id) })
}

// Answers asks an agent itself whether it is there, whatever the view says. That one is gone is found out within two
// probe time-outs (a second at most): a leader whose session with an agent broke need not wait for gossip to notice. An
// agent of an address that nobody knows does not answer.
func (m *Mesh) Answers(ctx context.Context, id string) bool {
	if m.ready(ctx) != nil {
		return false
	}
	member, _ := m.view.member(id)
	addr, err := netip.ParseAddrPort(member.Addr)
	if err != nil {
		return false
	}
	return m.behind(ctx, func() error {
		var err error
		for range 2 {
			if _, err = m.now().serf.Memberlist().Ping(id, net.UDPAddrFromAddrPort(addr)); err == nil {
				break
			}
		}
		return err
	}) == nil
}

// behind runs something of serf that takes its time and knows no context.
func (m *Mesh) behind(ctx context.Context, f func() error) error {
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

// Health is how gossip fares on this agent.
type Health struct {
	// Score is zero when probes are answered in time, and grows (to Profile.SlowDown) while this agent or its network is too slow for them.
	Score int
	// Encrypted says whether gossip is.
	Encrypted bool
	// Profile is the pace of the moment.
	Profile Profile
}

// Health tells how gossip fares. Before Run it is zero.
func (m *Mesh) Health() Health {
	select {
	case <-m.started:
	default:
		return Health{}
	}
	g := m.now()
	return Health{Score: g.serf.Memberlist().GetHealthScore(), Encrypted: m.keyring != nil, Profile: g.profile}
}
