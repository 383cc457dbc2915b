package agent

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
	pb "github.com/coopr/coopr/rpc/proto"
)

// inventory is who lists and removes what providers made; the plugin host is one.
type inventory interface {
	List(ctx context.Context, provider string, req *pb.ListRequest, found func(*pb.Resource) error) error
	Remove(ctx context.Context, provider string, req *pb.RemoveRequest) error
}

// listPage is how many resources go into one message between agents.
const listPage = 256

// ListResources asks this agent's plugin.
func (p *peerServer) ListResources(req *pb.ListResourcesRequest, s grpc.ServerStreamingServer[pb.ListResourcesResponse]) error {
	made, ok := p.agent.executor.(inventory)
	if !ok {
		return status.Error(codes.Unimplemented, "this agent runs no plugins")
	}
	page := &pb.ListResourcesResponse{Machine: p.agent.machine}
	err := made.List(s.Context(), req.Provider, req.Request, func(r *pb.Resource) error {
		r.Output = nil // its results may hold keys, and nobody wants them
		if page.Resources = append(page.Resources, r); len(page.Resources) < listPage {
			return nil
		}
		err := s.Send(page)
		page = &pb.ListResourcesResponse{Machine: p.agent.machine}
		return err
	})
	if err != nil {
		return err
	}
	return s.Send(page)
}

// RemoveResource asks this agent's plugin.
func (p *peerServer) RemoveResource(ctx context.Context, req *pb.RemoveResourceRequest) (*pb.RemoveResponse, error) {
	made, ok := p.agent.executor.(inventory)
	if !ok {
		return nil, status.Error(codes.Unimplemented, "this agent runs no plugins")
	}
	if n := req.Request.GetResources(); n > 0 {
		set, err := p.agent.shelf.set(ctx, req.Request.Tenant, n)
		if err != nil {
			return nil, err
		}
		dir, release, err := p.agent.shelf.lay(ctx, set.Of(model.KindProviderType, req.Provider))
		if err != nil {
			return nil, err
		}
		defer release()
		req.Request.ResourcesDir = dir
	}
	return &pb.RemoveResponse{}, made.Remove(ctx, req.Provider, req.Request)
}

// Orphans gives what was found last, or with look asks the providers now.
func (b *backend) Orphans(ctx context.Context, look bool) (model.OrphanReport, error) {
	_, l, ok := b.supervisor.Leader()
	if !ok {
		return model.OrphanReport{}, problem.NoLeader
	}
	if !look {
		return l.Orphans.Report(), nil
	}
	return l.Orphans.Look(ctx)
}

// RemoveOrphan removes one of those that were found last.
func (b *backend) RemoveOrphan(ctx context.Context, who model.Caller, id string) (api.Written, error) {
	_, l, ok := b.supervisor.Leader()
	if !ok {
		return api.Written{}, problem.NoLeader
	}
	index, err := l.Orphans.Remove(ctx, who, id, "asked for")
	return api.Written{Index: index}, err
}
