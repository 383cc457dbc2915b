package fabric

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Fabric is the network: hosts, links and their faults. Its methods may be called from any goroutine.
type Fabric struct {
	mu      sync.Mutex
	rng     *rand.Rand
	hosts   map[netip.Addr]*Host
	cuts    map[pair]struct{}
	quality Quality
	links   map[pair]Quality
	conns   map[*half]struct{}
}

// pair is a directed link.
type pair struct{ from, to netip.Addr }

// Quality is the quality of a link. The zero value is a perfect link: no delay, no loss.
type Quality struct {
	// Delay and Jitter: a datagram or a stream's bytes arrive after Delay plus a random part of Jitter.
	Delay, Jitter time.Duration
	// Loss is the share of datagrams lost, 0 to 1. With the same probability a write of a stream is delayed by Stall, as
	// by a retransmission, and so are all bytes after it.
	Loss float64
	// Stall is the time a retransmission takes. Default 200 ms.
	Stall time.Duration
}

// Cut is the effect of a partition on its conns.
type Cut int

const (
	// Blackhole discards all traffic: writes succeed, no bytes arrive, dials hang until their context ends.
	Blackhole Cut = iota
	// Reset is Blackhole, but first every conn across the cut is reset, so that both ends learn of the cut at once.
	Reset
)

// New returns a fabric. With the same seed, the same sequence of sends has the same delays and losses.
func New(seed uint64) *Fabric {
	return &Fabric{
		rng:   rand.New(rand.NewPCG(seed, 0x636f6f7072)),
		hosts: map[netip.Addr]*Host{},
		cuts:  map[pair]struct{}{},
		links: map[pair]Quality{},
		conns: map[*half]struct{}{},
	}
}

// Host returns the host with this address. The first call for an address creates the host, switched on. Host panics on an
// address that is not an IP, which is a mistake of the test.
func (f *Fabric) Host(ip string) *Host {
	addr, err := netip.ParseAddr(ip)
	if err != nil {
		panic(fmt.Sprintf("fabric: %v", err))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if h, ok := f.hosts[addr]; ok {
		return h
	}
	h := &Host{f: f, ip: addr, up: true, listeners: map[uint16]*listener{}, sockets: map[uint16]*Gossip{}, nextPort: 32768}
	f.hosts[addr] = h
	return h
}

// SetQuality sets the quality of every link that SetLink has not set.
func (f *Fabric) SetQuality(q Quality) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.quality = q
}

// SetLink sets the quality of the link from one host to another, this direction only.
func (f *Fabric) SetLink(from, to string, q Quality) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.links[pair{netip.MustParseAddr(from), netip.MustParseAddr(to)}] = q
}

// Partition cuts every link between a host of one group and a host of another, in both directions. Hosts in no group keep
// all their links. A single group is cut off from all other hosts. Partitions add up until Heal.
func (f *Fabric) Partition(how Cut, groups ...[]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	sets := make([][]netip.Addr, 0, len(groups)+1)
	for _, g := range groups {
		set := make([]netip.Addr, len(g))
		for i, ip := range g {
			set[i] = netip.MustParseAddr(ip)
		}
		sets = append(sets, set)
	}
	if len(sets) == 1 {
		var rest []netip.Addr
		for ip := range f.hosts {
			if !slices.Contains(sets[0], ip) {
				rest = append(rest, ip)
			}
		}
		sets = append(sets, rest)
	}
	for i, set := range sets {
		for j, other := range sets {
			if i == j {
				continue
			}
			for _, a := range set {
				for _, b := range other {
					f.cuts[pair{a, b}] = struct{}{}
				}
			}
		}
	}
	if how == Reset {
		f.resetAcrossCuts()
	}
}

// CutLink cuts one direction of a link only: bytes from from no longer reach to.
func (f *Fabric) CutLink(from, to string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cuts[pair{netip.MustParseAddr(from), netip.MustParseAddr(to)}] = struct{}{}
}

// Heal removes every partition and cut. Streams that are still open deliver the bytes sent in the meantime.
func (f *Fabric) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.cuts)
	for h := range f.conns {
		h.notify()
	}
	for _, h := range f.hosts {
		h.retryDials()
	}
}

func (f *Fabric) resetAcrossCuts() {
	for h := range f.conns {
		if f.isCut(h.local.Addr(), h.remote.Addr()) || f.isCut(h.remote.Addr(), h.local.Addr()) {
			h.reset()
		}
	}
}

func (f *Fabric) isCut(from, to netip.Addr) bool {
	_, cut := f.cuts[pair{from, to}]
	return cut
}

// reachable reports whether bytes can pass from one host to another now. f.mu is held.
func (f *Fabric) reachable(from, to netip.Addr) bool {
	a, b := f.hosts[from], f.hosts[to]
	return a != nil && b != nil && !a.dark && !b.dark && !f.isCut(from, to)
}

// draw draws the delay, the loss and the stall of one datagram or one write on a link. f.mu is held.
func (f *Fabric) draw(from, to netip.Addr) (delay time.Duration, lost bool, stall time.Duration) {
	q, ok := f.links[pair{from, to}]
	if !ok {
		q = f.quality
	}
	delay = q.Delay
	if q.Jitter > 0 {
		delay += time.Duration(f.rng.Int64N(int64(q.Jitter)))
	}
	if q.Loss > 0 && f.rng.Float64() < q.Loss {
		lost, stall = true, q.Stall
		if stall == 0 {
			stall = 200 * time.Millisecond
		}
	}
	return delay, lost, stall
}
