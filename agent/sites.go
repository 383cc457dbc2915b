package agent

import (
	"context"

	"github.com/coopr/coopr/consensus/duty/sites"
	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server"
)

// Sites gives what the leader knows and does about sites.
func (b *backend) Sites() (server.Sites, error) {
	_, l, ok := b.supervisor.Leader()
	if !ok {
		return nil, problem.NoLeader
	}
	return siteBackend{l.Sites}, nil
}

// siteBackend is the keeper of sites as the API sees it.
type siteBackend struct{ k *sites.Controller }

func (s siteBackend) List(ctx context.Context, tenant string) ([]site.Overview, error) {
	out, err := s.k.List(ctx, tenant)
	return out, err
}

func (s siteBackend) Status(ctx context.Context, tenant, name string, after uint64) (site.Standing, error) {
	out, err := s.k.Status(ctx, tenant, name, after)
	return out, err
}

func (s siteBackend) Document(tenant, name string, generation uint64) (*site.Document, error) {
	out, err := s.k.Document(tenant, name, generation)
	return out, err
}

func (s siteBackend) History(tenant, name string) ([]site.PastGeneration, error) {
	out, err := s.k.History(tenant, name)
	return out, err
}

func (s siteBackend) Graph(tenant, name string) (*site.Graph, error) {
	out, err := s.k.Graph(tenant, name)
	return out, err
}

func (s siteBackend) Explain(tenant, name, object string) ([]site.Reason, error) {
	out, err := s.k.Explain(tenant, name, object)
	return out, err
}

func (s siteBackend) Preview(tenant string, doc *site.Document) (site.ChangePreview, error) {
	out, err := s.k.Preview(tenant, doc)
	return out, err
}

func (s siteBackend) Apply(ctx context.Context, who model.Caller, doc *site.Document) (site.ChangePreview, bool, api.Written, error) {
	return applied(s.k.Apply(ctx, who, doc, 0))
}

func (s siteBackend) Revert(ctx context.Context, who model.Caller, name string, to uint64) (site.ChangePreview, bool, api.Written, error) {
	return applied(s.k.Revert(ctx, who, name, to))
}

func (s siteBackend) Delete(ctx context.Context, who model.Caller, name string) (site.ChangePreview, api.Written, error) {
	p, _, w, err := applied(s.k.Delete(ctx, who, name))
	return p, w, err
}

func applied(a sites.Applied, err error) (site.ChangePreview, bool, api.Written, error) {
	return a.Preview, a.Unchanged, api.Written{Index: a.Answer.Index, Repeated: a.Answer.Repeated}, err
}

func (s siteBackend) Look(ctx context.Context, tenant, name string) ([]site.Finding, error) {
	out, err := s.k.Probe(ctx, tenant, name)
	return out, err
}

func (s siteBackend) Release(ctx context.Context, who model.Caller, name, object, reason string) (api.Written, error) {
	a, err := s.k.Release(ctx, who, name, object, reason)
	return api.Written{Index: a.Index, Repeated: a.Repeated}, err
}
