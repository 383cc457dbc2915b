package service

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coopr/coopr/agent/member"
	"github.com/coopr/coopr/engine/hostexec"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/plugins/host"
	"github.com/coopr/coopr/rpc/api"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/wire"
)

// RunCommand runs a command on a node of the caller's tenant through an agent that reaches it, and calls emit with each line of its output
// and its end. It writes the incident to the audit log before the command begins. Only the leader can.
func (o *Operations) RunCommand(ctx context.Context, who model.Caller, node string, c api.NodeCommand, i model.Incident,
	emit func(api.CommandLine) error) error {
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
	case len(n.IPAddresses) == 0:
		return problem.New(problem.Conflict, "node %s has no address: its machine was not made yet, or is gone", n.ID)
	}
	// A program on the node is not code that an automator interprets on a control host.
	uses := slices.DeleteFunc(hostexec.Cluster(cl), func(u hostexec.Use) bool { return u.Interpreter != "" })
	if err := (hostexec.Rules{}).Ask(who, uses); err != nil {
		return err
	}
	id := l.Watcher.Reaches(ctx, member.CommandPlugin, n.AgentMachine(), n.ID)
	agents := v.Agents()
	at := slices.IndexFunc(agents, func(a model.Agent) bool { return a.ID == id })
	if at < 0 {
		return problem.New(problem.Busy, "no agent that reaches node %s is there: it needs the plugin %s%s", n.ID, member.CommandPlugin,
			onMachine(n))
	}
	limit := time.Duration(c.Timeout) * time.Second
	if limit == 0 {
		limit = api.CommandTime * time.Second
	}
	noted, err := propose(ctx, o.Supervisor, who, &pb.Command{Change: &pb.Command_NoteIncidents{NoteIncidents: &pb.NoteIncidents{
		Incidents: []*pb.Incident{{Type: i.Type, Tenant: i.Tenant, Actor: i.Actor, Action: i.Action, Object: i.Object, Source: i.Source,
			Agent: i.Agent, Request: i.Request}},
	}}})
	switch {
	case err != nil:
		return err
	case noted.Repeated:
		return problem.New(problem.Conflict, "this request has begun the command before, and its output was lost: see what the command has "+
			"done before you run it again")
	}
	task, err := m.CommandTask(v, cl, n, noted.Index, c.Command, limit)
	if err != nil {
		return err
	}
	if err := emit(api.CommandLine{Begun: true}); err != nil {
		return err
	}
	err = o.runCommand(ctx, wire.Target{Addr: agents[at].PeerAddr, ID: id}.String(), task, emit)
	name := agents[at].Name
	switch status.Code(err) {
	case codes.Unimplemented:
		return problem.New(problem.Conflict, "agent %s is of an older build and cannot run commands: upgrade it", name)
	case codes.ResourceExhausted:
		return problem.New(problem.Busy, "agent %s: %s", name, status.Convert(err).Message())
	}
	if err != nil && ctx.Err() == nil {
		return problem.New(problem.UnknownOutcome, "agent %s was lost, so it is unknown what the command has done: %w", name, err)
	}
	return err
}

// onMachine returns the condition that a node on an agent's machine sets for its agent.
func onMachine(n *model.Node) string {
	if n.AgentMachine() == "" {
		return ""
	}
	return ", and to be on the machine of the node"
}

// runCommand has an agent carry out a command's task.
func (o *Operations) runCommand(ctx context.Context, addr string, task *pb.Task, emit func(api.CommandLine) error) error {
	c, err := o.Peers.Client(addr)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx) // ends the command if emit fails
	defer cancel()
	s, err := c.RunCommand(ctx, &pb.RunCommandRequest{Task: task})
	if err != nil {
		return err
	}
	for {
		piece, err := s.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return io.ErrUnexpectedEOF // there was no result
		case err != nil:
			return err
		case piece.Result != nil:
			return emit(commandEnd(piece.Result))
		}
		if err := emit(api.CommandLine{Text: piece.Text, Stderr: piece.Stderr, Continued: len(piece.Text) >= host.MaxLogLine}); err != nil {
			return err
		}
	}
}

// commandEnd returns the end of a command whose task had this result.
func commandEnd(r *pb.Result) api.CommandLine {
	end := api.CommandLine{End: true}
	var out struct {
		Result struct {
			Exit *int `json:"exit"`
		} `json:"result"`
	}
	if json.Unmarshal(r.Output, &out) == nil && out.Result.Exit != nil {
		end.Exit = out.Result.Exit
		return end
	}
	if end.Message = r.Message; end.Message == "" {
		end.Message = "it is unknown how the command ended"
	}
	return end
}
