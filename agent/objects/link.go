package objects

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	pb "github.com/coopr/coopr/rpc/proto"
)

// manyPackets bounds the packets that wait for an agent that cannot be reached. Objects
// ask again for what is lost.
const manyPackets = 4096

// firstPause is the pause after which a stream that failed is opened again. It doubles up
// to longPause. After manyTries failures the stream is only opened if packets wait.
const (
	firstPause = 10 * time.Millisecond
	longPause  = time.Second
	manyTries  = 10
)

// Stream is a stream between the runtimes of two agents.
type Stream interface {
	// Send sends a packet. One goroutine calls Send and Close, another one Recv.
	Send(*pb.ChangePacket) error
	// Recv receives a packet. It returns io.EOF once the other end has closed the stream,
	// and another error if the stream broke.
	Recv() (*pb.ChangePacket, error)
	// Close ends sending. Packets are still received.
	Close()
}

// link is the connection to the runtime of one other agent: one stream for all sites, in
// both directions, which is open as long as both agents live. The agent that has a packet
// first opens the stream. If both agents open one at the same time, the stream of the
// agent with the lower id stays; the other stream is closed by its opener, and loses
// nothing. The writer is a goroutine of its own, because Send blocks while the other
// end does not keep up.
type link struct {
	r      *Runtime
	agent  string
	notify chan struct{} // of the goroutine that writes

	mu    sync.Mutex
	queue []*pb.ChangePacket
	line  *line   // the one to write to, or nil
	left  []*line // lines that the writer has to close
	broke bool    // the last line broke, so that packets may be lost
}

// line is one stream of a link. The link's writer sends over it; another goroutine
// receives.
type line struct {
	Stream
	opened bool          // by this end
	using  chan struct{} // a lock: held while the line is used, or marked as over
	over   bool
}

func newLine(s Stream, opened bool) *line {
	return &line{Stream: s, opened: opened, using: make(chan struct{}, 1)}
}

// Send sends a packet unless the line is over: the stream must not be used then.
func (l *line) Send(m *pb.ChangePacket) error {
	l.using <- struct{}{}
	defer func() { <-l.using }()
	if l.over {
		return errBroken
	}
	return l.Stream.Send(m)
}

func (p *link) notifyWriter() {
	select {
	case p.notify <- struct{}{}:
	default:
	}
}

func (p *link) push(m *pb.ChangePacket) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) >= manyPackets {
		p.queue = p.queue[:0]
	}
	p.queue = append(p.queue, m)
	p.notifyWriter()
}

// take returns the line and the packets to send over it, or nil if there is no line. It
// closes the lines that are left.
func (p *link) take() (*line, []*pb.ChangePacket) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.left {
		l.Close()
	}
	p.left = nil
	if p.line == nil {
		return nil, nil
	}
	q := p.queue
	p.queue = nil
	return p.line, q
}

// run sends packets, and opens a stream when packets wait or when the last one broke.
func (p *link) run(ctx context.Context) {
	var last time.Time // the last attempt to open a stream
	pause, tries := firstPause, 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.notify:
		}
		l, packets := p.take()
		if l == nil && p.due(tries) {
			if time.Since(last) > 2*longPause {
				pause, tries = firstPause, 0
			} else {
				select {
				case <-ctx.Done():
					return
				case <-time.After(pause):
				}
				pause, tries = min(2*pause, longPause), tries+1
			}
			if !p.due(tries) {
				continue // the other end has opened one
			}
			last = time.Now()
			if err := p.open(ctx); err != nil {
				p.r.cfg.Logger.Debug("no stream to another agent's change objects", "to", p.agent, "error", err)
			}
			p.notifyWriter()
			continue
		}
		for _, m := range packets {
			if err := l.Send(m); err != nil {
				p.end(l, err)
				break
			}
		}
	}
}

// due reports whether this end should open a stream. A stream that broke is opened again
// at once, so that waiting objects can repeat their requests.
func (p *link) due(tries int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.line == nil && (len(p.queue) > 0 || p.broke && p.r.cfg.Self < p.agent && tries < manyTries)
}

// open opens a stream, introduces this agent, and receives in a goroutine of its own.
func (p *link) open(ctx context.Context) error {
	s, err := p.r.cfg.Open(ctx, p.agent)
	if err != nil {
		return err
	}
	p.mu.Lock()
	hello := &pb.ChangePacket{From: p.r.cfg.Self, Again: p.broke}
	p.mu.Unlock()
	if err := s.Send(hello); err != nil {
		s.Close()
		if _, why := s.Recv(); why != nil { // this releases the stream, too
			return why
		}
		return err
	}
	l := newLine(s, true)
	p.begin(l, false)
	p.r.work.Go(func() { _ = p.read(l) }) // end has handled the error
	return nil
}

// stays reports whether a line was opened by the agent with the lower id. That one stays
// if there are two.
func (p *link) stays(l *line) bool { return l.opened == (p.r.cfg.Self < p.agent) }

// begin uses a new line for writing, unless the present one stays. again reports that the
// other end had lost its line.
func (p *link) begin(l *line, again bool) {
	p.mu.Lock()
	again = again || p.broke
	p.broke = false
	if old := p.line; old == nil || p.stays(l) || !p.stays(old) {
		p.line = l
		l = old
	}
	if l != nil && l.opened { // the end that opened it closes it
		p.left = append(p.left, l)
	}
	p.mu.Unlock()
	p.notifyWriter()
	if again {
		p.r.Lost(p.agent)
	}
}

// read receives packets until the line ends.
func (p *link) read(l *line) error {
	for {
		m, err := l.Recv()
		if err != nil {
			p.end(l, err)
			return err
		}
		p.r.Receive(p.agent, m)
	}
}

// end stops using a line that has ended.
func (p *link) end(l *line, err error) {
	l.using <- struct{}{}
	was := l.over
	l.over = true
	<-l.using
	if was {
		return
	}
	p.mu.Lock()
	used := p.line == l
	if used {
		p.line, p.broke = nil, true
		if l.opened {
			p.left = append(p.left, l)
		}
	}
	p.mu.Unlock()
	if used {
		p.notifyWriter()
	} else if !errors.Is(err, io.EOF) {
		p.r.Lost(p.agent)
	}
}

// Accept serves a stream that another runtime opened with the packet first, until it ends.
func (r *Runtime) Accept(first *pb.ChangePacket, s Stream) error {
	r.mu.Lock()
	var p *link
	if r.ctx != nil && !r.over {
		p = r.link(first.From)
	}
	r.mu.Unlock()
	if p == nil {
		return errNotRunning
	}
	l := newLine(s, false)
	p.begin(l, first.Again)
	if err := p.read(l); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}
