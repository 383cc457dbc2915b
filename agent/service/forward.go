package service

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coopr/coopr/agent/member"
	"github.com/coopr/coopr/engine/hostexec"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/wire"
)

// Forward connects to a port of a node of the caller's tenant through an agent that reaches it, and copies up to it and what it sends to down.
// It calls begun once the node has accepted. It writes the incident to the audit log before it connects. Only the leader can.
func (o *Operations) Forward(ctx context.Context, who model.Caller, node string, port int, i model.Incident, begun func() error, up io.Reader,
	down io.Writer) error {
	m, l, err := leader(o.Supervisor)
	if err != nil {
		return err
	}
	v := m.Machine.View()
	n, ok := v.Node(who.Tenant, node)
	if !ok {
		return problem.New(problem.NotFound, "there is no node %q", node)
	}
	cl, ok := v.Cluster(who.Tenant, n.Cluster)
	switch {
	case !ok:
		return problem.New(problem.NotFound, "there is no node %q", node)
	case v.Hold() != nil:
		return problem.New(problem.Conflict, "the mesh was restored and is held, so that it touches no machine: "+
			"coopr operator resume ends that")
	}
	address := cmp.Or(n.IPAddresses["access_v4"], n.IPAddresses["bind_v4"])
	if address == "" {
		return problem.New(problem.Conflict, "node %s has no address: its machine was not made yet, or is gone", n.ID)
	}
	uses := slices.DeleteFunc(hostexec.Cluster(cl), func(u hostexec.Use) bool { return u.Interpreter != "" })
	if err := (hostexec.Rules{}).Ask(who, uses); err != nil {
		return err
	}
	id := l.Watcher.Reaches(ctx, member.CommandPlugin, n.AgentMachine(), n.ID)
	agents := v.Agents()
	at := slices.IndexFunc(agents, func(a model.Agent) bool { return a.ID == id })
	if at < 0 {
		return problem.New(problem.Busy, "no agent that reaches node %s is there%s", n.ID, onMachine(n))
	}
	noted, err := propose(ctx, o.Supervisor, who, &pb.Command{Change: &pb.Command_NoteIncidents{NoteIncidents: &pb.NoteIncidents{
		Incidents: []*pb.Incident{{Type: i.Type, Tenant: i.Tenant, Actor: i.Actor, Action: i.Action, Object: i.Object, Source: i.Source,
			Agent: i.Agent, Request: i.Request}},
	}}})
	switch {
	case err != nil:
		return err
	case noted.Repeated:
		return problem.New(problem.Conflict, "this request has opened its connection before, and that was lost: open another one")
	}
	first := &pb.ForwardUp{Address: net.JoinHostPort(address, strconv.Itoa(port)), OwnHost: n.AgentMachine() != "" && len(uses) > 0}
	err = o.forward(ctx, wire.Target{Addr: agents[at].PeerAddr, ID: id}.String(), first, begun, up, down)
	name := agents[at].Name
	switch status.Code(err) {
	case codes.Unimplemented:
		return problem.New(problem.Conflict, "agent %s is of an older build and forwards no ports: upgrade it", name)
	case codes.ResourceExhausted:
		return problem.New(problem.Busy, "agent %s: %s", name, status.Convert(err).Message())
	case codes.PermissionDenied, codes.FailedPrecondition, codes.InvalidArgument:
		return problem.New(problem.Conflict, "agent %s: %s", name, status.Convert(err).Message())
	}
	return err
}

// forward has an agent open a connection, and copies its bytes.
func (o *Operations) forward(ctx context.Context, addr string, first *pb.ForwardUp, begun func() error, up io.Reader, down io.Writer) error {
	c, err := o.Peers.Client(addr)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx) // ends the connection if either side fails
	defer cancel()
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
	if err := begun(); err != nil {
		return err
	}
	go func() {
		for buf := make([]byte, 32<<10); ; {
			n, err := up.Read(buf)
			if n > 0 && s.Send(&pb.ForwardUp{Data: buf[:n]}) != nil {
				return // Recv returns the error
			}
			switch {
			case errors.Is(err, io.EOF):
				_ = s.CloseSend()
				return
			case err != nil:
				cancel()
				return
			}
		}
	}()
	for {
		piece, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			_, err = down.Write(piece.Data)
		}
		if err != nil {
			return err
		}
	}
}
