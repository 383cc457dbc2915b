package home

import (
	"context"
	"sync"
	"time"

	pb "github.com/coopr/coopr/rpc/proto"
)

// manyPackets bounds what waits for an agent that cannot be reached. What is
// lost is asked for again.
const manyPackets = 4096

// peer is the stream to one other agent's home: one for all sites, open for as
// long as both live.
type peer struct {
	r     *Runner
	agent string
	wake  chan struct{}

	mu    sync.Mutex
	queue []*pb.ChangePacket
}

func (p *peer) push(m *pb.ChangePacket) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) >= manyPackets {
		p.queue = p.queue[:0]
	}
	p.queue = append(p.queue, m)
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *peer) take() []*pb.ChangePacket {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := p.queue
	p.queue = nil
	return q
}

// run keeps the stream open from the first packet on.
func (p *peer) run(ctx context.Context) {
	pause := 10 * time.Millisecond
	for again := false; ; again = true {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		}
		s, err := p.r.cfg.Open(ctx, p.agent)
		if err == nil {
			pause = 10 * time.Millisecond
			if again {
				p.r.Lost(p.agent)
			}
			err = p.talk(ctx, s)
			s.Close()
		}
		if ctx.Err() != nil {
			return
		}
		p.r.cfg.Logger.Debug("no stream to another home", "to", p.agent, "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, time.Second)
		select {
		case p.wake <- struct{}{}: // a new stream at once: who waits asks again over it
		default:
		}
	}
}

func (p *peer) talk(ctx context.Context, s Sender) error {
	if err := s.Send(&pb.ChangePacket{From: p.r.cfg.Self}); err != nil {
		return err
	}
	for {
		for _, m := range p.take() {
			if err := s.Send(m); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.Broken():
			return errBroken
		case <-p.wake:
		}
	}
}
