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

// generation is one instance of serf. memberlist takes its intervals once and for all, so an agent whose mesh outgrew
// them ends one generation and begins the next: on the same port, under the same name, with its view kept. To the
// others that is an agent that answers late for a moment.
type generation struct {
	serf    *serf.Serf
	profile Profile
	events  chan serf.Event
	born    time.Time
	newborn bool // of an agent that nobody can know yet
	lease   *lease
	entered chan struct{} // closed when it is in the mesh that the one before was in
	done    chan struct{} // closed when it is shut down
}

// begin starts a generation.
func (m *Mesh) begin(profile Profile) (*generation, error) {
	g := &generation{profile: profile, newborn: m.newborn && m.now() == nil, events: make(chan serf.Event, 1024), born: time.Now(), entered: make(chan struct{}), done: make(chan struct{})}
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
	l.open()
	g.serf = s
	m.mu.Lock()
	m.gen = g
	m.mu.Unlock()
	return g, nil
}

// finish shuts a generation down. serf may be waiting to hand over an event while it holds its locks, so events are
// taken until it is down.
func (m *Mesh) finish(g *generation) error {
	var err error
	go func() {
		defer close(g.done)
		m.mu.Lock()
		leaving := m.leaving
		m.mu.Unlock()
		if leaving != nil {
			<-leaving // serf panics when it is shut down in the middle of a goodbye
		}
		err = g.serf.Shutdown()
	}()
	m.pump(g.done, nil, g.events, func(string) bool { return false })
	if err != nil {
		return fmt.Errorf("mesh: %w", err)
	}
	return nil
}

// hush drops the news that entering a mesh made this generation want to spread. memberlist takes everything that a first
// exchange brings for news: every newcomer to 500 agents would send 500 of them to the others, who all know, for a minute,
// and what is news indeed (a suspicion, its refutation) would wait behind them. memberlist has no call for that, but a
// ping takes as much along as its packet holds: pings go to nobody until one has nothing to take. What was about this
// agent itself is gone, too, so it has to announce itself afterwards.
func (g *generation) hush() {
	for range g.serf.NumNodes() * hushPings {
		if g.serf.Memberlist().Ping(nobody.Addr, nobodyAddr{}); g.lease.hushed.Load() < barePing {
			return
		}
	}
}

const (
	// hushPings bounds the pings of a hush: every agent's news are sent a dozen times at most.
	hushPings = 12
	// barePing is more than a ping takes that has nothing along, and less than with one agent's news.
	barePing = 256
)

// nobody is an address of no agent: packets to it end at the lease.
var nobody = memberlist.Address{Addr: "nobody:0"}

type nobodyAddr struct{}

func (nobodyAddr) Network() string { return "" }
func (nobodyAddr) String() string  { return nobody.Addr }

// now is the generation of the moment.
func (m *Mesh) now() *generation {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.gen
}

const (
	young       = 10 * time.Second // an agent that just came changes its pace at once
	retuneAfter = 20 * time.Second // others spread it over so much time
	settled     = 5 * time.Second  // after a change of generation, whom serf does not know by then it does not know
)

// misfit says whether the mesh has outgrown a generation's profile.
func (m *Mesh) misfit(g *generation) bool {
	m.mu.Lock()
	leaving := m.leaving != nil
	m.mu.Unlock()
	return !leaving && m.cfg.Profile == (Profile{}) && ProfileFor(m.view.living(), g.profile) != g.profile
}

// changeOver lets Run end a generation, and waits until it has.
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

// reenter brings a new generation into the mesh by way of those the last one knew. Whom the new one does not hear of
// there has died in between, or has been removed: they are asked themselves, and those that do not answer are failed.
// Whoever else gossip does not know in the end is dropped from the view: the list of record has those, or the join loop
// finds them.
func (m *Mesh) reenter(ctx context.Context, g *generation) {
	m.meetAgain(ctx, g)
	close(g.entered)
	select {
	case <-time.After(settled):
	case <-ctx.Done():
		return
	}
	if m.now() == g {
		m.view.keep(g.known())
	}
}

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
			_ = m.contact(addr) // the two have not heard of each other by way of the first
		}
	}
}

// missed notes that an agent of which a generation has not heard is gone.
func (m *Mesh) missed(g *generation, member Member) {
	if m.now() != g { // the next one asks for itself
		return
	}
	member.Status = StatusFailed
	m.view.gossiped(member)
	if sm, ok := g.member(member.ID); ok { // heard of in the same moment
		m.apply(serf.EventMemberUpdate, sm)
		return
	}
	m.log.Warn("an agent does not answer any more", "agent", member.ID, "name", member.Name, "addr", member.Addr)
	m.view.notify()
}

// known are the agents that a generation knows, dead ones too.
func (g *generation) known() map[string]bool {
	known := map[string]bool{}
	for _, sm := range g.serf.Members() {
		known[sm.Name] = true
	}
	return known
}

// gossiping are those that gossip has alive, in random order.
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

// lease is a generation's hold on the transport: shutting it down ends the generation's dials and conns, and leaves the
// port open for the next. Nothing comes in before it is open: serf listens before it is whole, and a query about keys
// that comes in between is the end of the process (serf v0.11.0 answers it by way of a memberlist that it has not yet).
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

// PacketCh gives the packets that come in, once the lease is open.
func (l *lease) PacketCh() <-chan *memberlist.Packet {
	<-l.ready.Done()
	return l.NodeAwareTransport.PacketCh()
}

// StreamCh gives the conns that come in, once the lease is open.
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

// Shutdown ends the lease. A dial under way ends by itself, at the latest with the transport.
func (l *lease) Shutdown() error {
	l.end()
	return nil
}

// tie gives a conn that closes when ctx ends.
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
