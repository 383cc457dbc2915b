package mesh

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"
)

const (
	joinEnough   = 3 // answers after which an agent has joined well
	joinFirst    = 200 * time.Millisecond
	joinSlowest  = 10 * time.Second
	healInterval = 10 * time.Second
)

// Join asks agents at these addresses ("host[:port]") to take this agent in, and gives the number that did. The error
// is nil if one did. It tries once; Config.Join is what is tried until it works.
func (m *Mesh) Join(ctx context.Context, addrs []string) (int, error) {
	if err := m.ready(ctx); err != nil {
		return 0, err
	}
	joined := 0
	var faults []error
	for _, addr := range addrs {
		targets, err := m.resolve(ctx, addr)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		for _, target := range targets {
			if target == m.addr {
				continue
			}
			err := m.behind(ctx, func() error { return m.contact(target) })
			if err == nil {
				joined++
				continue
			}
			faults = append(faults, err)
			if ctx.Err() != nil || errors.Is(err, ErrStopped) {
				return joined, errors.Join(faults...)
			}
		}
	}
	if joined > 0 {
		return joined, nil
	}
	return 0, errors.Join(faults...)
}

// SetJoin replaces the configured join addresses (a reload).
func (m *Mesh) SetJoin(addrs []string) {
	m.mu.Lock()
	m.seeds = slices.Clone(addrs)
	m.mu.Unlock()
	signal(m.rejoin)
}

// contact exchanges everything with one agent.
func (m *Mesh) contact(target netip.AddrPort) error {
	g := m.now()
	fresh := g.serf.NumNodes() == 1
	if _, err := g.serf.Join([]string{target.String()}, true); err != nil {
		return fmt.Errorf("join %s: %w", target, err)
	}
	if fresh && g.profile == calm && g.serf.NumNodes() > quickUpTo {
		known := g.serf.Memberlist().GetHealthScore() > 0 // the mesh had old news of this agent, which it had to refute
		g.hush()
		if known || !g.newborn {
			signal(m.announce)
		}
	}
	return nil
}

// resolve turns "host[:port]" into addresses. serf would do it too, by asking DNS questions of its own.
func (m *Mesh) resolve(ctx context.Context, addr string) ([]netip.AddrPort, error) {
	if ip, err := netip.ParseAddr(addr); err == nil {
		return []netip.AddrPort{netip.AddrPortFrom(ip, DefaultPort)}, nil
	}
	host, portText, err := net.SplitHostPort(addr)
	if err != nil {
		host, portText = addr, strconv.Itoa(DefaultPort)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("join %s: the port is not a number", addr)
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.AddrPort{netip.AddrPortFrom(ip, uint16(port))}, nil
	}
	ips, err := m.cfg.Lookup(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("join %s: %w", addr, err)
	}
	out := make([]netip.AddrPort, len(ips))
	for i, ip := range ips {
		out[i] = netip.AddrPortFrom(ip.Unmap(), uint16(port))
	}
	return out, nil
}

// joinLoop keeps this agent in the mesh: while it is alone it tries everybody it ever heard of, and later it looks for
// agents that gossip has lost sight of.
func (m *Mesh) joinLoop(ctx context.Context) {
	pause, told := joinFirst, false
	care := care{m: m}
	looked := sync.OnceFunc(func() { close(m.looked) })
	for ctx.Err() == nil {
		if m.others() > 0 {
			looked()
			pause, told = joinFirst, false
			care.once(ctx)
			continue
		}
		targets := m.candidates(ctx)
		if len(targets) == 0 {
			looked()
			select {
			case <-m.rejoin:
			case <-m.resized: // somebody may have joined us
			case <-ctx.Done():
			}
			continue
		}
		joined, err := m.try(ctx, targets, joinEnough)
		if joined > 0 {
			m.log.Info("joined the mesh", "contacted", joined)
			m.settle(ctx)
			continue
		}
		looked()
		if !told && ctx.Err() == nil {
			m.log.Warn("nobody to join yet, trying on", "addresses", len(targets), "error", err)
			told = true
		}
		select {
		case <-time.After(jitter(pause)):
		case <-m.rejoin:
		case <-m.resized:
		case <-ctx.Done():
		}
		pause = min(pause*3/2, joinSlowest)
	}
}

// settle waits until the view shows what a contact brought: it comes through serf's events.
func (m *Mesh) settle(ctx context.Context) {
	for range 100 {
		if m.others() > 0 {
			return
		}
		select {
		case <-m.resized:
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return
		}
	}
}

// jitter spreads a pause from half to one and a half times its length.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d) }

// others counts the agents that gossip has alive, this one apart.
func (m *Mesh) others() int { return m.view.hears() - 1 }

// candidates are all the addresses that may lead into the mesh, in random order, without our own.
func (m *Mesh) candidates(ctx context.Context) []netip.AddrPort {
	m.mu.Lock()
	addrs := slices.Clone(m.seeds)
	m.mu.Unlock()
	for _, p := range m.peers {
		addrs = append(addrs, p.Addr)
	}
	for _, member := range m.Members() {
		if member.ID != m.cfg.ID && member.Status != StatusLeft && member.Addr != "" {
			addrs = append(addrs, member.Addr)
		}
	}
	var out []netip.AddrPort
	for _, addr := range addrs {
		targets, err := m.resolve(ctx, addr)
		if err != nil {
			m.log.Debug("cannot resolve an address to join", "addr", addr, "error", err)
			continue
		}
		for _, t := range targets {
			if t != m.addr && !slices.Contains(out, t) {
				out = append(out, t)
			}
		}
	}
	rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// try contacts targets until enough answered. It leaves out those that an answer has shown to be in the same mesh: with
// many members every contact is dear, and only the halves of a mesh that have not met need more than one. It runs on
// the join loop: the transport ends its dials at shutdown.
func (m *Mesh) try(ctx context.Context, targets []netip.AddrPort, enough int) (joined int, err error) {
	var faults []error
	for _, target := range targets {
		if ctx.Err() != nil || joined == enough {
			break
		}
		if joined > 0 && m.known(target) {
			continue
		}
		if err := m.contact(target); err != nil {
			faults = append(faults, err)
			continue
		}
		joined++
	}
	return joined, errors.Join(faults...)
}

// known says whether gossip has somebody alive at an address.
func (m *Mesh) known(target netip.AddrPort) bool {
	return slices.ContainsFunc(m.Members(), func(member Member) bool {
		return member.Gossip == StatusAlive && member.Addr == target.String()
	})
}

// care is what an agent does for the mesh while it is in it. It is the join loop's own.
type care struct {
	m        *Mesh
	healAt   time.Time // next look for lost agents
	retuneAt time.Time // change of pace; zero: it fits
	movedAt  time.Time // next announcement of our new address; zero: none is due
	patience time.Duration
}

// An agent that moved is not believed until its old address is known dead. It is not told when that is so, so it says
// again where it is, with doubling pauses, until everybody must have noticed.
const announceLongest = 30 * time.Second

// once waits for one thing that calls for doing something, and does it.
func (c *care) once(ctx context.Context) {
	m, now := c.m, time.Now()
	g := m.now()
	switch {
	case !m.misfit(g):
		c.retuneAt = time.Time{}
	case c.retuneAt.IsZero() && now.Sub(g.born) > young:
		c.retuneAt = now.Add(rand.N(retuneAfter))
	case c.retuneAt.IsZero():
		c.retuneAt = now
	}
	if c.healAt.IsZero() {
		// Together the agents make about the same number of contacts however many they are.
		c.healAt = now.Add(jitter(healInterval * time.Duration(1+m.view.size()/50)))
	}
	next := c.healAt
	for _, at := range []time.Time{c.retuneAt, c.movedAt} {
		if !at.IsZero() && at.Before(next) {
			next = at
		}
	}
	timer := time.NewTimer(time.Until(next))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-m.resized:
	case <-m.moved:
		c.patience = g.profile.ProbeInterval
		c.movedAt = now.Add(jitter(c.patience))
	case <-timer.C:
		switch next {
		case c.retuneAt:
			c.retuneAt = time.Time{}
			m.changeOver(ctx, g)
			return
		case c.movedAt:
			c.movedAt = time.Time{}
			if c.patience *= 2; c.patience < announceLongest {
				c.movedAt = time.Now().Add(jitter(c.patience))
			}
			m.announceMove(ctx)
			return
		}
		c.healAt = time.Time{}
		if lost := m.lost(ctx); len(lost) > 0 {
			if _, err := m.try(ctx, lost[:1], 1); err != nil {
				m.log.Debug("looking for an agent that gossip has lost", "error", err)
			}
		}
	}
}

// announceMove tells one agent again where this one is now; it tells the others if it believes it.
func (m *Mesh) announceMove(ctx context.Context) {
	for _, member := range m.gossiping() {
		target, err := netip.ParseAddrPort(member.Addr)
		if err == nil {
			err = m.contact(target)
		}
		if err == nil || ctx.Err() != nil {
			return
		}
		m.log.Debug("announcing this agent's new address", "error", err)
	}
}

// lost are addresses where an agent may be that gossip does not have alive, and join addresses that belong to nobody.
// serf looks for those that failed, too, but not for those that failed in an earlier generation or never were in it.
func (m *Mesh) lost(ctx context.Context) []netip.AddrPort {
	alive := map[string]bool{}
	var out []netip.AddrPort
	for _, member := range m.Members() {
		switch {
		case member.ID == m.cfg.ID || member.Gossip == StatusAlive:
			alive[member.Addr] = true
		case member.Gossip != StatusLeft && member.Record != StatusLeft && member.Record != StatusFailed:
			if addr, err := netip.ParseAddrPort(member.Addr); err == nil {
				out = append(out, addr)
			}
		}
	}
	m.mu.Lock()
	seeds := slices.Clone(m.seeds)
	m.mu.Unlock()
	for _, seed := range seeds {
		targets, err := m.resolve(ctx, seed)
		if err != nil {
			continue
		}
		for _, t := range targets {
			if t != m.addr && !alive[t.String()] {
				out = append(out, t)
			}
		}
	}
	rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}
