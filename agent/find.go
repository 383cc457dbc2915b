package agent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/coopr/coopr/agent/worker"
	pb "github.com/coopr/coopr/rpc/proto"
)

// errNoLeader says that no leader was found.
var errNoLeader = errors.New("the mesh has no leader that can be reached")

// findLeader gives the peer address of the leader: this agent's own when it
// leads, what its Raft member knows, or what another agent says.
func (a *Agent) findLeader(ctx context.Context) (id, addr string, err error) {
	if m := a.member.Load(); m != nil && m.Group.Member() {
		if id, addr := m.Group.Leader(); id != "" {
			if now, err := a.peerAddr(id); err == nil {
				addr = now
			}
			return id, addr, nil
		}
	}
	members := a.mesh.Members()
	for _, i := range rand.Perm(len(members)) {
		m := members[i]
		if m.ID == a.id || !m.Alive() || !m.Eligible {
			continue
		}
		st, err := a.askState(ctx, m.RPCAddr, "")
		if ctx.Err() != nil {
			return "", "", ctx.Err()
		}
		if err == nil && st.LeaderId != "" && !a.foreign(st.Mesh) {
			addr := st.LeaderAddr
			if now, err := a.peerAddr(st.LeaderId); err == nil {
				addr = now
			}
			return st.LeaderId, addr, nil
		}
	}
	return "", "", errNoLeader
}

// foreign says that a mesh is another than the one whose state this agent has.
func (a *Agent) foreign(mesh string) bool {
	m := a.member.Load()
	if m == nil || mesh == "" {
		return false
	}
	own := m.Machine.View().Mesh()
	return own != "" && own != mesh
}

// awaitLeader is findLeader that waits for there to be one, until ctx ends.
func (a *Agent) awaitLeader(ctx context.Context) (id, addr string, err error) {
	for {
		var changed <-chan struct{}
		if m := a.member.Load(); m != nil {
			changed = m.Group.LeaderChanged()
		}
		if id, addr, err = a.findLeader(ctx); err == nil {
			return id, addr, nil
		}
		select {
		case <-ctx.Done():
			return "", "", fmt.Errorf("%w: %w", errNoLeader, ctx.Err())
		case <-changed:
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// connectLeader opens a worker's session with whoever leads.
func (a *Agent) connectLeader(ctx context.Context) (worker.Stream, error) {
	wait, found := context.WithTimeout(ctx, 5*time.Second)
	defer found()
	id, addr, err := a.awaitLeader(wait)
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
	ctx, cancel := a.whileLeads(ctx, id) // it ends with the session's own context
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
		p.err = (&peerServer{agent: a}).session(p, a.id)
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
