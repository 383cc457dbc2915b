package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coopr/coopr/engine/hostexec"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/internal/ownhost"
	pb "github.com/coopr/coopr/rpc/proto"
)

// forwardsEach bounds the connections to nodes that a principal has at a time.
const forwardsEach = 16

// forwards counts the connections to nodes that each principal has through this leader. The zero value has none.
type forwards struct {
	mu   sync.Mutex
	open map[[2]string]int
}

// begin counts a connection until leave.
func (f *forwards) begin(who model.Caller) (leave func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open == nil {
		f.open = map[[2]string]int{}
	}
	name := [2]string{who.Tenant, who.Actor}
	if f.open[name] >= forwardsEach {
		return nil, problem.New(problem.Busy, "%s has %d connections to nodes already: end one of them", who.Actor, forwardsEach)
	}
	f.open[name]++
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.open[name]--; f.open[name] == 0 {
			delete(f.open, name)
		}
	}, nil
}

// errLeft is the error of a connection whose client has left.
var errLeft = errors.New("the client has left")

// Forward connects to a port of a node of the caller's tenant through an agent that reaches it, and copies up to it and what it sends to
// down. It calls begun with the name of the agent once the node has accepted. It writes the incident to the audit log before it
// connects, and the end of the connection afterwards. Only the leader can.
func (o *Operations) Forward(ctx context.Context, who model.Caller, node string, port int, i model.Incident, begun func(agent string) error,
	up io.Reader, down io.Writer) error {
	u, err := useNode(o.Supervisor, who, node)
	if err != nil {
		return err
	}
	n := u.node
	to, err := portOf(n, port)
	if err != nil {
		return err
	}
	// The machine that the connection reaches counts, too: it may be a control host.
	uses := append(u.programs(), hostexec.Use{What: "what listens at the address of node " + n.ID, At: ownhost.Plain(to.Addr()).String()})
	if err := (hostexec.Rules{}).Among(u.view.Agents).Ask(who, uses); err != nil {
		return err
	}
	agent, err := u.agent(ctx)
	if err != nil {
		return err
	}
	leave, err := o.forwards.begin(who)
	if err != nil {
		return err
	}
	defer leave()
	noted, err := noteIncident(ctx, o.Supervisor, who, i)
	switch {
	case err != nil:
		return err
	case noted.Repeated:
		return problem.New(problem.Conflict, "this request has opened its connection before, and that was lost: open another one")
	}
	name := agent.Name
	f := &forward{begun: func() error { return begun(name) }, up: up, down: down, since: time.Now()}
	err = o.forward(ctx, target(agent), &pb.ForwardUp{Address: to.String(), OwnHost: n.AgentMachine() != "" && hostexec.May(who)}, f)
	i.Object += fmt.Sprintf(": ended after %v, %d bytes sent, %d received", time.Since(f.since).Round(time.Millisecond), f.sent.Load(),
		f.received)
	switch cause := context.Cause(ctx); {
	case err != nil && errors.Is(cause, context.Canceled):
		err = errLeft
	case err != nil && cause != nil:
		err = cause // such as the end of its token
	}
	if err != nil {
		i.Object += ": " + status.Convert(err).Message()
	}
	who.Request = "" // that of the beginning
	ended, cancel := context.WithTimeout(context.WithoutCancel(ctx), forwardNote)
	defer cancel()
	if _, failed := noteIncident(ended, o.Supervisor, who, i); failed != nil {
		o.Logger.Warn("the audit log lacks the end of a connection", "node", n.ID, "actor", who.Actor, "error", failed)
	}
	switch status.Code(err) {
	case codes.Unimplemented:
		return problem.New(problem.Conflict, "agent %s is of an older build and forwards no ports: upgrade it", name)
	case codes.ResourceExhausted:
		return problem.New(problem.Busy, "agent %s: %s", name, status.Convert(err).Message())
	case codes.PermissionDenied, codes.FailedPrecondition, codes.InvalidArgument:
		return problem.New(problem.Conflict, "agent %s: %s", name, status.Convert(err).Message())
	case codes.Unavailable:
		return problem.New(problem.Busy, "agent %s was lost", name)
	}
	return err
}

// portOf returns the address at which a node has a TCP port.
func portOf(n *model.Node, port int) (to netip.AddrPort, err error) {
	text := cmp.Or(n.IPAddresses["access_v4"], n.IPAddresses["bind_v4"])
	if at, _ := n.Results["ssh_address"].(string); at != "" {
		text = n.IPAddresses["bind_v4"]
		if port == sshPort(n) {
			text = at // the other ports there are those of another machine
		}
	}
	jumps, _ := n.Results["ssh_jump"].([]any)
	switch {
	case text == "":
		return to, problem.New(problem.Conflict, "node %s has no address: its machine was not made yet, or is gone", n.ID)
	case len(jumps) > 0:
		return to, problem.New(problem.Conflict, "node %s is behind a jump host, through which no ports are forwarded: "+
			"coopr node exec runs commands on it", n.ID)
	}
	address, err := netip.ParseAddr(text)
	if err != nil {
		return to, problem.New(problem.Conflict, "node %s has the name %s as its address, and ports are forwarded only to IP addresses",
			n.ID, text)
	}
	return netip.AddrPortFrom(address, uint16(port)), nil
}

// sshPort returns the port of a node's SSH server.
func sshPort(n *model.Node) int {
	if port, err := strconv.Atoi(fmt.Sprint(n.Results["ssh_port"])); err == nil {
		return port
	}
	return 22
}

// forwardNote bounds the time to write the end of a connection to the audit log.
const forwardNote = 10 * time.Second

// forward is a connection to a node.
type forward struct {
	begun    func() error
	up       io.Reader
	down     io.Writer
	since    time.Time
	sent     atomic.Int64 // bytes to the node
	received int64
}

// forward has an agent open a connection, and copies its bytes.
func (o *Operations) forward(ctx context.Context, addr string, first *pb.ForwardUp, f *forward) error {
	c, err := o.Peers.Client(addr)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx) // ends the connection if either side fails
	defer cancel(nil)
	s, err := c.Forward(ctx)
	if err != nil {
		return err
	}
	if err := s.Send(first); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if _, err := s.Recv(); err != nil {
		return err
	}
	if err := f.begun(); err != nil {
		return err
	}
	go func() {
		for buf := make([]byte, 32<<10); ; {
			n, err := f.up.Read(buf)
			if n > 0 && s.Send(&pb.ForwardUp{Data: buf[:n]}) != nil {
				return // Recv returns the error
			}
			f.sent.Add(int64(n))
			switch {
			case errors.Is(err, io.EOF):
				_ = s.CloseSend()
				return
			case err != nil:
				cancel(errLeft)
				return
			}
		}
	}()
	for {
		piece, err := s.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return cmp.Or(context.Cause(ctx), err)
		}
		f.received += int64(len(piece.Data))
		if _, err := f.down.Write(piece.Data); err != nil {
			return errLeft
		}
	}
}
