package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coopr/coopr/agent/member"
	"github.com/coopr/coopr/agent/worker"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/wire"
)

// findTimeout bounds the search for the leader.
const findTimeout = 5 * time.Second

// Connector opens the worker's end of sessions.
type Connector struct {
	ID      string // this agent's
	Locator *member.Locator
	Peers   member.Peers
	Own     Server // serves the session while this agent itself leads
}

// Connect opens a session with the leader. The stream ends with ctx.
func (c Connector) Connect(ctx context.Context) (worker.Stream, error) {
	wait, found := context.WithTimeout(ctx, findTimeout)
	defer found()
	id, addr, err := c.Locator.AwaitLeader(wait)
	if err != nil {
		return nil, err
	}
	if id == c.ID {
		return c.connectOwn(ctx), nil
	}
	client, err := c.Peers.Client(wire.Leader(addr, id).String())
	if err != nil {
		return nil, err
	}
	ctx, cancel := c.Locator.WhileLeads(ctx, id) // ends with the session's own context
	s, err := client.Session(ctx)
	if err != nil {
		cancel()
		c.Peers.Drop(addr)
		return nil, fmt.Errorf("open a session with the leader at %s: %w", addr, err)
	}
	return s, nil
}

// connectOwn opens the leader's session with itself, without a network.
func (c Connector) connectOwn(ctx context.Context) worker.Stream {
	ctx, cancel := context.WithCancel(ctx)
	p := &pipe{ctx: ctx, up: make(chan *pb.WorkerMessage, 16), down: make(chan *pb.LeaderMessage, 16), ended: make(chan struct{})}
	go func() {
		defer cancel()
		p.err = c.Own.serve(leaderEnd{p}, c.ID)
		close(p.ended)
	}()
	return workerEnd{p}
}

// errEnded is returned to a worker after the leader has ended the session.
var errEnded = errors.New("the leader ended the session")

// pipe connects both ends of a session in one process.
type pipe struct {
	ctx   context.Context
	up    chan *pb.WorkerMessage
	down  chan *pb.LeaderMessage
	ended chan struct{} // closed when the leader's end has returned
	err   error         // of the leader's end; set before ended is closed
}

// failure returns why the session ended.
func (p *pipe) failure() error {
	if p.err != nil {
		return p.err
	}
	return errEnded
}

type workerEnd struct{ *pipe }

// Send implements worker.Stream.
func (w workerEnd) Send(m *pb.WorkerMessage) error {
	select {
	case w.up <- m:
		return nil
	case <-w.ended:
		return w.failure()
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
}

// Recv implements worker.Stream.
func (w workerEnd) Recv() (*pb.LeaderMessage, error) {
	select {
	case m := <-w.down:
		return m, nil
	case <-w.ended:
	case <-w.ctx.Done():
	}
	select {
	case m := <-w.down: // was sent before the end
		return m, nil
	case <-w.ended:
		return nil, w.failure()
	default:
		return nil, w.ctx.Err()
	}
}

type leaderEnd struct{ *pipe }

// Context implements stream.
func (l leaderEnd) Context() context.Context { return l.ctx }

// Send implements stream.
func (l leaderEnd) Send(m *pb.LeaderMessage) error {
	select {
	case l.down <- m:
		return nil
	case <-l.ctx.Done():
		return l.ctx.Err()
	}
}

// Recv implements stream.
func (l leaderEnd) Recv() (*pb.WorkerMessage, error) {
	select {
	case m := <-l.up:
		return m, nil
	case <-l.ctx.Done():
		return nil, l.ctx.Err()
	}
}
