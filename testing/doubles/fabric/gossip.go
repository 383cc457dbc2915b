package fabric

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/memberlist"
)

// inbox is how many datagrams a socket holds for a slow reader. Further datagrams are lost, as in a kernel.
const inbox = 4096

// Gossip is a gossip port on a host, with datagrams and streams. It is a transport of memberlist.
type Gossip struct {
	h       *Host
	addr    netip.AddrPort
	streams net.Listener
	packets chan *memberlist.Packet
	conns   chan net.Conn
	life    context.Context
	end     context.CancelFunc
	wg      sync.WaitGroup
}

var _ memberlist.NodeAwareTransport = (*Gossip)(nil)

// Gossip opens a gossip port on the host; 0 picks a free one. memberlist's Shutdown closes it.
func (h *Host) Gossip(port uint16) (*Gossip, error) {
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	l, err := h.listen(port)
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: "gossip", Addr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(h.ip, port)), Err: err}
	}
	g := &Gossip{h: h, addr: l.addr, streams: l, packets: make(chan *memberlist.Packet, inbox), conns: make(chan net.Conn)}
	g.life, g.end = context.WithCancel(context.Background())
	h.sockets[l.addr.Port()] = g
	g.wg.Go(g.accept)
	return g, nil
}

func (g *Gossip) accept() {
	for {
		conn, err := g.streams.Accept()
		if err != nil {
			return
		}
		select {
		case g.conns <- conn:
		case <-g.life.Done():
			conn.Close()
			return
		}
	}
}

// Addr returns the address at which other hosts reach this port.
func (g *Gossip) Addr() string { return g.addr.String() }

// FinalAdvertiseAddr returns the port's own address unless another is configured.
func (g *Gossip) FinalAdvertiseAddr(ip string, port int) (net.IP, int, error) {
	if ip == "" {
		return net.IP(g.addr.Addr().AsSlice()), int(g.addr.Port()), nil
	}
	parsed, err := netip.ParseAddr(ip)
	if err != nil {
		return nil, 0, err
	}
	return net.IP(parsed.AsSlice()), port, nil
}

// WriteTo sends a datagram. It returns no error when the datagram is lost.
func (g *Gossip) WriteTo(b []byte, addr string) (time.Time, error) {
	return g.WriteToAddress(b, memberlist.Address{Addr: addr})
}

// WriteToAddress sends a datagram. It returns no error when the datagram is lost.
func (g *Gossip) WriteToAddress(b []byte, to memberlist.Address) (time.Time, error) {
	now := time.Now()
	dest, err := netip.ParseAddrPort(to.Addr)
	if err != nil {
		return now, err
	}
	f := g.h.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if g.h.sockets[g.addr.Port()] != g {
		return now, &net.OpError{Op: "write", Net: "udp", Addr: net.UDPAddrFromAddrPort(dest),
			Err: os.NewSyscallError("sendto", syscall.ENETDOWN)}
	}
	delay, lost, _ := f.draw(g.addr.Addr(), dest.Addr())
	if lost || !f.reachable(g.addr.Addr(), dest.Addr()) {
		return now, nil
	}
	packet := &memberlist.Packet{Buf: append([]byte(nil), b...), From: net.UDPAddrFromAddrPort(g.addr), Timestamp: now}
	if delay == 0 {
		f.arrive(dest, packet)
		return now, nil
	}
	time.AfterFunc(delay, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		packet.Timestamp = time.Now()
		if f.reachable(g.addr.Addr(), dest.Addr()) {
			f.arrive(dest, packet)
		}
	})
	return now, nil
}

// arrive delivers a datagram to the socket at dest, if there is one with room. f.mu is held.
func (f *Fabric) arrive(dest netip.AddrPort, packet *memberlist.Packet) {
	h := f.hosts[dest.Addr()]
	if h == nil || !h.up {
		return
	}
	if g := h.sockets[dest.Port()]; g != nil {
		select {
		case g.packets <- packet:
		default:
		}
	}
}

// PacketCh returns the channel of the datagrams that arrive.
func (g *Gossip) PacketCh() <-chan *memberlist.Packet { return g.packets }

// StreamCh returns the channel of the conns that are dialled to this port.
func (g *Gossip) StreamCh() <-chan net.Conn { return g.conns }

// DialTimeout opens a stream to another gossip port.
func (g *Gossip) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return g.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

// DialAddressTimeout opens a stream to another gossip port. Shutdown ends it early.
func (g *Gossip) DialAddressTimeout(addr memberlist.Address, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(g.life, timeout)
	defer cancel()
	return g.h.Dial(ctx, addr.Addr)
}

// Shutdown closes the port.
func (g *Gossip) Shutdown() error {
	g.end()
	err := g.streams.Close()
	g.h.f.mu.Lock()
	if g.h.sockets[g.addr.Port()] == g {
		delete(g.h.sockets, g.addr.Port())
	}
	g.h.f.mu.Unlock()
	g.wg.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil // the host crashed before
	}
	return err
}
