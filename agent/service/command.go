package service

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coopr/coopr/engine/hostexec"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/plugins/host"
	"github.com/coopr/coopr/rpc/api"
	pb "github.com/coopr/coopr/rpc/proto"
)

// RunCommand runs a command on a node of the caller's tenant through an agent that reaches it, and calls emit with each line of its output
// and its end. It writes the incident to the audit log before the command begins. Only the leader can.
func (o *Operations) RunCommand(ctx context.Context, who model.Caller, node string, c api.NodeCommand, i model.Incident,
	emit func(api.CommandLine) error) error {
	u, err := useNode(o.Supervisor, who, node)
	if err != nil {
		return err
	}
	n := u.node
	if len(n.IPAddresses) == 0 {
		return problem.New(problem.Conflict, "node %s has no address: its machine was not made yet, or is gone", n.ID)
	}
	if err := (hostexec.Rules{}).Ask(who, u.programs()); err != nil {
		return err
	}
	agent, err := u.agent(ctx)
	if err != nil {
		return err
	}
	limit := time.Duration(c.Timeout) * time.Second
	if limit == 0 {
		limit = api.CommandTime * time.Second
	}
	noted, err := noteIncident(ctx, o.Supervisor, who, i)
	switch {
	case err != nil:
		return err
	case noted.Repeated:
		return problem.New(problem.Conflict, "this request has begun the command before, and its output was lost: see what the command has "+
			"done before you run it again")
	}
	task, err := u.member.CommandTask(u.view, u.cluster, n, noted.Index, c.Command, limit)
	if err != nil {
		return err
	}
	if err := emit(api.CommandLine{Begun: true}); err != nil {
		return err
	}
	err = o.runCommand(ctx, target(agent), task, emit)
	switch status.Code(err) {
	case codes.Unimplemented:
		return problem.New(problem.Conflict, "agent %s is of an older build and cannot run commands: upgrade it", agent.Name)
	case codes.ResourceExhausted:
		return problem.New(problem.Busy, "agent %s: %s", agent.Name, status.Convert(err).Message())
	}
	if err != nil && ctx.Err() == nil {
		return problem.New(problem.UnknownOutcome, "agent %s was lost, so it is unknown what the command has done: %w", agent.Name, err)
	}
	return err
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
