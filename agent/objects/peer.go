package objects

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	pb "github.com/coopr/coopr/rpc/proto"
)

// manyPackets bounds what waits for an agent that cannot be reached. What is
// lost is asked for again.
const manyPackets = 4096

// How long after a failure a stream is opened anew, doubled each time; and after how
// many failures only who has something to say goes on trying.
const (
	firstPause = 10 * time.Millisecond
	longPause  = time.Second
	manyTries  = 10
)

// Stream is a stream between this home and another one.
type Stream interface {
	// Send and Close are called by one goroutine, Recv by another.
	Send(*pb.ChangePacket) error
	// Recv gives io.EOF when the other end has closed, and another error when the
	// stream broke.
	Recv() (*pb.ChangePacket, error)
	// Close says that nothing more will be sent. What comes is still received.
	Close()
}

// peer is the talk with one other agent's home: one stream for all sites, used both
// ways, and open for as long as both live. Whoever has something to say first
// opens it. Where both do at the same moment, that of the lower id stays; the
// other one is closed by its opener, which loses nothing.
type peer struct {
	r     *Runner
	agent string
	wake  chan struct{}

	mu    sync.Mutex
	queue []*pb.ChangePacket
	line  *line   // to write to; nil while there is none
	left  []*line // not written to any more, to be closed by the writer
	broke bool    // the last line ended: what was said may be lost
}

// line is one stream. It is written to by the peer's goroutine and read by another.
type line struct {
	Stream
	opened bool          // by this end
	using  chan struct{} // held while it is sent over, or found to be over
	over   bool
}

func newLine(s Stream, opened bool) *line {
	return &line{Stream: s, opened: opened, using: make(chan struct{}, 1)}
}

// Send is that of the stream, which must not be used any more once it is over.
func (l *line) Send(m *pb.ChangePacket) error {
	l.using <- struct{}{}
	defer func() { <-l.using }()
	if l.over {
		return errBroken
	}
	return l.Stream.Send(m)
}

func (p *peer) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *peer) push(m *pb.ChangePacket) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) >= manyPackets {
		p.queue = p.queue[:0]
	}
	p.queue = append(p.queue, m)
	p.poke()
}

// take gives the line and what is to be sent over it, nothing where there is none.
// Lines that are left are closed here.
func (p *peer) take() (*line, []*pb.ChangePacket) {
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

// run writes, and opens a stream when there is something to say or when one broke.
func (p *peer) run(ctx context.Context) {
	var last time.Time // when a stream was opened, or tried to be
	pause, tries := firstPause, 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
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
				continue // the other end was faster
			}
			last = time.Now()
			if err := p.open(ctx); err != nil {
				p.r.cfg.Logger.Debug("no stream to another home", "to", p.agent, "error", err)
			}
			p.poke()
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

// due says whether a stream should be opened from this end. One that broke is
// opened anew at once, so that who waits asks again over it.
func (p *peer) due(tries int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.line == nil && (len(p.queue) > 0 || p.broke && p.r.cfg.Self < p.agent && tries < manyTries)
}

// open opens a stream, says who speaks, and reads it beside.
func (p *peer) open(ctx context.Context) error {
	s, err := p.r.cfg.Open(ctx, p.agent)
	if err != nil {
		return err
	}
	p.mu.Lock()
	hello := &pb.ChangePacket{From: p.r.cfg.Self, Again: p.broke}
	p.mu.Unlock()
	if err := s.Send(hello); err != nil {
		s.Close()
		if _, why := s.Recv(); why != nil { // frees the stream, too
			return why
		}
		return err
	}
	l := newLine(s, true)
	p.begin(l, false)
	p.r.work.Add(1) // run's own is not done yet
	go func() {
		defer p.r.work.Done()
		p.read(l)
	}()
	return nil
}

// stays says whether a line is of the lower id, which stays where there are two.
func (p *peer) stays(l *line) bool { return l.opened == (p.r.cfg.Self < p.agent) }

// begin makes a stream the one that is written to, unless there is one that stays.
func (p *peer) begin(l *line, again bool) {
	p.mu.Lock()
	again = again || p.broke
	p.broke = false
	if old := p.line; old == nil || p.stays(l) || !p.stays(old) {
		p.line = l
		l = old
	}
	if l != nil && l.opened { // who opened it closes it
		p.left = append(p.left, l)
	}
	p.mu.Unlock()
	p.poke()
	if again {
		p.r.Lost(p.agent)
	}
}

// read takes what comes over a stream until it ends.
func (p *peer) read(l *line) error {
	for {
		m, err := l.Recv()
		if err != nil {
			p.end(l, err)
			return err
		}
		p.r.Receive(p.agent, m)
	}
}

// end takes a stream out of use.
func (p *peer) end(l *line, err error) {
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
		p.poke()
	} else if !errors.Is(err, io.EOF) {
		p.r.Lost(p.agent)
	}
}

// Accept serves a stream that another home opened with first, until it ends.
func (r *Runner) Accept(first *pb.ChangePacket, s Stream) error {
	r.mu.Lock()
	var p *peer
	if r.ctx != nil && !r.over {
		p = r.peer(first.From)
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
