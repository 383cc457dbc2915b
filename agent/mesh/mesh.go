package mesh

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/hashicorp/serf/serf"
)

// Mesh is this agent's part in gossip and its view of all agents. Run owns serf (one generation after another) and
// updates the view. Every other method may be called from any goroutine and before Run; a method that needs the network
// waits for Run.
type Mesh struct {
	cfg       Config
	log       *slog.Logger
	transport memberlist.NodeAwareTransport
	keyring   *memberlist.Keyring
	advertise netip.AddrPort // as configured; invalid: the transport's own
	addr      netip.AddrPort // as other agents see it

	started   chan struct{} // closed when gossip is up
	stopped   chan struct{} // closed when Run returns
	joinTried chan struct{} // closed when the agent has joined or has tried every address

	announce chan struct{} // tags changed
	rejoin   chan struct{} // there are new addresses to try
	moved    chan struct{} // another agent has an old address of this one
	remember chan struct{} // the peers file is out of date
	resized  chan struct{} // agents came or went
	retune   chan struct{} // the profile no longer fits the size of the mesh

	view *view

	turn sync.Mutex // held between two generations

	mu      sync.Mutex
	gen     *generation
	self    Self
	epoch   uint64
	seeds   []string // Config.Join, or the addresses of SetJoin
	peers   []peer   // from the peers file
	newborn bool     // there was no peers file, so no other agent can know this one
	leaving chan struct{}
}

// New checks the configuration and binds the gossip port. The agent sends nothing until Run.
func New(cfg Config) (*Mesh, error) {
	cfg.setDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	m := &Mesh{
		cfg: cfg, log: cfg.Logger, newborn: true, transport: cfg.Transport, self: cfg.Self, seeds: slices.Clone(cfg.Join),
		started: make(chan struct{}), stopped: make(chan struct{}), joinTried: make(chan struct{}),
		announce: make(chan struct{}, 1), rejoin: make(chan struct{}, 1), moved: make(chan struct{}, 1), remember: make(chan struct{}, 1),
		resized: make(chan struct{}, 1), retune: make(chan struct{}),
	}
	var err error
	if m.keyring, err = newKeyring(cfg.GossipKeys); err != nil {
		return nil, err
	}
	if cfg.Advertise != "" {
		if m.advertise, err = netip.ParseAddrPort(cfg.Advertise); err != nil {
			return nil, fmt.Errorf("mesh: gossip.advertise: %w", err)
		}
	}
	was, last := m.loadPeers()
	m.epoch = max(uint64(time.Now().UnixMilli()), last+1)
	if m.transport == nil {
		bind, err := netip.ParseAddrPort(cfg.Bind)
		if err != nil {
			return nil, fmt.Errorf("mesh: gossip.addr: %w", err)
		}
		if bind.Addr().IsUnspecified() && !m.advertise.IsValid() {
			return nil, fmt.Errorf("mesh: gossip.addr %s binds all addresses of this machine: set gossip.advertise to the address "+
				"that other agents use", bind)
		}
		if m.transport, err = openSockets(bind, cfg.Logger); err != nil {
			return nil, err
		}
	}
	ip, port := "", 0
	if m.advertise.IsValid() {
		ip, port = m.advertise.Addr().String(), int(m.advertise.Port())
	}
	final, finalPort, err := m.transport.FinalAdvertiseAddr(ip, port)
	if err != nil {
		m.transport.Shutdown()
		return nil, fmt.Errorf("mesh: address to advertise: %w", err)
	}
	addr, _ := netip.AddrFromSlice(final)
	m.addr = netip.AddrPortFrom(addr.Unmap(), uint16(finalPort))
	if was != "" && was != m.addr.String() {
		signal(m.moved)
	}
	m.view = newView(cfg.ID, Member{ID: cfg.ID, Self: cfg.Self, Addr: m.addr.String(), Epoch: m.epoch, Status: StatusAlive})
	return m, nil
}

// Close releases the port of a Mesh that never ran. After Run it does nothing.
func (m *Mesh) Close() error {
	select {
	case <-m.started:
		return nil
	default:
		return m.transport.Shutdown()
	}
}

// Addr returns the gossip address at which other agents reach this one.
func (m *Mesh) Addr() string { return m.addr.String() }

// JoinTried returns a channel that is closed once the agent has joined the mesh or has tried every address it knows. Until
// then the agent must not start a Raft group: another agent may belong to one.
func (m *Mesh) JoinTried() <-chan struct{} { return m.joinTried }

// Linger is how long memberlist's last probe may outlive Run, as it cannot be interrupted. The probe is harmless, but a
// test in a synctest bubble has to sleep this long at its end: time stops when its function has returned.
const Linger = 10 * time.Second

// Run takes part in gossip until ctx ends. It does not announce that the agent leaves; call Leave before.
func (m *Mesh) Run(ctx context.Context) error {
	defer close(m.stopped)
	profile := m.cfg.Profile
	if profile == (Profile{}) {
		profile = ProfileFor(max(m.view.size(), len(m.peers)+1, m.cfg.Agents), Profile{})
	}
	if m.cfg.Prepare != nil {
		m.cfg.Prepare(ctx)
	}
	doubter := &doubter{m: m}
	inner, cancel := context.WithCancel(ctx)
	var helpers sync.WaitGroup
	defer helpers.Wait()
	defer cancel()
	m.turn.Lock()
	for first := true; ; first = false {
		g, err := m.begin(profile)
		m.turn.Unlock()
		if err != nil {
			m.transport.Shutdown()
			return err
		}
		if first {
			close(g.entered)
			close(m.started)
			helpers.Go(func() { m.announceLoop(inner) })
			helpers.Go(func() { joiner{m}.run(inner) })
			helpers.Go(func() { m.rememberLoop(inner) })
			helpers.Go(func() { m.pruneLoop(inner) })
		} else {
			helpers.Go(func() { m.reenter(inner, g) })
		}
		m.pump(ctx.Done(), m.retune, g.events, func(id string) bool {
			if g.profile == calm {
				helpers.Go(func() { doubter.ask(inner, g, id) })
			}
			return g.profile == calm
		})
		m.turn.Lock()
		err = m.finish(g)
		if ctx.Err() != nil || err != nil {
			m.turn.Unlock()
			if down := m.transport.Shutdown(); err == nil {
				err = down
			}
			return err
		}
		m.mu.Lock()
		left := m.leaving != nil
		m.mu.Unlock()
		if left { // Leave was called at the same time: do not start another generation
			m.turn.Unlock()
			<-ctx.Done()
			return m.transport.Shutdown()
		}
		profile = ProfileFor(m.view.living(), profile)
		m.log.Info("gossip changes its profile", "agents", m.view.living(), "probe_interval", profile.ProbeInterval)
	}
}

// pump applies serf's events to the view until done or stop is closed. It skips failures for which doubt returns true.
func (m *Mesh) pump(done, stop <-chan struct{}, events <-chan serf.Event, doubt func(id string) bool) {
	var window <-chan time.Time // not nil: subscribers are notified when it ends
	for {
		select {
		case e := <-events:
			me, ok := e.(serf.MemberEvent)
			if !ok {
				continue // Coopr uses no user events or queries
			}
			urgent := false
			for _, sm := range me.Members {
				if me.Type != serf.EventMemberFailed || !doubt(sm.Name) {
					urgent = m.apply(me.Type, sm) || urgent
				}
			}
			if urgent {
				m.view.notify()
				window = nil
			} else if window == nil {
				window = time.After(coalesce)
			}
		case <-window:
			window = nil
			m.view.notify()
		case <-done:
			return
		case <-stop:
			return
		}
	}
}

// coalesce is how long arrivals are gathered before subscribers are notified. They are notified of failures at once.
const coalesce = 20 * time.Millisecond

// addrOf returns the gossip address of a member.
func addrOf(x serf.Member) string {
	return net.JoinHostPort(x.Addr.String(), strconv.Itoa(int(x.Port)))
}

// apply applies one member event to the view. It reports whether subscribers should be notified at once.
func (m *Mesh) apply(event serf.EventType, sm serf.Member) (urgent bool) {
	if event == serf.EventMemberReap {
		m.log.Info("a failed agent was removed from the view", "agent", sm.Name, "name", sm.Tags[tagName])
		m.view.forget(sm.Name)
		return false
	}
	self, epoch := decodeTags(sm.Tags)
	member := Member{
		ID: sm.Name, Self: self, Epoch: epoch, Addr: addrOf(sm),
		Status: statusOf(sm.Status, self),
	}
	before, after := m.view.gossiped(member)
	if before.Status == after.Status && before.Addr == after.Addr {
		return false
	}
	attrs := []any{"agent", member.ID, "name", member.Name, "addr", member.Addr}
	switch {
	case member.ID == m.cfg.ID:
	case member.Status == StatusFailed:
		m.log.Warn("an agent no longer answers", attrs...)
	case member.Status == StatusLeft:
		m.log.Info("an agent left", attrs...)
	case before.Status == StatusNone || before.Status == StatusAlive:
		m.log.Info("an agent has joined", attrs...)
	default:
		m.log.Info("an agent is back", attrs...)
	}
	signal(m.remember)
	signal(m.resized)
	return member.Status == StatusFailed || member.Status == StatusLeft
}

// statusOf returns an agent's status. Whether the agent is leaving is taken from its
// own tags: serf orders goodbyes by a clock that restarts with the agent, so serf's
// status may be from an earlier life, and an agent that came back would be leaving
// for ever.
func statusOf(s serf.MemberStatus, self Self) Status {
	switch s {
	case serf.StatusAlive, serf.StatusLeaving:
		if self.Leaving {
			return StatusLeaving
		}
		return StatusAlive
	case serf.StatusFailed:
		return StatusFailed
	case serf.StatusLeft:
		return StatusLeft
	default:
	}
	return StatusNone
}

// signal notifies a loop. Signals that the loop has not received yet are merged into one.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// aliveWatch receives every message that an agent is alive, and accepts all. It notices when another agent has an old
// address of this one: such an agent ignores the new address until it has found the old one dead, so the new address has
// to be announced again.
type aliveWatch struct{ m *Mesh }

// NotifyAlive implements memberlist.AliveDelegate.
func (w aliveWatch) NotifyAlive(n *memberlist.Node) error {
	if n.Name == w.m.cfg.ID {
		if ip, ok := netip.AddrFromSlice(n.Addr); ok && netip.AddrPortFrom(ip.Unmap(), n.Port) != w.m.addr {
			signal(w.m.moved)
		}
	}
	return nil
}
