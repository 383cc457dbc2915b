package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coopr/coopr/agent/worker"
	pb "github.com/coopr/coopr/rpc/proto"
)

// connectLeader opens a worker's session with whoever leads.
func (a *Agent) connectLeader(ctx context.Context) (worker.Stream, error) {
	wait, found := context.WithTimeout(ctx, 5*time.Second)
	defer found()
	id, addr, err := a.locator.AwaitLeader(wait)
	if err != nil {
		return nil, err
	}
	if id == a.id {
		return a.ownSession(ctx), nil
	}
	c, err := a.pool.Client(addr)
	if err != nil {
		return nil, err
	}
	ctx, cancel := a.locator.WhileLeads(ctx, id) // it ends with the session's own context
	s, err := c.Session(ctx)
	if err != nil {
		cancel()
		a.pool.Drop(addr)
		return nil, fmt.Errorf("session with the leader at %s: %w", addr, err)
	}
	return s, nil
}

// ownSession is the session of the leader with itself: the same talk, without
// a network between.
func (a *Agent) ownSession(ctx context.Context) worker.Stream {
	ctx, cancel := context.WithCancel(ctx)
	p := &pipe{ctx: ctx, up: make(chan *pb.WorkerMessage, 16), down: make(chan *pb.LeaderMessage, 16), ended: make(chan struct{})}
	go func() {
		defer cancel()
		p.err = newPeerServer(a).session(p, a.id)
		close(p.ended)
	}()
	return p
}

// pipe joins both ends of a session in one process.
type pipe struct {
	ctx   context.Context
	up    chan *pb.WorkerMessage
	down  chan *pb.LeaderMessage
	ended chan struct{}
	err   error // set before ended is closed
}

func (p *pipe) Context() context.Context { return p.ctx }

// Send and Recv are the worker's end.
func (p *pipe) Send(m *pb.WorkerMessage) error {
	select {
	case p.up <- m:
		return nil
	case <-p.ended:
		return p.over()
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
}

func (p *pipe) over() error {
	if p.err != nil {
		return p.err
	}
	return errors.New("the session ended")
}

func (p *pipe) Recv() (*pb.LeaderMessage, error) {
	select {
	case m := <-p.down:
		return m, nil
	case <-p.ended:
		return nil, p.over()
	case <-p.ctx.Done():
		return nil, p.ctx.Err()
	}
}

// tell and hear are the leader's end.
func (p *pipe) tell(m *pb.LeaderMessage) error {
	select {
	case p.down <- m:
		return nil
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
}

func (p *pipe) hear() (*pb.WorkerMessage, error) {
	select {
	case m := <-p.up:
		return m, nil
	case <-p.ctx.Done():
		return nil, p.ctx.Err()
	}
}
