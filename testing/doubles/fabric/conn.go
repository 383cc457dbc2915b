package fabric

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"
)

// window is how many bytes may be under way in one direction before a writer waits, as with a TCP window.
const window = 256 << 10

// segment holds bytes of one write, or marks the end of the stream.
type segment struct {
	data []byte
	at   time.Time // earliest arrival
	eof  bool
}

// half is one end of a stream conn. All fields are guarded by f.mu.
type half struct {
	f             *Fabric
	local, remote netip.AddrPort
	peer          *half

	inbox    []segment // sent by the peer, not read yet
	buffered int       // bytes in inbox
	lastAt   time.Time // arrival of the newest segment; later segments arrive no earlier
	sawEOF   bool

	closed        bool  // by Close at this end
	dead          error // set by a reset or by a crash of this end's host
	readDeadline  time.Time
	writeDeadline time.Time
	canRead       *sync.Cond
	canWrite      *sync.Cond
}

func newConn(f *Fabric, from, to netip.AddrPort) (near, far *half) {
	near = &half{f: f, local: from, remote: to, canRead: sync.NewCond(&f.mu), canWrite: sync.NewCond(&f.mu)}
	far = &half{f: f, local: to, remote: from, canRead: sync.NewCond(&f.mu), canWrite: sync.NewCond(&f.mu)}
	near.peer, far.peer = far, near
	f.conns[near], f.conns[far] = struct{}{}, struct{}{}
	return near, far
}

func (h *half) notify() {
	h.canRead.Broadcast()
	h.canWrite.Broadcast()
}

// reset ends this end at once, like a received RST. f.mu is held.
func (h *half) reset() {
	if h.dead == nil && !h.closed {
		h.dead = syscall.ECONNRESET
	}
	h.inbox, h.buffered = nil, 0
	delete(h.f.conns, h)
	h.notify()
}

func (h *half) opError(op string, err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		err = os.NewSyscallError(op, errno)
	}
	return &net.OpError{Op: op, Net: "tcp", Source: h.LocalAddr(), Addr: h.RemoteAddr(), Err: err}
}

// until waits on c, at the latest until the earliest of the given times (zero times do not count). f.mu is held;
// until releases it while it waits.
func until(c *sync.Cond, times ...time.Time) {
	var first time.Time
	for _, t := range times {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	if !first.IsZero() {
		timer := time.AfterFunc(time.Until(first), func() {
			c.L.Lock() // without the lock the broadcast could come before the waiter waits
			defer c.L.Unlock()
			c.Broadcast()
		})
		defer timer.Stop()
	}
	c.Wait()
}

func expired(deadline time.Time) bool {
	return !deadline.IsZero() && !time.Now().Before(deadline)
}

func (h *half) Read(b []byte) (int, error) {
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	for {
		switch {
		case h.closed:
			return 0, h.opError("read", net.ErrClosed)
		case h.dead != nil:
			return 0, h.opError("read", h.dead)
		case h.sawEOF:
			return 0, io.EOF
		case expired(h.readDeadline):
			return 0, h.opError("read", os.ErrDeadlineExceeded)
		case len(b) == 0:
			return 0, nil
		}
		if len(h.inbox) == 0 || !h.f.reachable(h.remote.Addr(), h.local.Addr()) {
			until(h.canRead, h.readDeadline)
			continue
		}
		head := &h.inbox[0]
		if time.Now().Before(head.at) {
			until(h.canRead, h.readDeadline, head.at)
			continue
		}
		if head.eof {
			h.sawEOF = true
			continue
		}
		n := copy(b, head.data)
		h.buffered -= n
		if head.data = head.data[n:]; len(head.data) == 0 {
			h.inbox = h.inbox[1:]
		}
		h.peer.canWrite.Broadcast()
		return n, nil
	}
}

func (h *half) Write(b []byte) (int, error) {
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	written := 0
	for {
		switch {
		case h.closed:
			return written, h.opError("write", net.ErrClosed)
		case h.dead != nil:
			return written, h.opError("write", h.dead)
		case expired(h.writeDeadline):
			return written, h.opError("write", os.ErrDeadlineExceeded)
		case written == len(b):
			return written, nil
		}
		room := window - h.peer.buffered
		if room <= 0 {
			until(h.canWrite, h.writeDeadline)
			continue
		}
		n := min(room, len(b)-written)
		h.send(segment{data: append([]byte(nil), b[written:written+n]...)})
		written += n
	}
}

// send puts a segment under way to the peer. f.mu is held.
func (h *half) send(s segment) {
	delay, _, stall := h.f.draw(h.local.Addr(), h.remote.Addr())
	s.at = time.Now().Add(delay + stall)
	p := h.peer
	if s.at.Before(p.lastAt) {
		s.at = p.lastAt
	}
	p.lastAt = s.at
	if p.closed || p.dead != nil {
		// The peer's end is gone. If both directions are open, its host answers with a reset.
		if h.f.reachable(h.remote.Addr(), h.local.Addr()) && h.f.reachable(h.local.Addr(), h.remote.Addr()) {
			h.reset()
		}
		return
	}
	p.inbox = append(p.inbox, s)
	p.buffered += len(s.data)
	p.canRead.Broadcast()
}

func (h *half) Close() error {
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	if h.closed {
		return h.opError("close", net.ErrClosed)
	}
	if h.dead == nil && !h.peer.closed {
		unread := h.buffered > 0
		h.send(segment{eof: true})
		if unread && h.f.reachable(h.local.Addr(), h.remote.Addr()) {
			h.peer.reset() // TCP resets a conn that is closed with unread bytes
		}
	}
	h.closed = true
	h.inbox, h.buffered = nil, 0
	delete(h.f.conns, h)
	h.notify()
	h.peer.canWrite.Broadcast()
	return nil
}

// CloseWrite ends this end's direction of the stream. The peer reads to the end and may continue to write.
func (h *half) CloseWrite() error {
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	if h.closed || h.dead != nil {
		return h.opError("close", net.ErrClosed)
	}
	h.send(segment{eof: true})
	return nil
}

func (h *half) LocalAddr() net.Addr  { return net.TCPAddrFromAddrPort(h.local) }
func (h *half) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(h.remote) }

func (h *half) SetDeadline(t time.Time) error {
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	h.readDeadline, h.writeDeadline = t, t
	h.notify()
	return h.checkOpen()
}

func (h *half) SetReadDeadline(t time.Time) error {
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	h.readDeadline = t
	h.notify()
	return h.checkOpen()
}

func (h *half) SetWriteDeadline(t time.Time) error {
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	h.writeDeadline = t
	h.notify()
	return h.checkOpen()
}

func (h *half) checkOpen() error {
	if h.closed {
		return h.opError("set", net.ErrClosed)
	}
	return nil
}
