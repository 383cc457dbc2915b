package mesh

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/hashicorp/serf/serf"
)

// generation is one instance of serf. memberlist cannot change its intervals while it runs, so an agent whose mesh has
// outgrown them ends one generation and begins the next, on the same port, under the same name and with the same view.
// To other agents, it answers late for a moment.
type generation struct {
	serf    *serf.Serf
	profile Profile
	events  chan serf.Event
	born    time.Time
	newborn bool // no other agent can know this one yet
	lease   *lease
	entered chan struct{} // closed when it has joined the mesh of the previous generation
	done    chan struct{} // closed when it is shut down
}

// begin starts a generation.
func (m *Mesh) begin(profile Profile) (*generation, error) {
	g := &generation{profile: profile, newborn: m.newborn && m.now() == nil, events: make(chan serf.Event, 1024), born: time.Now(),
		entered: make(chan struct{}), done: make(chan struct{})}
	m.mu.Lock()
	l := newLease(m.transport)
	g.lease = l
	conf := m.serfConfig(profile, l, g.events)
	m.mu.Unlock()
	s, err := serf.Create(conf)
	if err != nil {
		l.end()
		return nil, fmt.Errorf("mesh: %w", err)
	}
	// serf lets whoever has a key of gossip change the keys of all agents. Without a ring it refuses that. Nothing has arrived yet that
	// could read this field, and serf uses it for the interval besides.
	conf.MemberlistConfig = &memberlist.Config{GossipInterval: conf.MemberlistConfig.GossipInterval}
	l.open()
	g.serf = s
	m.mu.Lock()
	m.gen = g
	m.mu.Unlock()
	return g, nil
}

// finish shuts a generation down. serf may block on an event while it holds its locks, so finish receives events until
// serf is down.
func (m *Mesh) finish(g *generation) error {
	var err error
	go func() {
		defer close(g.done)
		m.mu.Lock()
		leaving := m.leaving
		m.mu.Unlock()
		if leaving != nil {
			<-leaving // serf panics if it is shut down while it leaves
		}
		err = g.serf.Shutdown()
	}()
	m.pump(g.done, nil, g.events, func(string) bool { return false })
	if err != nil {
		return fmt.Errorf("mesh: %w", err)
	}
	return nil
}

// hush drops the news that this generation has queued on joining. memberlist treats everything in the first exchange as
// news: each agent that joins 500 others would send 500 entries that all of them know, for a minute, and real news (a
// suspicion, its refutation) would wait behind them. memberlist cannot clear its queue, but every ping carries as much of
// it as fits: hush sends pings to an address of no agent until one carries nothing. News of this agent itself is dropped
// too, so it has to be announced again afterwards.
func (g *generation) hush() {
	for range g.serf.NumNodes() * hushPings {
		if g.serf.Memberlist().Ping(nobody.Addr, nobodyAddr{}); g.lease.hushed.Load() < barePing {
			return
		}
	}
}

const (
	// hushPings bounds the pings of a hush, for each agent: its news is sent at most a dozen times.
	hushPings = 12
	// barePing is a size between that of a ping without news and that of one with the news of one agent.
	barePing = 256
)

// nobody is the address of no agent. The lease drops packets to it.
var nobody = memberlist.Address{Addr: "nobody:0"}

type nobodyAddr struct{}

func (nobodyAddr) Network() string { return "" }
func (nobodyAddr) String() string  { return nobody.Addr }

// now returns the current generation.
func (m *Mesh) now() *generation {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.gen
}

const (
	young       = 10 * time.Second // an agent younger than this changes its profile at once
	retuneAfter = 20 * time.Second // older agents change theirs at random within this time
	meetTime    = 5 * time.Second  // within which a new generation hears of every agent that gossip knows
)

// misfit reports whether a generation's profile no longer fits the size of the mesh.
func (m *Mesh) misfit(g *generation) bool {
	m.mu.Lock()
	leaving := m.leaving != nil
	m.mu.Unlock()
	return !leaving && m.cfg.Profile == (Profile{}) && ProfileFor(m.view.living(), g.profile) != g.profile
}

// changeOver makes Run end a generation, and waits until it has ended.
func (m *Mesh) changeOver(ctx context.Context, g *generation) {
	select {
	case m.retune <- struct{}{}:
	case <-ctx.Done():
		return
	}
	select {
	case <-g.done:
	case <-ctx.Done():
	}
}

// reenter joins the mesh with a new generation, through the agents that the previous one knew. An agent that the new
// generation does not hear of has died in the meantime or was removed: reenter probes it, and marks it as failed if it
// does not answer. Other agents that gossip does not know in the end are removed from the gossip part of the view; the
// registry has them, or the join loop finds them.
func (m *Mesh) reenter(ctx context.Context, g *generation) {
	m.meetAgain(ctx, g)
	close(g.entered)
	select {
	case <-time.After(meetTime):
	case <-ctx.Done():
		return
	}
	if m.now() == g {
		m.view.keep(g.known())
	}
}

// meetAgain contacts a live agent that the previous generation knew, and then probes those of which the new one has not
// heard.
func (m *Mesh) meetAgain(ctx context.Context, g *generation) {
	for _, member := range m.gossiping() {
		if ctx.Err() != nil || m.now() != g {
			return
		}
		if !m.Answers(ctx, member.ID) {
			m.missed(g, member)
			continue
		}
		if addr, err := netip.ParseAddrPort(member.Addr); err == nil && m.contact(addr) == nil {
			break
		}
	}
	for _, member := range m.Members() {
		if _, ok := g.member(member.ID); ok || !member.Gossip.Alive() || ctx.Err() != nil || m.now() != g {
			continue
		}
		if !m.Answers(ctx, member.ID) {
			m.missed(g, member)
		} else if addr, err := netip.ParseAddrPort(member.Addr); err == nil {
			_ = m.contact(addr) // the first contact did not know this agent
		}
	}
}

// missed marks an agent as failed if it did not answer and is unknown to the generation.
func (m *Mesh) missed(g *generation, member Member) {
	if m.now() != g { // the next generation probes by itself
		return
	}
	member.Status = StatusFailed
	m.view.gossiped(member)
	if sm, ok := g.member(member.ID); ok { // gossip has heard of it in the meantime
		m.apply(serf.EventMemberUpdate, sm)
		return
	}
	m.log.Warn("an agent no longer answers", "agent", member.ID, "name", member.Name, "addr", member.Addr)
	m.view.notify()
}

// known returns the agents that a generation knows, including dead ones.
func (g *generation) known() map[string]bool {
	known := map[string]bool{}
	for _, sm := range g.serf.Members() {
		known[sm.Name] = true
	}
	return known
}

// gossiping returns the other agents that are alive according to gossip, in random order.
func (m *Mesh) gossiping() []Member {
	var out []Member
	for _, member := range m.Members() {
		if member.ID != m.cfg.ID && member.Gossip == StatusAlive {
			out = append(out, member)
		}
	}
	rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// lease is a generation's use of the transport. Shutting it down closes the generation's connections and leaves the port
// open for the next one. It receives nothing before it is open: serf v0.11.0 listens before it is complete, and a query
// about keys that arrives in between makes it use a memberlist that it does not have yet, which ends the process.
type lease struct {
	memberlist.NodeAwareTransport
	life  context.Context
	end   context.CancelFunc
	ready context.Context
	open  context.CancelFunc

	hushed atomic.Int64 // size of the last packet to nobody
}

func newLease(t memberlist.NodeAwareTransport) *lease {
	l := &lease{NodeAwareTransport: t}
	l.life, l.end = context.WithCancel(context.Background())
	l.ready, l.open = context.WithCancel(l.life)
	return l
}

// PacketCh returns the packets that arrive. It blocks until the lease is open.
func (l *lease) PacketCh() <-chan *memberlist.Packet {
	<-l.ready.Done()
	return l.NodeAwareTransport.PacketCh()
}

// StreamCh returns the connections that arrive. It blocks until the lease is open.
func (l *lease) StreamCh() <-chan net.Conn {
	<-l.ready.Done()
	return l.NodeAwareTransport.StreamCh()
}

var (
	errLeaseOver = errors.New("gossip is shut down")
	errNobody    = errors.New("a packet to nobody")
)

func (l *lease) WriteTo(b []byte, addr string) (time.Time, error) {
	return l.WriteToAddress(b, memberlist.Address{Addr: addr})
}

func (l *lease) WriteToAddress(b []byte, addr memberlist.Address) (time.Time, error) {
	if addr.Addr == nobody.Addr {
		l.hushed.Store(int64(len(b)))
		return time.Time{}, errNobody
	}
	if l.life.Err() != nil {
		return time.Time{}, errLeaseOver
	}
	return l.NodeAwareTransport.WriteToAddress(b, addr)
}

func (l *lease) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return l.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

func (l *lease) DialAddressTimeout(addr memberlist.Address, timeout time.Duration) (net.Conn, error) {
	if l.life.Err() != nil {
		return nil, errLeaseOver
	}
	conn, err := l.NodeAwareTransport.DialAddressTimeout(addr, timeout)
	if err != nil {
		return nil, err
	}
	return tie(l.life, conn), nil
}

// Shutdown ends the lease. A dial in progress ends by itself, at the latest with the transport.
func (l *lease) Shutdown() error {
	l.end()
	return nil
}

// tie returns a connection that is closed when ctx ends.
func tie(ctx context.Context, conn net.Conn) net.Conn {
	return &tiedConn{Conn: conn, untie: context.AfterFunc(ctx, func() { conn.Close() })}
}

type tiedConn struct {
	net.Conn
	untie func() bool
}

func (c *tiedConn) Close() error {
	c.untie()
	return c.Conn.Close()
}
