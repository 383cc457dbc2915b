package lab

import (
	"container/heap"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"
)

// Fault is the treatment of frames from one machine to another.
type Fault struct {
	Cut    bool          // nothing arrives
	Loss   float64       // share of lost frames, 0 to 1
	Delay  time.Duration // delay of every frame
	Jitter time.Duration // maximum of a random additional delay
}

// pair is a direction: from one address to another. The zero address means every address
// without a rule of its own.
type pair struct{ from, to netip.Addr }

// Switch carries Ethernet frames between ports, one per address, and applies the faults of Set.
// Every port has a goroutine that reads its device.
type Switch struct {
	mu      sync.RWMutex
	ports   map[netip.Addr]*port
	macs    map[[6]byte]*port
	faults  map[pair]Fault
	chance  *rand.Rand // under chanceMu
	readers sync.WaitGroup

	chanceMu sync.Mutex
	late     delayLine
}

// port is one end of a wire.
type port struct {
	addr   netip.Addr
	mac    [6]byte
	device io.ReadWriteCloser
	down   bool // drops all frames
}

// maxFrame is the longest frame: the machines' MTU with its header.
const (
	mtu      = 9000
	maxFrame = mtu + 18
)

// NewSwitch returns a switch without ports; seed makes its losses repeatable.
func NewSwitch(seed uint64) *Switch {
	s := &Switch{ports: map[netip.Addr]*port{}, macs: map[[6]byte]*port{}, faults: map[pair]Fault{}, chance: rand.New(rand.NewPCG(seed, 0))}
	s.late.start()
	return s
}

// Attach connects a device to an address: each Read returns a frame from it, each Write sends one
// to it. The port exists until the device's Read fails or the port is closed.
func (s *Switch) Attach(addr netip.Addr, device io.ReadWriteCloser) {
	p := &port{addr: addr, mac: macOf(addr), device: device}
	s.mu.Lock()
	s.ports[addr], s.macs[p.mac] = p, p
	s.mu.Unlock()
	s.readers.Go(func() {
		frame := make([]byte, maxFrame)
		for {
			n, err := device.Read(frame)
			if err != nil {
				break
			}
			s.forward(p, frame[:n])
		}
		s.mu.Lock()
		if s.ports[addr] == p {
			delete(s.ports, addr)
			delete(s.macs, p.mac)
		}
		s.mu.Unlock()
		device.Close()
	})
}

// Detach removes a port.
func (s *Switch) Detach(addr netip.Addr) {
	s.mu.RLock()
	p := s.ports[addr]
	s.mu.RUnlock()
	if p != nil {
		p.device.Close()
	}
}

// Close removes all ports and ends the switch's goroutines.
func (s *Switch) Close() {
	s.mu.RLock()
	for _, p := range s.ports {
		p.device.Close()
	}
	s.mu.RUnlock()
	s.readers.Wait()
	s.late.stop()
}

// Set sets the fault of frames from one address to another, in this direction only; the zero
// Fault heals. An invalid address means every address. If several rules match, a rule that
// names both ends takes precedence, then a rule that names the sender.
func (s *Switch) Set(from, to netip.Addr, f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f == (Fault{}) {
		delete(s.faults, pair{from, to})
		return
	}
	s.faults[pair{from, to}] = f
}

// Heal removes all faults.
func (s *Switch) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.faults)
}

// setDown disconnects a port, or connects it again.
func (s *Switch) setDown(addr netip.Addr, down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.ports[addr]; p != nil {
		p.down = down
	}
}

// fault returns the rule for a direction; the caller holds mu.
func (s *Switch) fault(from, to netip.Addr) Fault {
	if len(s.faults) == 0 {
		return Fault{}
	}
	for _, p := range [...]pair{{from, to}, {from: from}, {to: to}, {}} {
		if f, ok := s.faults[p]; ok {
			return f
		}
	}
	return Fault{}
}

// forward sends a frame to the port of its destination; an ARP request to the address that it asks
// for; any other multicast to all ports.
func (s *Switch) forward(from *port, frame []byte) {
	if len(frame) < 14 {
		return
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if from.down {
		return
	}
	if frame[0]&1 == 0 {
		if to := s.macs[[6]byte(frame)]; to != nil {
			s.send(from, to, frame)
		}
		return
	}
	if about, ok := arpTarget(frame); ok {
		if to := s.ports[about]; to != nil && to != from {
			s.send(from, to, frame)
		}
		return
	}
	for _, to := range s.ports {
		if to != from {
			s.send(from, to, frame)
		}
	}
}

// send delivers a frame, subject to the direction's fault.
func (s *Switch) send(from, to *port, frame []byte) {
	if to.down {
		return
	}
	f := s.fault(from.addr, to.addr)
	if f.Cut {
		return
	}
	var jitter time.Duration
	if f.Loss > 0 || f.Jitter > 0 {
		s.chanceMu.Lock()
		lost := s.chance.Float64() < f.Loss
		if f.Jitter > 0 {
			jitter = time.Duration(s.chance.Int64N(int64(f.Jitter)))
		}
		s.chanceMu.Unlock()
		if lost {
			return
		}
	}
	if d := f.Delay + jitter; d > 0 {
		s.late.add(time.Now().Add(d), to.device, append([]byte(nil), frame...))
		return
	}
	// A device that is closed or full drops the frame.
	_, _ = to.device.Write(frame)
}

// arpTarget returns the address that an ARP request asks for.
func arpTarget(frame []byte) (netip.Addr, bool) {
	const arp, request = 0x0806, 1
	if len(frame) < 42 || binary.BigEndian.Uint16(frame[12:]) != arp || binary.BigEndian.Uint16(frame[20:]) != request {
		return netip.Addr{}, false
	}
	return netip.AddrFrom4([4]byte(frame[38:42])), true
}

// macOf returns an address's hardware address, which a machine keeps over restarts.
func macOf(addr netip.Addr) [6]byte {
	a := addr.As4()
	return [6]byte{0x02, 0x4c, a[0], a[1], a[2], a[3]}
}

// delayLine writes frames when they are due, in its own goroutine.
type delayLine struct {
	mu     sync.Mutex
	queue  lateFrames
	seq    uint64
	notify chan struct{}
	done   chan struct{}
	closed chan struct{}
}

type lateFrame struct {
	at    time.Time
	seq   uint64 // keeps the order of frames that are due at the same time
	to    io.Writer
	frame []byte
}

func (d *delayLine) start() {
	d.notify, d.done, d.closed = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	go d.run()
}

func (d *delayLine) stop() {
	close(d.done)
	<-d.closed
}

func (d *delayLine) add(at time.Time, to io.Writer, frame []byte) {
	d.mu.Lock()
	d.seq++
	heap.Push(&d.queue, lateFrame{at, d.seq, to, frame})
	first := d.queue[0].seq == d.seq
	d.mu.Unlock()
	if first {
		select {
		case d.notify <- struct{}{}:
		default:
		}
	}
}

// next returns a frame that is due, or the time until the next one; errEmpty if there is none.
func (d *delayLine) next(now time.Time) (lateFrame, time.Duration, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.queue) == 0 {
		return lateFrame{}, 0, errEmpty
	}
	if wait := d.queue[0].at.Sub(now); wait > 0 {
		return lateFrame{}, wait, nil
	}
	return heap.Pop(&d.queue).(lateFrame), 0, nil
}

var errEmpty = errors.New("no frame is waiting")

func (d *delayLine) run() {
	defer close(d.closed)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		f, wait, err := d.next(time.Now())
		if err == nil && wait == 0 {
			_, _ = f.to.Write(f.frame)
			continue
		}
		if err != nil {
			wait = time.Hour
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-d.notify:
		case <-d.done:
			return
		}
	}
}

// lateFrames is a heap, the earliest first.
type lateFrames []lateFrame

func (l lateFrames) Len() int { return len(l) }
func (l lateFrames) Less(i, j int) bool {
	if !l[i].at.Equal(l[j].at) {
		return l[i].at.Before(l[j].at)
	}
	return l[i].seq < l[j].seq
}
func (l lateFrames) Swap(i, j int) { l[i], l[j] = l[j], l[i] }
func (l *lateFrames) Push(x any)   { *l = append(*l, x.(lateFrame)) }
func (l *lateFrames) Pop() any {
	old := *l
	x := old[len(old)-1]
	*l = old[:len(old)-1]
	return x
}
