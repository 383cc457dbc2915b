package mesh

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// sockets is the gossip port on a real network: UDP for datagrams and TCP for streams. It replaces memberlist's transport,
// which does not suit 500 agents on one machine: sockets allocates the size of a datagram instead of 64 KiB, and Shutdown
// ends its dials and streams, which would otherwise last until their timeouts.
type sockets struct {
	udp     *net.UDPConn
	tcp     *net.TCPListener
	addr    netip.AddrPort
	log     *slog.Logger
	packets chan *memberlist.Packet
	streams chan net.Conn
	life    context.Context
	end     context.CancelFunc
	wg      sync.WaitGroup
}

var _ memberlist.NodeAwareTransport = (*sockets)(nil)

// receiveBuffer is the size of the receive buffer, for bursts. It is halved until the kernel grants it.
const receiveBuffer = 2 << 20

func openSockets(bind netip.AddrPort, logger *slog.Logger) (*sockets, error) {
	s := &sockets{log: logger, packets: make(chan *memberlist.Packet, 64), streams: make(chan net.Conn)}
	var err error
	// With port 0, TCP chooses the port, and UDP may find it in use.
	for range 16 {
		if s.tcp, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(bind)); err != nil {
			break
		}
		s.addr = s.tcp.Addr().(*net.TCPAddr).AddrPort()
		s.addr = netip.AddrPortFrom(s.addr.Addr().Unmap(), s.addr.Port())
		if s.udp, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(s.addr)); err == nil {
			break
		}
		s.tcp.Close()
		if bind.Port() != 0 {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("gossip on %s: %w", bind, err)
	}
	for size := receiveBuffer; s.udp.SetReadBuffer(size) != nil && size > 64<<10; size /= 2 {
	}
	s.life, s.end = context.WithCancel(context.Background())
	s.wg.Go(s.readPackets)
	s.wg.Go(s.acceptStreams)
	return s, nil
}

func (s *sockets) readPackets() {
	buf := make([]byte, 64<<10)
	for {
		n, from, err := s.udp.ReadFromUDPAddrPort(buf)
		now := time.Now()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			s.log.Debug("gossip: a datagram could not be read", "error", err)
			continue
		}
		if n == 0 {
			continue
		}
		from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		p := &memberlist.Packet{Buf: append([]byte(nil), buf[:n]...), From: net.UDPAddrFromAddrPort(from), Timestamp: now}
		select {
		case s.packets <- p:
		case <-s.life.Done():
			return
		}
	}
}

func (s *sockets) acceptStreams() {
	for {
		conn, err := s.tcp.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			s.log.Warn("gossip: a stream could not be accepted", "error", err)
			select {
			case <-time.After(50 * time.Millisecond): // probably out of file descriptors: wait for some to be closed
			case <-s.life.Done():
				return
			}
			continue
		}
		select {
		case s.streams <- tie(s.life, conn):
		case <-s.life.Done():
			conn.Close()
			return
		}
	}
}

func (s *sockets) FinalAdvertiseAddr(ip string, port int) (net.IP, int, error) {
	addr := s.addr.Addr()
	if ip != "" {
		var err error
		if addr, err = netip.ParseAddr(ip); err != nil {
			return nil, 0, err
		}
	}
	if ip == "" || port == 0 {
		port = int(s.addr.Port())
	}
	return net.IP(addr.Unmap().AsSlice()), port, nil
}

func (s *sockets) WriteTo(b []byte, addr string) (time.Time, error) {
	return s.WriteToAddress(b, memberlist.Address{Addr: addr})
}

func (s *sockets) WriteToAddress(b []byte, to memberlist.Address) (time.Time, error) {
	dest, err := netip.ParseAddrPort(to.Addr)
	if err != nil {
		return time.Time{}, err
	}
	_, err = s.udp.WriteToUDPAddrPort(b, dest)
	return time.Now(), err
}

func (s *sockets) PacketCh() <-chan *memberlist.Packet { return s.packets }
func (s *sockets) StreamCh() <-chan net.Conn           { return s.streams }

func (s *sockets) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return s.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

func (s *sockets) DialAddressTimeout(addr memberlist.Address, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(s.life, timeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr.Addr)
	if err != nil {
		return nil, err
	}
	return tie(s.life, conn), nil
}

func (s *sockets) Shutdown() error {
	s.end()
	err := errors.Join(s.tcp.Close(), s.udp.Close())
	s.wg.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
