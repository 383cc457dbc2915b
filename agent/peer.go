package agent

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coopr/coopr/agent/member"
	"github.com/coopr/coopr/agent/worker"
	"github.com/coopr/coopr/consensus/duty/sites"
	"github.com/coopr/coopr/consensus/duty/watch"
	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/wire"
)

// peerServer answers the other agents.
type peerServer struct {
	unimplemented
	member.Server
	agent *Agent
}

// unimplemented has the methods that nothing else in a peerServer has.
type unimplemented struct{ pb.UnimplementedPeerServer }

func newPeerServer(a *Agent) *peerServer {
	return &peerServer{Server: member.Server{Supervisor: a.supervisor, Build: a.cfg.Build}, agent: a}
}

// leaderEnd is the leader's end of a session's stream.
type leaderEnd interface {
	Context() context.Context
	tell(*pb.LeaderMessage) error
	hear() (*pb.WorkerMessage, error)
}

type grpcEnd struct {
	grpc.BidiStreamingServer[pb.WorkerMessage, pb.LeaderMessage]
}

func (g grpcEnd) tell(m *pb.LeaderMessage) error   { return g.Send(m) }
func (g grpcEnd) hear() (*pb.WorkerMessage, error) { return g.Recv() }

// Session is a worker's talk with this agent, if it leads.
func (p *peerServer) Session(s grpc.BidiStreamingServer[pb.WorkerMessage, pb.LeaderMessage]) error {
	caller, _ := wire.CallerID(s.Context())
	return p.session(grpcEnd{s}, caller)
}

func (p *peerServer) session(end leaderEnd, caller string) error {
	first, err := end.hear()
	if err != nil {
		return err
	}
	h := first.Hello
	if h == nil || h.Agent == "" {
		return status.Error(codes.InvalidArgument, "a session begins with a hello")
	}
	if caller != "" && caller != h.Agent {
		return status.Errorf(codes.PermissionDenied, "agent %s says it is %s", caller, h.Agent)
	}
	m, l, err := p.agent.supervisor.AwaitReady(end.Context())
	if err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	if err := p.agent.admitDevToken(end.Context(), m, h.Name, h.Token); err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	c := newConn(end)
	defer c.Close()
	id := rand.Text()
	if err := l.Dispatcher.Open(end.Context(), id, h, c); err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	defer l.SessionBroken(id, h.Agent)
	defer l.Dispatcher.Gone(id, c)
	l.Watcher.Join(id, watch.Worker{Agent: h.Agent, Machine: h.Machine, Plugins: offers(h), Send: c.Send})
	defer l.Watcher.Leave(id)
	l.Sites.Join(id, sites.Runtime{Agent: h.Agent, Name: h.Name, Machine: h.Machine, Process: h.Process, Send: c.Send})
	defer l.Sites.Leave(id)
	// The newcomer learns the list of record with its welcome.
	p.agent.sendRecords(m, c)
	heard := make(chan error, 1)
	go func() { heard <- p.listen(end, l, id) }()
	select {
	case err := <-heard:
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	case <-c.closed:
		return status.Error(codes.Unavailable, "this agent does not lead any more, or another session of the agent has begun")
	case <-end.Context().Done():
		return end.Context().Err()
	}
}

func (p *peerServer) listen(end leaderEnd, l *member.Leadership, id string) error {
	ctx := end.Context()
	d := l.Dispatcher
	for {
		m, err := end.hear()
		if err != nil {
			return err
		}
		if m.Heartbeat > 0 || m.Leaving {
			d.Hear(id, m.Heartbeat, m.Leaving)
		}
		// What is committed is committed in order of arrival, but a worker's
		// next message does not wait for it.
		if len(m.Saves) > 0 {
			d.Save(ctx, m.Saves)
		}
		if len(m.Results) > 0 {
			d.ReportSoon(id, m.Results)
		}
		if len(m.Wanted) > 0 {
			l.Watcher.Wanted(id, m.Wanted)
		}
		if len(m.Health) > 0 {
			l.Watcher.Health(id, m.Health)
		}
		if len(m.Homes) > 0 {
			l.Sites.Hear(id, m.Homes)
		}
		if len(m.Started) > 0 {
			d.Started(ctx, id, m.Started)
		}
		if len(m.Returned) > 0 {
			d.Returned(ctx, id, m.Returned)
		}
	}
}

// conn queues what the leader has to say to a worker; one goroutine sends it.
// Messages that wait are sent as one.
type conn struct {
	mu     sync.Mutex
	queue  []*pb.LeaderMessage
	wake   chan struct{}
	closed chan struct{}
	over   bool
}

func newConn(end leaderEnd) *conn {
	c := &conn{wake: make(chan struct{}, 1), closed: make(chan struct{})}
	go c.run(end)
	return c
}

// Send queues a message.
func (c *conn) Send(m *pb.LeaderMessage) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return false
	}
	c.queue = append(c.queue, m)
	select {
	case c.wake <- struct{}{}:
	default:
	}
	return true
}

// Close ends the session.
func (c *conn) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		c.over = true
		close(c.closed)
	}
}

func (c *conn) run(end leaderEnd) {
	for {
		select {
		case <-c.closed:
			return
		case <-end.Context().Done():
			return
		case <-c.wake:
		}
		c.mu.Lock()
		queue := c.queue
		c.queue = nil
		c.mu.Unlock()
		for len(queue) > 0 {
			m := queue[0]
			queue = queue[1:]
			for len(queue) > 0 && queue[0].Welcome == nil && m.Welcome == nil && m.Heartbeat == 0 && len(m.Tasks) < 1024 && !watches(m) && !watches(queue[0]) {
				join(m, queue[0])
				queue = queue[1:]
			}
			if end.tell(m) != nil {
				c.Close()
				return
			}
		}
	}
}

// watches says whether a message is about health checks or sites: those are
// carried out in the order in which they were sent.
func watches(m *pb.LeaderMessage) bool {
	return m.WatchAnew || len(m.Watches)+len(m.Unwatch)+len(m.Sites) > 0
}

// offers gives the keys of the plugins that a worker has.
func offers(h *pb.Hello) map[string]bool {
	out := map[string]bool{}
	for _, b := range h.Plugins {
		var t model.PluginType
		if json.Unmarshal(b, &t) == nil {
			out[t.Key()] = true
		}
	}
	return out
}

// join puts what b says behind what a says. A message may be shared between
// sessions: only lists of a that are its own grow.
func join(a, b *pb.LeaderMessage) {
	a.Tasks = append(a.Tasks[:len(a.Tasks):len(a.Tasks)], b.Tasks...)
	a.Cancels = append(a.Cancels[:len(a.Cancels):len(a.Cancels)], b.Cancels...)
	a.Confirmed = append(a.Confirmed[:len(a.Confirmed):len(a.Confirmed)], b.Confirmed...)
	a.Heartbeat = max(a.Heartbeat, b.Heartbeat)
	if len(b.Records) > 0 {
		a.Records = b.Records
	}
}

// TaskLog streams the log of an attempt that ran here.
func (p *peerServer) TaskLog(r *pb.TaskLogRequest, s grpc.ServerStreamingServer[pb.TaskLogResponse]) error {
	f, fence, err := p.agent.logs.Open(r.Task, r.Fence)
	if errors.Is(err, worker.ErrNoLog) {
		return status.Error(codes.NotFound, err.Error())
	}
	if err != nil {
		return err
	}
	defer f.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := f.Read(buf)
		if n > 0 {
			if err := s.Send(&pb.TaskLogResponse{Data: buf[:n], Fence: fence}); err != nil {
				return err
			}
		}
		switch {
		case err == nil:
		case !errors.Is(err, io.EOF):
			return err
		case !r.Follow || !p.agent.worker.Holds(r.Task, fence):
			return nil
		default:
			select {
			case <-s.Context().Done():
				return s.Context().Err()
			case <-time.After(200 * time.Millisecond):
			}
		}
	}
}

// sendRecords sends the agent registry to one worker.
func (a *Agent) sendRecords(m *member.Member, c *conn) {
	if b, err := json.Marshal(m.Machine.View().Agents()); err == nil {
		c.Send(&pb.LeaderMessage{Records: b})
	}
}

// admitDevToken makes the token that another dev agent printed valid on all
// agents: a mesh in dev mode has no secret to derive a common token from.
func (a *Agent) admitDevToken(ctx context.Context, m *member.Member, agent string, hash []byte) error {
	if !a.cfg.Dev || len(hash) == 0 {
		return nil
	}
	if _, ok := m.Machine.View().TokenByHash(hex.EncodeToString(hash)); ok {
		return nil
	}
	_, err := m.Propose(ctx, &pb.Command{Actor: "coopr", Change: &pb.Command_PutToken{PutToken: &pb.PutToken{
		Hash: hash, Actor: "dev", Tenant: member.FirstTenant, Role: string(model.RoleSuperadmin), Id: "dev-" + agent,
	}}})
	return err
}
