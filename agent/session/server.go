package session

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coopr/coopr/agent/member"
	"github.com/coopr/coopr/consensus/duty/dispatch"
	"github.com/coopr/coopr/consensus/duty/sites"
	"github.com/coopr/coopr/consensus/duty/watch"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/wire"
)

// Server serves the leader's end of sessions.
type Server struct {
	Supervisor *member.Supervisor
}

// stream is the leader's end of a session's stream.
type stream interface {
	Context() context.Context
	Send(*pb.LeaderMessage) error
	Recv() (*pb.WorkerMessage, error)
}

// Session serves the session of another agent's worker, if this agent leads.
func (s Server) Session(in grpc.BidiStreamingServer[pb.WorkerMessage, pb.LeaderMessage]) error {
	caller, _ := wire.CallerID(in.Context())
	return s.serve(in, caller)
}

// serve serves a session until it ends. caller is the agent that the stream's
// certificate names, or "" on a network without certificates.
func (s Server) serve(in stream, caller string) error {
	first, err := in.Recv()
	if err != nil {
		return err
	}
	h := first.Hello
	if h == nil || h.Agent == "" {
		return status.Error(codes.InvalidArgument, "the first message of a session must be a hello")
	}
	if caller != "" && caller != h.Agent {
		return status.Errorf(codes.PermissionDenied, "agent %s claims to be agent %s", caller, h.Agent)
	}
	m, l, err := s.Supervisor.AwaitReady(in.Context())
	if err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	out := newSender(in)
	defer out.Close()
	id := rand.Text()
	if err := l.Dispatcher.Open(in.Context(), id, h, out); err != nil {
		var no *dispatch.Refusal
		if errors.As(err, &no) { // nothing else is sent over this stream
			return in.Send(&pb.LeaderMessage{Refused: &pb.Refused{Incarnation: no.Incarnation}})
		}
		return status.Error(codes.Unavailable, err.Error())
	}
	defer l.SessionBroken(id, h.Agent)
	defer l.Dispatcher.Gone(id, out)
	l.Watcher.Join(id, watch.Worker{Agent: h.Agent, Machine: h.Machine, Plugins: pluginKeys(h), Send: out.Send})
	defer l.Watcher.Leave(id)
	l.Sites.Join(id, sites.Runtime{Agent: h.Agent, Name: h.Name, Machine: h.Machine, Process: h.Process, Send: out.Send})
	defer l.Sites.Leave(id)
	// A new worker receives the agent registry right after its welcome.
	out.Send(&pb.LeaderMessage{Registry: m.RegistryMessage(m.Machine.View().Agents())})
	defer l.Clocks.Leave(id)
	defer l.Keys.Followers.Leave(id)
	received := make(chan error, 1)
	go func() { received <- receive(in, m.Machine, l, id, h, out) }()
	select {
	case err := <-received:
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	case <-out.closed:
		return status.Error(codes.Unavailable, "this agent no longer leads, or the agent has opened another session")
	case <-in.Context().Done():
		return in.Context().Err()
	}
}

// receive passes the messages of a worker to the duties until the stream ends.
func receive(in stream, machine *state.Machine, l *member.Leadership, id string, h *pb.Hello, out *sender) error {
	ctx := in.Context()
	d := l.Dispatcher
	var compared uint64 // what the agent has of the clocks
	for {
		m, err := in.Recv()
		if err != nil {
			return err
		}
		if m.Heartbeat > 0 || m.Leaving {
			d.Hear(id, m.Heartbeat, m.Leaving)
		}
		if m.Heartbeat > 0 {
			l.Keys.Followers.Hear(id, h.Agent, m.Gossip, m.Cas)
		}
		if m.ClockMs > 0 {
			l.Clocks.Hear(id, h.Agent, h.Name, time.Until(time.UnixMilli(m.ClockMs)))
			if differ, n := l.Clocks.Differ(); n != compared {
				compared = n
				out.Send(&pb.LeaderMessage{Clocks: differ, ClocksChanged: true})
			}
		}
		if len(m.Used) > 0 {
			l.Uses.Note(model.Hour(time.Now().UnixMilli()), m.Used...)
		}
		for _, i := range m.Incidents {
			if x, ok := reported(machine.View(), h.Name, i); ok {
				l.Incidents.Report(x)
			}
		}
		// Commits keep the order of arrival, but the worker's next message does not
		// wait for them.
		if len(m.Saves) > 0 {
			if err := d.Save(ctx, id, m.Saves, m.LastSave); err != nil {
				return status.Error(codes.Unavailable, err.Error()) // the next hello repeats them, and what follows them
			}
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
		if len(m.Runtimes) > 0 {
			l.Sites.Hear(id, m.Runtimes)
		}
		if len(m.Started) > 0 {
			d.Started(ctx, id, m.Started)
		}
		if len(m.Returned) > 0 {
			d.Returned(ctx, id, m.Returned)
		}
	}
}

// pluginKeys returns the keys of the plugins that a worker offers.
func pluginKeys(h *pb.Hello) map[string]bool {
	out := map[string]bool{}
	for _, m := range h.Plugins {
		if t, err := logformat.DecodePluginType(m); err == nil {
			out[t.Key()] = true
		}
	}
	return out
}
