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
	joinEnough   = 3                      // contacts that complete a join
	joinFirst    = 200 * time.Millisecond // pause after the first failed attempt
	joinSlowest  = 10 * time.Second       // longest pause between attempts
	healInterval = 10 * time.Second       // between searches for lost agents, in a small mesh
)

// Join contacts the agents at these addresses ("host[:port]") once and returns the number that answered. The error is nil
// if at least one did. The addresses of Config.Join, by contrast, are tried until one answers.
func (m *Mesh) Join(ctx context.Context, addrs []string) (int, error) {
	if err := m.ready(ctx); err != nil {
		return 0, err
	}
	joined := 0
	var faults []error
	for _, addr := range addrs {
		targets, err := m.cfg.resolve(ctx, addr)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		for _, target := range targets {
			if target == m.addr {
				continue
			}
			err := m.background(ctx, func() error { return m.contact(target) })
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

// SetJoin replaces the configured join addresses, on a reload.
func (m *Mesh) SetJoin(addrs []string) {
	m.mu.Lock()
	m.seeds = slices.Clone(addrs)
	m.mu.Unlock()
	signal(m.rejoin)
}

// contact exchanges the whole membership with one agent.
func (m *Mesh) contact(target netip.AddrPort) error {
	g := m.now()
	fresh := g.serf.NumNodes() == 1
	if _, err := g.serf.Join([]string{target.String()}, true); err != nil {
		var list interface{ WrappedErrors() []error } // it has an error for each address, and here there is one
		if errors.As(err, &list) && len(list.WrappedErrors()) == 1 {
			err = list.WrappedErrors()[0]
		}
		return fmt.Errorf("join %s: %w", target, err)
	}
	if fresh && g.profile == calm && g.serf.NumNodes() > quickUpTo {
		known := g.serf.Memberlist().GetHealthScore() > 0 // the mesh had an old entry of this agent, which it had to refute
		g.hush()
		if known || !g.newborn {
			signal(m.announce)
		}
	}
	return nil
}

// resolve returns the addresses of "host[:port]". serf can resolve names too, but it sends DNS queries of its own.
func (c *Config) resolve(ctx context.Context, addr string) ([]netip.AddrPort, error) {
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
	ips, err := c.Lookup(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("join %s: %w", addr, err)
	}
	out := make([]netip.AddrPort, len(ips))
	for i, ip := range ips {
		out[i] = netip.AddrPortFrom(ip.Unmap(), uint16(port))
	}
	return out, nil
}

// joiner keeps this agent in the mesh.
type joiner struct{ m *Mesh }

// run tries every known address while this agent is alone, and later searches for agents that gossip has lost, until
// ctx ends.
func (j joiner) run(ctx context.Context) {
	m := j.m
	pause, warned := joinFirst, false
	care := care{joiner: j}
	tried := sync.OnceFunc(func() { close(m.joinTried) })
	for ctx.Err() == nil {
		if j.others() > 0 {
			tried()
			pause, warned = joinFirst, false
			care.once(ctx)
			continue
		}
		targets := j.candidates(ctx)
		if len(targets) == 0 {
			tried()
			select {
			case <-m.rejoin:
			case <-m.resized: // another agent may have contacted this one
			case <-ctx.Done():
			}
			continue
		}
		joined, err := j.try(ctx, targets, joinEnough)
		if joined > 0 {
			m.log.Info("joined the mesh", "contacted", joined)
			j.awaitArrival(ctx)
			continue
		}
		tried()
		if !warned && ctx.Err() == nil {
			m.log.Warn("no agent can be joined yet; this agent keeps trying", "addresses", len(targets), "error", err)
			warned = true
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

// awaitArrival waits until the view has the agents that a contact brought: they arrive as serf's events.
func (j joiner) awaitArrival(ctx context.Context) {
	for range 100 {
		if j.others() > 0 {
			return
		}
		select {
		case <-j.m.resized:
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return
		}
	}
}

// jitter returns a random duration between half and one and a half times d.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d) }

// others returns the number of other agents that are alive according to gossip.
func (j joiner) others() int { return j.m.view.hears() - 1 }

// candidates returns all addresses that may lead into the mesh, in random order, without this agent's own.
func (j joiner) candidates(ctx context.Context) []netip.AddrPort {
	m := j.m
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
		targets, err := m.cfg.resolve(ctx, addr)
		if err != nil {
			m.log.Debug("an address to join cannot be resolved", "addr", addr, "error", err)
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

// try contacts targets until enough have answered. A contact exchanges the whole membership, which is expensive in a
// large mesh. After the first answer try therefore skips targets that gossip knows to be alive. The others may belong to
// a part of the mesh that has not met this one. It runs on the join loop; the transport ends its dials at shutdown.
func (j joiner) try(ctx context.Context, targets []netip.AddrPort, enough int) (joined int, err error) {
	var faults []error
	for _, target := range targets {
		if ctx.Err() != nil || joined == enough {
			break
		}
		if joined > 0 && j.known(target) {
			continue
		}
		if err := j.m.contact(target); err != nil {
			faults = append(faults, err)
			continue
		}
		joined++
	}
	return joined, errors.Join(faults...)
}

// known reports whether gossip has a live agent at an address.
func (j joiner) known(target netip.AddrPort) bool {
	return slices.ContainsFunc(j.m.Members(), func(member Member) bool {
		return member.Gossip == StatusAlive && member.Addr == target.String()
	})
}

// care has the periodic work of an agent that is in the mesh. Only the join loop uses it.
type care struct {
	joiner
	healAt   time.Time     // next search for lost agents
	retuneAt time.Time     // change of profile; zero: the profile fits
	movedAt  time.Time     // next announcement of this agent's new address; zero: none is due
	patience time.Duration // pause before the next announcement
}

// announceLongest is the longest pause between announcements of a new address. Other agents ignore the new address of an
// agent until they have found its old one dead. The agent does not learn when that happens, so it repeats the
// announcement with doubling pauses until every agent must have noticed.
const announceLongest = 30 * time.Second

// once waits until one piece of work is due, and does it.
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
		// All agents together make about the same number of contacts in a mesh of any size.
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
			c.announceMove(ctx)
			return
		}
		c.healAt = time.Time{}
		if lost := c.lost(ctx); len(lost) > 0 {
			if _, err := c.try(ctx, lost[:1], 1); err != nil {
				m.log.Debug("an agent that gossip has lost could not be contacted", "error", err)
			}
		}
	}
}

// announceMove announces this agent's address to one other agent, which passes it on once it accepts it.
func (j joiner) announceMove(ctx context.Context) {
	m := j.m
	for _, member := range m.gossiping() {
		target, err := netip.ParseAddrPort(member.Addr)
		if err == nil {
			err = m.contact(target)
		}
		if err == nil || ctx.Err() != nil {
			return
		}
		m.log.Debug("this agent's new address could not be announced", "error", err)
	}
}

// lost returns the addresses of agents that may be alive although gossip has them dead or does not know them, and join
// addresses that belong to no live agent. serf reconnects to failed agents too, but only to those that failed in the
// current generation.
func (j joiner) lost(ctx context.Context) []netip.AddrPort {
	m := j.m
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
		targets, err := m.cfg.resolve(ctx, seed)
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
