package fabric

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Host is one machine of the fabric. It is a wire.Network for the listeners and dialers on this machine.
type Host struct {
	f  *Fabric
	ip netip.Addr

	// Guarded by f.mu.
	up        bool // false: listeners gone, dials to it refused
	dark      bool // true: no power; no bytes come in or go out
	listeners map[uint16]*listener
	sockets   map[uint16]*Gossip
	nextPort  uint16
	topology  chan struct{} // closed when hanging dials should try again
}

// IP returns the host's address.
func (h *Host) IP() string { return h.ip.String() }

// Crash kills the host's processes. Its listeners vanish. Every conn is reset at both ends, at the far end only if the
// far host is reachable. Dials to the host are refused. Code of the test that still runs on the host gets errors. Start
// switches the host on again.
func (h *Host) Crash() { h.stop(false) }

// PowerOff cuts the power. For the host itself it is like Crash, but far ends receive no reset: they notice the loss by
// their own time-outs.
func (h *Host) PowerOff() { h.stop(true) }

func (h *Host) stop(silent bool) {
	f := h.f
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		if c.local.Addr() != h.ip {
			continue
		}
		heard := !silent && f.reachable(h.ip, c.remote.Addr())
		peer := c.peer
		c.reset()
		if heard {
			peer.reset()
		}
	}
	for _, l := range h.listeners {
		l.shut()
	}
	for _, g := range h.sockets {
		delete(h.sockets, g.addr.Port())
	}
	h.up, h.dark = false, silent
	h.retryDials()
}

// Start switches the host on again, without listeners. It resets the far ends of the host's old conns.
func (h *Host) Start() {
	f := h.f
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		if c.remote.Addr() == h.ip && c.peer.dead != nil {
			c.reset()
		}
	}
	h.up, h.dark = true, false
	h.retryDials()
}

// retryDials makes hanging dials to the host try again. f.mu is held.
func (h *Host) retryDials() {
	if h.topology != nil {
		close(h.topology)
		h.topology = nil
	}
}

func (h *Host) dialError(to string, err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		err = os.NewSyscallError("connect", errno)
	}
	return &net.OpError{Op: "dial", Net: "tcp", Addr: stringAddr(to), Err: err}
}

type stringAddr string

func (stringAddr) Network() string  { return "tcp" }
func (s stringAddr) String() string { return string(s) }

// Dial opens a conn to "ip:port" on the fabric. Across a blackhole it hangs until ctx ends or the partition heals.
func (h *Host) Dial(ctx context.Context, addr string) (net.Conn, error) {
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, h.dialError(addr, err)
	}
	for {
		conn, delay, wait, err := h.tryDial(to)
		if err != nil {
			return nil, h.dialError(addr, err)
		}
		if conn != nil {
			if delay > 0 {
				timer := time.NewTimer(delay)
				defer timer.Stop()
				select {
				case <-timer.C:
				case <-ctx.Done():
					conn.Close()
					return nil, h.dialError(addr, ctxError(ctx))
				}
			}
			return conn, nil
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, h.dialError(addr, ctxError(ctx))
		}
	}
}

// ctxError returns the error of net.Dialer for a context that has ended: net.Error reports a deadline as a time-out.
func ctxError(ctx context.Context) error {
	if ctx.Err() == context.DeadlineExceeded {
		return os.ErrDeadlineExceeded
	}
	return ctx.Err()
}

func (h *Host) tryDial(to netip.AddrPort) (conn *half, delay time.Duration, wait <-chan struct{}, err error) {
	f := h.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if !h.up {
		return nil, 0, nil, syscall.ENETDOWN
	}
	target := f.hosts[to.Addr()]
	if target == nil || !f.reachable(h.ip, to.Addr()) || !f.reachable(to.Addr(), h.ip) {
		if target == nil {
			target = h // no host has this address: only ctx ends the wait
		}
		if target.topology == nil {
			target.topology = make(chan struct{})
		}
		return nil, 0, target.topology, nil
	}
	l := target.listeners[to.Port()]
	if !target.up || l == nil || len(l.backlog) >= maxBacklog {
		return nil, 0, nil, syscall.ECONNREFUSED
	}
	h.nextPort++
	if h.nextPort < 32768 {
		h.nextPort = 32768
	}
	there, _, _ := f.draw(h.ip, to.Addr())
	back, _, _ := f.draw(to.Addr(), h.ip)
	near, far := newConn(f, netip.AddrPortFrom(h.ip, h.nextPort), to)
	l.backlog = append(l.backlog, far)
	l.ready.Signal()
	return near, there + back, nil, nil
}

const maxBacklog = 4096

// Listen accepts conns at "ip:port", ":port" or "0.0.0.0:port"; port 0 picks a free one.
func (h *Host) Listen(addr string) (net.Listener, error) {
	ip, portText, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Addr: stringAddr(addr), Err: err}
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err == nil && ip != "" && ip != "0.0.0.0" && ip != h.ip.String() {
		err = os.NewSyscallError("bind", syscall.EADDRNOTAVAIL)
	}
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Addr: stringAddr(addr), Err: err}
	}
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	l, err := h.listen(uint16(port))
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Addr: stringAddr(addr), Err: err}
	}
	return l, nil
}

func (h *Host) listen(port uint16) (*listener, error) {
	if !h.up {
		return nil, os.NewSyscallError("listen", syscall.ENETDOWN)
	}
	if port == 0 {
		for port = 20000; h.listeners[port] != nil || h.sockets[port] != nil; port++ {
		}
	}
	if h.listeners[port] != nil {
		return nil, os.NewSyscallError("bind", syscall.EADDRINUSE)
	}
	l := &listener{h: h, addr: netip.AddrPortFrom(h.ip, port), ready: sync.NewCond(&h.f.mu)}
	h.listeners[port] = l
	return l, nil
}

// listener is a listening port. Its fields are guarded by f.mu.
type listener struct {
	h       *Host
	addr    netip.AddrPort
	backlog []*half
	ready   *sync.Cond
	closed  bool
}

func (l *listener) Accept() (net.Conn, error) {
	l.h.f.mu.Lock()
	defer l.h.f.mu.Unlock()
	for len(l.backlog) == 0 && !l.closed {
		l.ready.Wait()
	}
	if l.closed {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.Addr(), Err: net.ErrClosed}
	}
	conn := l.backlog[0]
	l.backlog = l.backlog[1:]
	return conn, nil
}

func (l *listener) Close() error {
	l.h.f.mu.Lock()
	defer l.h.f.mu.Unlock()
	if l.closed {
		return &net.OpError{Op: "close", Net: "tcp", Addr: l.Addr(), Err: net.ErrClosed}
	}
	l.shut()
	return nil
}

// shut closes the port and resets the conns that were not accepted. f.mu is held.
func (l *listener) shut() {
	if l.closed {
		return
	}
	l.closed = true
	for _, c := range l.backlog {
		c.peer.reset()
		c.reset()
	}
	l.backlog = nil
	delete(l.h.listeners, l.addr.Port())
	l.ready.Broadcast()
}

func (l *listener) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.addr) }

func (h *Host) String() string { return fmt.Sprintf("host %s", h.ip) }
