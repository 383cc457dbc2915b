package objects

import (
	"google.golang.org/grpc"

	pb "github.com/coopr/coopr/rpc/proto"
)

// Server serves this agent's host runtime to other agents.
type Server struct{ Runtime *Runtime }

// Changes serves a stream of another agent's host runtime.
func (s Server) Changes(stream grpc.BidiStreamingServer[pb.ChangePacket, pb.ChangePacket]) error {
	return s.Runtime.Serve(stream)
}
