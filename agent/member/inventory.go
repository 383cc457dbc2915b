package member

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
)

const (
	listTimeout   = 2 * time.Minute // for one agent to list all machines of a provider
	removeTimeout = 5 * time.Minute // for one agent to remove one machine
)

// inventory lists and removes the machines of providers through the plugins of
// other agents. It implements janitor.Finder.
type inventory struct {
	machine  *state.Machine
	peers    Peers
	removals *removals
}

// agents returns the live agents that offer a provider type. all is false if a
// dead agent offers it too.
func (i inventory) agents(providerType string) (live []model.Agent, all bool) {
	all = true
	for _, a := range i.machine.View().Agents() {
		if _, ok := a.Plugins["provider/"+providerType]; !ok || a.Left {
			continue
		}
		if !a.Alive {
			all = false
			continue
		}
		live = append(live, a)
	}
	return live, all
}

// perMachine reports whether each agent sees only the machines of its own host.
func (i inventory) perMachine(providerType string) bool {
	for _, t := range i.machine.View().PluginTypes() {
		if t.Class == "provider" && t.Name == providerType {
			return t.PerMachine
		}
	}
	return false
}

func noAgentFor(providerType string) error {
	return fmt.Errorf("no live agent offers provider type %s", providerType)
}

// List returns the machines that a provider made. It asks one agent or, if each
// agent sees only the machines of its own host, all of them. hosts has the names
// of the hosts whose agents answered. complete reports whether found has every
// machine. found and hosts are valid even if there is an error.
func (i inventory) List(ctx context.Context, p *model.Provider, tenant string) (found []*pb.Resource, hosts map[string]bool, complete bool,
	err error) {
	fields, err := json.Marshal(p.Provisioner)
	if err != nil {
		return nil, nil, false, err
	}
	agents, all := i.agents(p.ProviderType)
	if len(agents) == 0 {
		return nil, nil, false, noAgentFor(p.ProviderType)
	}
	req := &pb.ListResourcesRequest{
		Provider: p.ProviderType,
		Request:  &pb.ListRequest{Tenant: tenant, Mesh: i.machine.View().Mesh(), Fields: fields},
	}
	every := i.perMachine(p.ProviderType)
	hosts, seen := map[string]bool{}, map[string]bool{}
	var errs error
	for _, a := range agents {
		list, host, err := i.list(ctx, a, req)
		for _, x := range list {
			if !seen[x.Id] {
				seen[x.Id] = true
				found = append(found, x)
			}
		}
		if err != nil {
			errs = errors.Join(errs, fmt.Errorf("agent %s: %w", a.Name, err))
			continue
		}
		hosts[host] = true
		if !every {
			return found, hosts, true, nil
		}
	}
	return found, hosts, every && all && errs == nil, errs
}

// list returns the machines that one agent's plugin sees, and the name of the
// agent's host.
func (i inventory) list(ctx context.Context, a model.Agent, req *pb.ListResourcesRequest) (found []*pb.Resource, host string, err error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	c, err := i.peers.Client(a.PeerAddr)
	if err != nil {
		return nil, "", err
	}
	s, err := c.ListResources(ctx, req)
	for err == nil {
		var page *pb.ListResourcesResponse
		if page, err = s.Recv(); err == nil {
			found, host = append(found, page.Resources...), page.Machine
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return found, host, withoutCode(err)
}

// withoutCode returns the message of another agent's plain error, without
// the words that gRPC puts around it.
func withoutCode(err error) error {
	if s, ok := status.FromError(err); ok && err != nil && s.Code() == codes.Unknown {
		return errors.New(s.Message())
	}
	return err
}

// Remove removes a machine. It asks the agents in turn until one succeeds; if each
// agent sees only its own machines, it asks all of them.
func (i inventory) Remove(ctx context.Context, p *model.Provider, tenant string, x *pb.Resource) error {
	fields, err := json.Marshal(p.Provisioner)
	if err != nil {
		return err
	}
	agents, _ := i.agents(p.ProviderType)
	if len(agents) == 0 {
		return noAgentFor(p.ProviderType)
	}
	v := i.machine.View()
	req := &pb.RemoveResourceRequest{
		Provider: p.ProviderType,
		Request:  &pb.RemoveRequest{Tenant: tenant, Mesh: v.Mesh(), Fields: fields, Resource: x},
	}
	if set, ok := v.ResourcesInForce(tenant); ok {
		req.Request.Resources = set.Number
	}
	every := i.perMachine(p.ProviderType)
	var errs error
	for _, a := range agents {
		err := i.remove(ctx, a, req)
		if err == nil && !every {
			return nil
		}
		if err != nil {
			errs = errors.Join(errs, fmt.Errorf("agent %s: %w", a.Name, err))
		}
	}
	return errs
}

func (i inventory) remove(ctx context.Context, a model.Agent, req *pb.RemoveResourceRequest) error {
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	c, err := i.peers.Client(a.PeerAddr)
	if err != nil {
		return err
	}
	defer i.removals.begin(a.ID, req.Request.Tenant)()
	_, err = c.RemoveResource(ctx, req)
	return withoutCode(err)
}
