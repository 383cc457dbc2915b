package bundle

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coopr/coopr/agent/member"
	"github.com/coopr/coopr/agent/mesh"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/internal/logtap"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/wire"
)

// Inspector shows this agent, and asks others to show themselves. Only voters may ask others: what a worker was sent to say in the
// name of an operator would be worth nothing.
type Inspector struct {
	Self       *Agent
	Supervisor interface{ Member() *member.Member }
	Gossip     interface{ Members() []mesh.Member }
	Peers      interface {
		Client(addr string) (pb.PeerClient, error)
	}
}

// Log copies the log of an agent, by id or name, to w. Without follow, that is the latest lines as they were printed; else new lines of
// a level (debug, info, warn or error) and of higher ones, until ctx ends. It fails with problem.NoLeader if this agent may not ask
// others.
func (i *Inspector) Log(ctx context.Context, agent, level string, follow bool, w io.Writer) error {
	r := &pb.AgentLogRequest{Level: level, Follow: follow}
	return i.show(ctx, agent, w, func(w io.Writer) error { return i.Self.log(ctx, r, w) },
		func(c pb.PeerClient) (grpc.ServerStreamingClient[pb.AgentPiece], error) { return c.AgentLog(ctx, r) })
}

// Examine copies an archive (tar.gz) with the inner state of an agent, by id or name, to w. The agent measures over some seconds. It
// fails with problem.NoLeader if this agent may not ask others.
func (i *Inspector) Examine(ctx context.Context, agent string, seconds int, w io.Writer) error {
	r := &pb.ExamineRequest{Seconds: uint32(seconds)}
	return i.show(ctx, agent, w, func(w io.Writer) error { return i.Self.examine(ctx, r, w) },
		func(c pb.PeerClient) (grpc.ServerStreamingClient[pb.AgentPiece], error) { return c.Examine(ctx, r) })
}

// show copies what this agent shows itself, or what another one answers.
func (i *Inspector) show(ctx context.Context, agent string, w io.Writer, self func(io.Writer) error,
	ask func(pb.PeerClient) (grpc.ServerStreamingClient[pb.AgentPiece], error)) error {
	m, err := i.find(agent)
	if err != nil {
		return err
	}
	if m.ID == i.Self.ID {
		return self(w)
	}
	if i.Supervisor.Member() == nil {
		return problem.NoLeader
	}
	c, err := i.Peers.Client(wire.Target{Addr: m.RPCAddr, ID: m.ID}.String())
	if err != nil {
		return err
	}
	s, err := ask(c)
	for err == nil {
		var piece *pb.AgentPiece
		if piece, err = s.Recv(); err == nil {
			_, err = w.Write(piece.Data)
		}
	}
	switch status.Code(err) {
	case codes.Unimplemented:
		return problem.New(problem.Conflict, "agent %s is of an older build and cannot show this: upgrade it", m.Name)
	case codes.ResourceExhausted, codes.FailedPrecondition:
		return problem.New(problem.Conflict, "agent %s: %s", m.Name, status.Convert(err).Message())
	}
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return problem.New(problem.Conflict, "agent %s does not answer: %w", m.Name, err)
}

// find returns the agent with an id or name. Several may have had the same name, so one that is alive counts more.
func (i *Inspector) find(agent string) (found mesh.Member, err error) {
	ok := false
	for _, m := range i.Gossip.Members() {
		if m.ID == agent {
			return m, nil
		}
		if m.Name == agent && (!ok || m.Alive()) {
			found, ok = m, true
		}
	}
	if !ok {
		return found, problem.New(problem.NotFound, "there is no agent %q: coopr members lists them", agent)
	}
	return found, nil
}

// Server shows this agent to others.
type Server struct{ Agent *Agent }

// AgentLog streams this agent's log.
func (s Server) AgentLog(r *pb.AgentLogRequest, out grpc.ServerStreamingServer[pb.AgentPiece]) error {
	return asStatus(s.Agent.log(out.Context(), r, pieces{out}))
}

// Examine streams the archive of this agent's examination.
func (s Server) Examine(r *pb.ExamineRequest, out grpc.ServerStreamingServer[pb.AgentPiece]) error {
	return asStatus(s.Agent.examine(out.Context(), r, pieces{out}))
}

// asStatus keeps the text of an error that callers can do something about.
func asStatus(err error) error {
	if errors.Is(err, problem.Conflict) {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	return err
}

// pieces sends what is written in small messages.
type pieces struct {
	out grpc.ServerStreamingServer[pb.AgentPiece]
}

func (p pieces) Write(data []byte) (n int, err error) {
	const most = 64 << 10
	for {
		part := data[n:min(n+most, len(data))]
		if err := p.out.Send(&pb.AgentPiece{Data: part}); err != nil {
			return n, err
		}
		if n += len(part); n == len(data) {
			return n, nil
		}
	}
}

// log copies this agent's log to w.
func (a *Agent) log(ctx context.Context, r *pb.AgentLogRequest, w io.Writer) error {
	tap := logtap.Of(a.Logger)
	if tap == nil {
		return problem.New(problem.Conflict, "this agent keeps no log")
	}
	if !r.Follow {
		_, err := w.Write(tap.Tail(mostLog))
		return err
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(r.Level)); err != nil {
		return problem.New(problem.Conflict, "%q is not a level: use debug, info, warn or error", r.Level)
	}
	f := tap.Follow(level)
	defer f.Close()
	_, err := w.Write(nil) // the reader of a silent agent must know that it was found
	for err == nil {
		var lines []byte
		if lines, err = f.Next(ctx); err == nil {
			_, err = w.Write(lines)
		}
	}
	return err
}
