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
	"time"
)

const (
	joinEnough   = 3 // answers after which an agent has joined well: two halves of a mesh may answer
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
	_, err := m.serf.Join([]string{target.String()}, true)
	if err != nil {
		return fmt.Errorf("join %s: %w", target, err)
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
func (m *Mesh) joinLoop(ctx context.Context, profile Profile) {
	pause := joinFirst
	told := false
	for ctx.Err() == nil {
		if m.others() > 0 {
			pause, told = joinFirst, false
			m.heal(ctx, profile)
			continue
		}
		targets := m.candidates(ctx)
		if len(targets) == 0 {
			select {
			case <-m.rejoin:
			case <-time.After(healInterval): // somebody may have joined us
			case <-ctx.Done():
			}
			continue
		}
		joined, err := m.try(ctx, targets, joinEnough)
		if joined > 0 {
			m.log.Info("joined the mesh", "contacted", joined)
			continue
		}
		if !told && ctx.Err() == nil {
			m.log.Warn("nobody to join yet, trying on", "addresses", len(targets), "error", err)
			told = true
		}
		select {
		case <-time.After(jitter(pause)):
		case <-m.rejoin:
		case <-ctx.Done():
		}
		pause = min(pause*3/2, joinSlowest)
	}
}

// jitter spreads a pause from half to one and a half times its length.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d) }

// others counts the agents that gossip has alive, this one apart.
func (m *Mesh) others() int {
	n := 0
	for _, member := range m.Members() {
		if member.ID != m.cfg.ID && member.Gossip == StatusAlive {
			n++
		}
	}
	return n
}

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

// try contacts targets until enough answered. It runs on the join loop: the transport ends its dials at shutdown.
func (m *Mesh) try(ctx context.Context, targets []netip.AddrPort, enough int) (joined int, err error) {
	var faults []error
	for _, target := range targets {
		if ctx.Err() != nil || joined == enough {
			break
		}
		if err := m.contact(target); err != nil {
			faults = append(faults, err)
			continue
		}
		joined++
	}
	return joined, errors.Join(faults...)
}

// heal waits for one of the things that call for another contact, and makes it.
func (m *Mesh) heal(ctx context.Context, profile Profile) {
	// Together the agents make about the same number of contacts however many they are.
	pause := healInterval * time.Duration(1+m.view.size()/50)
	select {
	case <-ctx.Done():
	case <-m.moved:
		// They have to find our old address dead first: one suspicion, more or less.
		select {
		case <-time.After(jitter(2 * profile.ProbeInterval)):
		case <-ctx.Done():
			return
		}
		var known []netip.AddrPort
		for _, member := range m.Members() {
			if addr, err := netip.ParseAddrPort(member.Addr); err == nil && member.ID != m.cfg.ID && member.Gossip == StatusAlive {
				known = append(known, addr)
			}
		}
		rand.Shuffle(len(known), func(i, j int) { known[i], known[j] = known[j], known[i] })
		if _, err := m.try(ctx, known, joinEnough); err != nil {
			m.log.Debug("announcing this agent's new address", "error", err)
		}
	case <-time.After(jitter(pause)):
		if lost := m.lost(ctx); len(lost) > 0 {
			if _, err := m.try(ctx, lost[:1], 1); err != nil {
				m.log.Debug("looking for an agent that gossip has lost", "error", err)
			}
		}
	}
}

// lost are addresses where an agent should be that gossip does not have alive: recorded agents, and join addresses that
// belong to nobody. Failed agents that gossip knows are looked for by serf.
func (m *Mesh) lost(ctx context.Context) []netip.AddrPort {
	alive := map[string]bool{}
	var out []netip.AddrPort
	for _, member := range m.Members() {
		switch {
		case member.ID == m.cfg.ID || member.Gossip == StatusAlive:
			alive[member.Addr] = true
		case member.Gossip == StatusNone && member.Record == StatusAlive:
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
