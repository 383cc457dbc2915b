package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coopr/coopr/consensus/duty/janitor"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	pb "github.com/coopr/coopr/rpc/proto"
)

// listTime is how long one agent's provider may take to list all its machines,
// removeTime to remove one.
const (
	listTime   = 2 * time.Minute
	removeTime = 5 * time.Minute
)

// finder asks the agents' plugins for their machines (janitor.Finder).
type finder struct {
	a *Agent
	m *member
}

// offering gives the agents that have a provider type's plugin, and whether some
// that have it cannot be asked now.
func (f finder) offering(providertype string) (asked []model.Agent, all bool) {
	all = true
	for _, r := range f.m.Machine.View().Agents() {
		if _, ok := r.Plugins["provider/"+providertype]; !ok || r.Left {
			continue
		}
		if !r.Alive {
			all = false
			continue
		}
		asked = append(asked, r)
	}
	return asked, all
}

func (f finder) perMachine(providertype string) bool {
	for _, t := range f.m.Machine.View().PluginTypes() {
		if t.Class == "provider" && t.Name == providertype {
			return t.PerMachine
		}
	}
	return false
}

// List asks one agent that can, or, where machines live with agents, all.
func (f finder) List(ctx context.Context, p *model.Provider, tenant string) (found []*pb.Resource, asked map[string]bool, whole bool, err error) {
	fields, err := json.Marshal(p.Provisioner)
	if err != nil {
		return nil, nil, false, err
	}
	agents, all := f.offering(p.ProviderType)
	if len(agents) == 0 {
		return nil, nil, false, fmt.Errorf("no agent that offers provider type %s can be asked", p.ProviderType)
	}
	req := &pb.ListResourcesRequest{Provider: p.ProviderType, Request: &pb.ListRequest{Tenant: tenant, Mesh: f.m.Machine.View().Mesh(), Fields: fields}}
	every := f.perMachine(p.ProviderType)
	asked, seen := map[string]bool{}, map[string]bool{}
	var errs error
	for _, r := range agents {
		list, machine, err := f.ask(ctx, r, req)
		for _, x := range list {
			if !seen[x.Id] {
				seen[x.Id] = true
				found = append(found, x)
			}
		}
		if err != nil {
			errs = errors.Join(errs, fmt.Errorf("agent %s: %w", r.Name, err))
			continue
		}
		asked[machine] = true
		if !every {
			return found, asked, true, nil
		}
	}
	return found, asked, every && all && errs == nil, errs
}

// ask lists by one agent's plugin.
func (f finder) ask(ctx context.Context, r model.Agent, req *pb.ListResourcesRequest) (found []*pb.Resource, machine string, err error) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	c, err := f.a.pool.Client(r.PeerAddr)
	if err != nil {
		return nil, "", err
	}
	s, err := c.ListResources(ctx, req)
	for err == nil {
		var page *pb.ListResourcesResponse
		if page, err = s.Recv(); err == nil {
			found, machine = append(found, page.Resources...), page.Machine
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return found, machine, plain(err)
}

// plain takes an error of another agent's for what it says.
func plain(err error) error {
	if s, ok := status.FromError(err); ok && err != nil && s.Code() == codes.Unknown {
		return errors.New(s.Message())
	}
	return err
}

// Remove asks the agents in turn: where machines live with agents, only one finds it.
func (f finder) Remove(ctx context.Context, p *model.Provider, tenant string, x *pb.Resource) error {
	fields, err := json.Marshal(p.Provisioner)
	if err != nil {
		return err
	}
	agents, _ := f.offering(p.ProviderType)
	req := &pb.RemoveResourceRequest{Provider: p.ProviderType, Request: &pb.RemoveRequest{Tenant: tenant, Mesh: f.m.Machine.View().Mesh(), Fields: fields, Resource: x}}
	if set, ok := f.m.Machine.View().ResourcesInForce(tenant); ok {
		req.Request.Resources = set.Number
	}
	every := f.perMachine(p.ProviderType)
	errs := fmt.Errorf("no agent that offers provider type %s can be asked", p.ProviderType)
	for i, r := range agents {
		if i == 0 {
			errs = nil
		}
		err := f.remove(ctx, r, req)
		if err == nil && !every {
			return nil
		}
		if err != nil {
			errs = errors.Join(errs, fmt.Errorf("agent %s: %w", r.Name, err))
		}
	}
	return errs
}

func (f finder) remove(ctx context.Context, r model.Agent, req *pb.RemoveResourceRequest) error {
	ctx, cancel := context.WithTimeout(ctx, removeTime)
	defer cancel()
	c, err := f.a.pool.Client(r.PeerAddr)
	if err != nil {
		return err
	}
	_, err = c.RemoveResource(ctx, req)
	return plain(err)
}

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
	_, l, ok := b.leader()
	if !ok {
		return model.OrphanReport{}, api.ErrNoLeader
	}
	if !look {
		return l.orphans.Report(), nil
	}
	return l.orphans.Look(ctx)
}

// RemoveOrphan removes one of those that were found last.
func (b *backend) RemoveOrphan(ctx context.Context, who model.Caller, id string) (api.Written, error) {
	_, l, ok := b.leader()
	if !ok {
		return api.Written{}, api.ErrNoLeader
	}
	index, err := l.orphans.Remove(ctx, who, id, "asked for")
	switch {
	case errors.Is(err, janitor.ErrNoOrphan):
		return api.Written{}, fmt.Errorf("%w: %w", api.ErrNotFound, err)
	case errors.Is(err, janitor.ErrNotRemoved):
		return api.Written{}, fmt.Errorf("%w: %w", api.ErrConflict, err)
	}
	return api.Written{Index: index}, mapError(err)
}
