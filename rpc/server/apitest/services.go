package apitest

import (
	"context"
	"io"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server"
)

// Services returns the agent as the API's services.
func (a *Agent) Services() server.Services {
	return server.Services{
		Router: a, State: stateService{a}, Tenants: tenantService{a}, Tokens: tokenService{a}, Definitions: definitionService{a},
		Clusters: clusterService{a}, Operations: operationService{a}, Orphans: orphanService{a}, Sites: siteService{},
		Resources: resourceService{shelved{a}}, Runs: runService{a}, Mesh: a, Raft: raftService{a},
	}
}

type stateService struct{ a *Agent }

func (s stateService) View(ctx context.Context, c api.Consistency, after uint64) (server.View, error) {
	return s.a.View(ctx, c, after)
}

func (s stateService) Follow(ctx context.Context, tenant string, after uint64, fn func([]model.Event) error) error {
	return s.a.Events(ctx, tenant, after, fn)
}

type tenantService struct{ a *Agent }

func (s tenantService) Put(ctx context.Context, who model.Caller, t model.Tenant, createOnly bool) (api.Written, error) {
	return s.a.PutTenant(ctx, who, t, createOnly)
}

func (s tenantService) Delete(ctx context.Context, who model.Caller, name string) (api.Written, error) {
	return s.a.DeleteTenant(ctx, who, name)
}

type tokenService struct{ a *Agent }

func (s tokenService) Authenticate(ctx context.Context, token string) (model.Caller, error) {
	return s.a.Authenticate(ctx, token)
}

func (s tokenService) Create(ctx context.Context, who model.Caller, t model.Token) (string, api.Written, error) {
	return s.a.CreateToken(ctx, who, t)
}

func (s tokenService) Delete(ctx context.Context, who model.Caller, id string) (api.Written, error) {
	return s.a.DeleteToken(ctx, who, id)
}

type definitionService struct{ a *Agent }

func (s definitionService) Put(ctx context.Context, who model.Caller, defs []model.StoredDefinition, createOnly bool) (api.Written, error) {
	return s.a.PutDefinitions(ctx, who, defs, createOnly)
}

func (s definitionService) Delete(ctx context.Context, who model.Caller, kind model.Kind, name string, version int) (api.Written, error) {
	return s.a.DeleteDefinition(ctx, who, kind, name, version)
}

func (s definitionService) Rank(ctx context.Context, q model.RankingQuestion) (*model.Ranking, error) {
	return s.a.Rank(ctx, q)
}

type clusterService struct{ a *Agent }

func (s clusterService) Create(ctx context.Context, who model.Caller, req model.CreateCluster, dryRun bool) (api.Started, error) {
	return s.a.CreateCluster(ctx, who, req, dryRun)
}

func (s clusterService) Operate(ctx context.Context, who model.Caller, cluster string, req api.Operate) (api.Started, error) {
	return s.a.Operate(ctx, who, cluster, req)
}

func (s clusterService) Resolve(ctx context.Context, who model.Caller, cluster, reason string) (api.Written, error) {
	return s.a.Resolve(ctx, who, cluster, reason)
}

type operationService struct{ a *Agent }

func (s operationService) Order(ctx context.Context, who model.Caller, operation, order, reason string) (api.Written, error) {
	return s.a.Order(ctx, who, operation, order, reason)
}

func (s operationService) BeginPlan(ctx context.Context, who model.Caller, cluster, plan string) (string, api.Written, error) {
	return s.a.BeginPlan(ctx, who, cluster, plan)
}

func (s operationService) OrderPlan(ctx context.Context, who model.Caller, operation string, o tree.Order) (api.Written, error) {
	return s.a.OrderPlan(ctx, who, operation, o)
}

func (s operationService) Explain(ctx context.Context, tenant, operation string, steps int) (*tree.Explanation, error) {
	return s.a.Explain(ctx, tenant, operation, steps)
}

func (s operationService) TaskLog(ctx context.Context, who model.Caller, task string, attempt int, follow bool, w io.Writer) error {
	return s.a.TaskLog(ctx, who, task, attempt, follow, w)
}

type orphanService struct{ a *Agent }

func (s orphanService) Report(ctx context.Context, search bool) (model.OrphanReport, error) {
	return s.a.Orphans(ctx, search)
}

func (s orphanService) Remove(ctx context.Context, who model.Caller, id string) (api.Written, error) {
	return s.a.RemoveOrphan(ctx, who, id)
}

type runService struct{ a *Agent }

func (s runService) ChangeSetting(ctx context.Context, who model.Caller, x api.Setting) (api.Written, error) {
	return s.a.ChangeSetting(ctx, who, x)
}

func (s runService) Start(ctx context.Context, who model.Caller, req api.StartRun) (string, api.Written, error) {
	return s.a.StartRun(ctx, who, req)
}

func (s runService) Order(ctx context.Context, who model.Caller, run string, e profile.Event) (api.Written, error) {
	return s.a.OrderRun(ctx, who, run, e)
}

type raftService struct{ a *Agent }

func (s raftService) Peers(ctx context.Context) ([]api.RaftPeer, error) { return s.a.RaftPeers(ctx) }
func (s raftService) Transfer(ctx context.Context, to string) error     { return s.a.RaftTransfer(ctx, to) }
func (s raftService) Remove(ctx context.Context, id string) error       { return s.a.RaftRemove(ctx, id) }
func (s raftService) Save(ctx context.Context, w io.Writer) error       { return s.a.SnapshotSave(ctx, w) }
func (s raftService) Restore(ctx context.Context, r io.Reader) error {
	return s.a.SnapshotRestore(ctx, r)
}

// resourceService is the service for resources. It fails if the mesh has none.
type resourceService struct{ s shelved }

func (r resourceService) List(tenant string) ([]model.ResourceVersion, uint64, error) {
	if r.s.contents == nil {
		return nil, 0, errNoResources
	}
	return r.s.List(tenant)
}

func (r resourceService) Upload(ctx context.Context, who model.Caller, n api.NewResource, content io.Reader) (model.ResourceVersion,
	api.Written, error) {
	if r.s.contents == nil {
		return model.ResourceVersion{}, api.Written{}, errNoResources
	}
	return r.s.Upload(ctx, who, n, content)
}

func (r resourceService) Order(ctx context.Context, who model.Caller, order string, k model.ResourceKey, version int) (api.Written, error) {
	if r.s.contents == nil {
		return api.Written{}, errNoResources
	}
	return r.s.Order(ctx, who, order, k, version)
}

func (r resourceService) Content(ctx context.Context, p model.ResourcePin) (io.ReadCloser, error) {
	if r.s.contents == nil {
		return nil, errNoResources
	}
	return r.s.Content(ctx, p)
}
