package executor

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/host"
	pb "github.com/coopr/coopr/rpc/proto"
)

// inventory is a host.Executor that also lists and removes what its providers made;
// *host.Host is one.
type inventory interface {
	List(ctx context.Context, provider string, req *pb.ListRequest, found func(*pb.Resource) error) error
	Remove(ctx context.Context, provider string, req *pb.RemoveRequest) error
}

// Server lists and removes machines with this agent's provider plugins, for the
// leader's search for orphaned machines.
type Server struct {
	Plugins   host.Executor
	Resources Resources
	Machine   string // names this agent's machine
}

// pageSize is how many machines go into one message.
const pageSize = 256

func (s Server) inventory() (inventory, error) {
	if i, ok := s.Plugins.(inventory); ok {
		return i, nil
	}
	return nil, status.Error(codes.Unimplemented, "this agent runs no plugins")
}

// ListResources lists the machines that a provider made.
func (s Server) ListResources(req *pb.ListResourcesRequest, out grpc.ServerStreamingServer[pb.ListResourcesResponse]) error {
	provider, err := s.inventory()
	if err != nil {
		return err
	}
	page := &pb.ListResourcesResponse{Machine: s.Machine}
	err = provider.List(out.Context(), req.Provider, req.Request, func(r *pb.Resource) error {
		r.Output = nil // a machine's results may hold keys, and the leader does not use them
		if page.Resources = append(page.Resources, r); len(page.Resources) < pageSize {
			return nil
		}
		err := out.Send(page)
		page = &pb.ListResourcesResponse{Machine: s.Machine}
		return err
	})
	if err != nil {
		return err
	}
	return out.Send(page)
}

// RemoveResource removes a machine that a provider made.
func (s Server) RemoveResource(ctx context.Context, req *pb.RemoveResourceRequest) (*pb.RemoveResponse, error) {
	provider, err := s.inventory()
	if err != nil {
		return nil, err
	}
	if n := req.Request.GetResources(); n > 0 {
		dir, release, err := s.Resources.Planned(ctx, req.Request.Tenant, n, model.KindProviderType, req.Provider)
		if err != nil {
			return nil, err
		}
		defer release()
		req.Request.ResourcesDir = dir
	}
	return &pb.RemoveResponse{}, provider.Remove(ctx, req.Provider, req.Request)
}
