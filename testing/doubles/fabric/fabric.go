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

// Quality is how good a link is. The zero value is perfect: no delay, no loss.
type Quality struct {
	// Delay and Jitter: a datagram or a stream's bytes arrive after Delay plus a random part of Jitter.
	Delay, Jitter time.Duration
	// Loss is the share of datagrams lost, 0 to 1. A stream's bytes are not lost but stalled by Stall with the same
	// probability, as by a retransmission, and all bytes behind them too.
	Loss float64
	// Stall is the time a retransmission takes. Default 200 ms.
	Stall time.Duration
}

// Cut says how a partition shows itself.
type Cut int

const (
	// Blackhole swallows: writes succeed, nothing arrives, dials hang until their context ends.
	Blackhole Cut = iota
	// Reset is Blackhole after every conn across the cut was reset, so that both ends know at once.
	Reset
)

// New makes a fabric. The same seed gives the same delays and losses for the same sequence of sends.
func New(seed uint64) *Fabric {
	return &Fabric{
		rng:   rand.New(rand.NewPCG(seed, 0x636f6f7072)),
		hosts: map[netip.Addr]*Host{},
		cuts:  map[pair]struct{}{},
		links: map[pair]Quality{},
		conns: map[*half]struct{}{},
	}
}

// Host gives the host with this address, switched on; it is made at the first call. It panics on an address that is
// not an IP: that is the test's mistake.
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

// Partition cuts every link between a host of one group and a host of another, both directions. Hosts in no group keep
// all their links; with a single group it is cut off from all other hosts. Partitions add up until Heal.
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

// CutLink cuts one direction only: from can no longer be heard by to.
func (f *Fabric) CutLink(from, to string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cuts[pair{netip.MustParseAddr(from), netip.MustParseAddr(to)}] = struct{}{}
}

// Heal removes every partition and cut. Streams that nobody gave up on deliver what was sent meanwhile.
func (f *Fabric) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.cuts)
	for h := range f.conns {
		h.wake()
	}
	for _, h := range f.hosts {
		h.wakeDials()
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

// reachable says whether bytes can pass from one host to another now. f.mu is held.
func (f *Fabric) reachable(from, to netip.Addr) bool {
	a, b := f.hosts[from], f.hosts[to]
	return a != nil && b != nil && !a.dark && !b.dark && !f.isCut(from, to)
}

// draw gives the fate of one datagram or one write on a link. f.mu is held.
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
