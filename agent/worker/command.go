package worker

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coopr/coopr/plugins/host"
	pb "github.com/coopr/coopr/rpc/proto"
)

const (
	// commandsAtOnce bounds the commands that run at a time through one agent. Further ones are refused.
	commandsAtOnce = 16
	// maxCommandOutput bounds the output of a command, in bytes, for which each line counts lineCost more. A command with more is ended.
	maxCommandOutput, lineCost = 4 << 20, 64
)

// unplanned carries out tasks that belong to no plan; *executor.Executor does.
type unplanned interface {
	ExecuteUnplanned(ctx context.Context, t *pb.Task, sink host.Sink) *pb.Result
}

// newCommands returns what limits the commands of an agent.
func newCommands() *semaphore.Weighted { return semaphore.NewWeighted(commandsAtOnce) }

// RunCommand runs a command on a node and streams its output, and its result at last. It ends the command when the caller goes.
func (s Server) RunCommand(r *pb.RunCommandRequest, out grpc.ServerStreamingServer[pb.RunCommandPiece]) error {
	exec, ok := s.Worker.cfg.Executor.(unplanned)
	if !ok || r.Task == nil {
		return status.Error(codes.Unimplemented, "this agent runs no commands")
	}
	if !s.Worker.commands.TryAcquire(1) {
		return status.Errorf(codes.ResourceExhausted, "%d commands run through this agent already; wait for one of them to end", commandsAtOnce)
	}
	defer s.Worker.commands.Release(1)
	ctx, cancel := context.WithTimeout(out.Context(), millis(r.Task.TimeoutMs)+5*time.Second) // the plugin's host enforces the timeout itself
	defer cancel()
	sink := &commandSink{ctx: ctx, end: cancel, lines: make(chan *pb.RunCommandPiece)}
	result := make(chan *pb.Result, 1)
	go func() { result <- exec.ExecuteUnplanned(ctx, r.Task, sink) }()
	var failed error // to send
	for {
		select {
		case line := <-sink.lines:
			if failed = out.Send(line); failed != nil {
				cancel()
			}
		case res := <-result:
			if failed != nil {
				return failed
			}
			if sink.size > maxCommandOutput {
				res.Output, res.Message = nil, fmt.Sprintf("its output was longer than %d bytes, each line counted with %d bytes more",
					maxCommandOutput, lineCost)
			}
			return out.Send(&pb.RunCommandPiece{Result: res})
		}
	}
}

// commandSink passes the output of a command on, line by line, to the goroutine that sends it.
type commandSink struct {
	host.Discard
	ctx   context.Context
	end   func() // ends the command
	lines chan *pb.RunCommandPiece
	size  int
}

// Log passes a line on. It is called by one goroutine at a time.
func (c *commandSink) Log(l *pb.LogLine) {
	if c.size > maxCommandOutput {
		return
	}
	if c.size += len(l.Text) + lineCost; c.size > maxCommandOutput {
		c.end()
		return
	}
	select {
	case c.lines <- &pb.RunCommandPiece{Text: l.Text, Stderr: l.Stderr}:
	case <-c.ctx.Done():
	}
}
