package worker

import (
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/coopr/coopr/rpc/proto"
)

// followInterval is how often a followed log is read again at its end.
const followInterval = 200 * time.Millisecond

// Server serves the logs of attempts that ran on this agent to other agents.
type Server struct {
	Worker *Worker
	Logs   *Logs
}

// TaskLog streams the log of an attempt. With Follow, it continues until the attempt
// has ended.
func (s Server) TaskLog(r *pb.TaskLogRequest, out grpc.ServerStreamingServer[pb.TaskLogResponse]) error {
	f, fence, err := s.Logs.Open(r.Task, r.Fence)
	if errors.Is(err, ErrNoLog) {
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
			if err := out.Send(&pb.TaskLogResponse{Data: buf[:n], Fence: fence}); err != nil {
				return err
			}
		}
		switch {
		case err == nil:
		case !errors.Is(err, io.EOF):
			return err
		case !r.Follow || !s.Worker.Holds(r.Task, fence):
			return nil
		default:
			select {
			case <-out.Context().Done():
				return out.Context().Err()
			case <-time.After(followInterval):
			}
		}
	}
}
