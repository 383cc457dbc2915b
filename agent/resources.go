package agent

import (
	"context"
	"errors"
	"io"

	"github.com/coopr/coopr/agent/blobs"
	"github.com/coopr/coopr/agent/member"
	"github.com/coopr/coopr/consensus/duty/orchestrate"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/server"
)

// Resources gives what the leader does about plugin resources.
func (b *backend) Resources() (server.Resources, error) {
	m, _, ok := b.supervisor.Leader()
	if !ok {
		return nil, problem.NoLeader
	}
	return resourceBackend{b, m}, nil
}

type resourceBackend struct {
	*backend
	m *member.Member
}

// List gives every version that a tenant has.
func (r resourceBackend) List(tenant string) ([]model.ResourceVersion, uint64, error) {
	v := r.m.Machine.View()
	var out []model.ResourceVersion
	for _, x := range v.PluginResources(tenant) {
		out = append(out, x.Versions...)
	}
	return out, v.Index(), nil
}

// Upload keeps a content as the next version of a resource.
func (r resourceBackend) Upload(ctx context.Context, who model.Caller, n api.NewResource, content io.Reader) (model.ResourceVersion, api.Written, error) {
	fail := func(err error) (model.ResourceVersion, api.Written, error) {
		return model.ResourceVersion{}, api.Written{}, err
	}
	store, err := r.blobs.Store()
	if err != nil {
		return fail(problem.Wrap(problem.NoMajority, err))
	}
	pin, err := store.Upload(content, orchestrate.Lookup(r.m.Machine.View(), who.Tenant), n.ResourceKey, int64(r.cfg.Limits.Resource), n.SHA256)
	if err != nil {
		return fail(err)
	}
	if err := r.blobs.Replicate(ctx, r.m, pin.SHA256, pin.Size); err != nil {
		return fail(problem.Wrap(problem.NoMajority, err))
	}
	add, err := logformat.AddResource(&model.ResourceVersion{ResourcePin: pin}, int64(r.cfg.Limits.Resources), n.Order)
	if err != nil {
		return fail(err)
	}
	subject, w, err := r.change(ctx, who, add)
	if err != nil {
		return fail(err)
	}
	if x, ok := r.m.Machine.View().PluginResource(who.Tenant, n.ResourceKey); ok {
		for _, v := range x.Versions {
			if v.String() == subject {
				return v, w, nil
			}
		}
	}
	return fail(problem.New(problem.Conflict, "resource %s was uploaded, and is gone again", subject))
}

// change commits a command and gives its subject.
func (r resourceBackend) change(ctx context.Context, who model.Caller, ch *pb.ChangeResource) (string, api.Written, error) {
	answers, err := r.m.Propose(ctx, &pb.Command{Tenant: who.Tenant, Actor: who.Actor, RequestId: who.Request, Change: &pb.Command_ChangeResource{ChangeResource: ch}})
	if err == nil {
		err = answers[0].Err
	}
	if err != nil {
		return "", api.Written{}, err
	}
	return answers[0].Subject, api.Written{Index: answers[0].Index, Repeated: answers[0].Repeated}, nil
}

// Order carries out an order.
func (r resourceBackend) Order(ctx context.Context, who model.Caller, order string, k model.ResourceKey, version int) (api.Written, error) {
	change, err := logformat.OrderResource(order, k, version)
	if err != nil {
		return api.Written{}, err
	}
	_, w, err := r.change(ctx, who, change)
	return w, err
}

// Content gives what was uploaded.
func (r resourceBackend) Content(ctx context.Context, p model.ResourcePin) (io.ReadCloser, error) {
	f, err := r.blobs.Content(ctx, p)
	if errors.Is(err, blobs.ErrNoDisk) {
		return nil, err
	}
	if err != nil {
		return nil, problem.New(problem.Conflict, "resource %s: %w", p, err)
	}
	return f, nil
}
