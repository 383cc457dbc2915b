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

// Mesh is this agent's part in the gossip and its view of all agents. Run owns serf (one generation of it after another)
// and feeds the view; every other
// method may be called from any goroutine, before Run too (they wait for it where they need the network).
type Mesh struct {
	cfg       Config
	log       *slog.Logger
	transport memberlist.NodeAwareTransport
	keyring   *memberlist.Keyring
	advertise netip.AddrPort // as configured; invalid: the transport's own
	addr      netip.AddrPort // what others see

	started chan struct{} // closed when gossip is up
	stopped chan struct{} // closed when Run returns
	looked  chan struct{} // closed when everybody there was to join has been tried

	announce chan struct{} // tags changed
	rejoin   chan struct{} // there is somebody new to try
	moved    chan struct{} // somebody believes we are at another address
	remember chan struct{} // the peers file is out of date
	resized  chan struct{} // agents came or went
	retune   chan struct{} // the pace no longer fits the mesh

	view *view

	turn sync.Mutex // held from the end of one generation to the beginning of the next

	mu      sync.Mutex
	gen     *generation
	self    Self
	epoch   uint64
	seeds   []string // Config.Join, or what SetJoin gave later
	peers   []peer   // from the peers file
	newborn bool     // there was no peers file
	leaving chan struct{}
}

// New checks the configuration and binds the gossip port. Nothing is said on it until Run.
func New(cfg Config) (*Mesh, error) {
	cfg.setDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	m := &Mesh{
		cfg: cfg, log: cfg.Logger, newborn: true, transport: cfg.Transport, self: cfg.Self, seeds: slices.Clone(cfg.Join),
		started: make(chan struct{}), stopped: make(chan struct{}), looked: make(chan struct{}),
		announce: make(chan struct{}, 1), rejoin: make(chan struct{}, 1), moved: make(chan struct{}, 1), remember: make(chan struct{}, 1),
		resized: make(chan struct{}, 1), retune: make(chan struct{}),
	}
	var err error
	if m.keyring, err = loadKeyring(cfg.KeyringFile, cfg.GossipKey); err != nil {
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
			return nil, fmt.Errorf("mesh: gossip.addr %s is every address of this machine: set gossip.advertise to the one others use", bind)
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

// Addr is the gossip address others reach this agent at.
func (m *Mesh) Addr() string { return m.addr.String() }

// Looked is closed once the agent is in the mesh or has tried everybody it knew of: whoever would begin something alone
// knows by then that there was nobody.
func (m *Mesh) Looked() <-chan struct{} { return m.looked }

// Linger is how long memberlist's last probe may outlive Run: it has no way to be interrupted. Harmless, but a test in a
// synctest bubble, where time stands still once its function has returned, sleeps for so long at its end.
const Linger = 10 * time.Second

// Run takes part in the gossip until ctx ends, then stops without a goodbye (Leave says it).
func (m *Mesh) Run(ctx context.Context) error {
	defer close(m.stopped)
	profile := m.cfg.Profile
	if profile == (Profile{}) {
		profile = ProfileFor(max(m.view.size(), len(m.peers)+1, m.cfg.Agents), Profile{})
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
			helpers.Go(func() { m.joinLoop(inner) })
			helpers.Go(func() { m.rememberLoop(inner) })
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
		if left { // in the same moment: who has said goodbye does not come again
			m.turn.Unlock()
			<-ctx.Done()
			return m.transport.Shutdown()
		}
		profile = ProfileFor(m.view.living(), profile)
		m.log.Info("gossip changes its pace", "agents", m.view.living(), "probe_interval", profile.ProbeInterval)
	}
}

// pump carries serf's events into the view until done or stop, all but the deaths that doubt takes on itself.
func (m *Mesh) pump(done, stop <-chan struct{}, events <-chan serf.Event, doubt func(id string) bool) {
	var window <-chan time.Time // open: subscribers hear of what is new when it ends
	for {
		select {
		case e := <-events:
			me, ok := e.(serf.MemberEvent)
			if !ok {
				continue // no user events or queries are ours
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

// coalesce is how long news of arrivals are collected before subscribers are woken. Deaths are told at once.
const coalesce = 20 * time.Millisecond

// apply takes one member event into the view. It says whether subscribers should know at once.
func (m *Mesh) apply(event serf.EventType, sm serf.Member) (urgent bool) {
	if event == serf.EventMemberReap {
		m.log.Info("forgot an agent", "agent", sm.Name, "name", sm.Tags[tagName])
		m.view.forget(sm.Name)
		return false
	}
	self, epoch := decodeTags(sm.Tags)
	member := Member{
		ID: sm.Name, Self: self, Epoch: epoch, Addr: net.JoinHostPort(sm.Addr.String(), strconv.Itoa(int(sm.Port))),
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
		m.log.Warn("an agent does not answer any more", attrs...)
	case member.Status == StatusLeft:
		m.log.Info("an agent left", attrs...)
	case before.Status == StatusNone || before.Status == StatusAlive:
		m.log.Info("an agent is here", attrs...)
	default:
		m.log.Info("an agent is back", attrs...)
	}
	signal(m.remember)
	signal(m.resized)
	return member.Status == StatusFailed || member.Status == StatusLeft
}

// statusOf takes an agent's own word for it that it leaves. serf's may be news
// of the agent's last life: it orders goodbyes by a clock that begins anew with
// the agent, and one that came back would be leaving for ever.
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
	}
	return StatusNone
}

// signal wakes a loop; a second signal before it looked is the same.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// aliveWatch hears every claim that an agent is alive. It lets all pass, and notices when somebody has us at an address
// where we no longer are: they refuse our new one until they have found the old one dead, so we say it again then.
type aliveWatch struct{ m *Mesh }

func (w aliveWatch) NotifyAlive(n *memberlist.Node) error {
	if n.Name == w.m.cfg.ID {
		if ip, ok := netip.AddrFromSlice(n.Addr); ok && netip.AddrPortFrom(ip.Unmap(), n.Port) != w.m.addr {
			signal(w.m.moved)
		}
	}
	return nil
}
