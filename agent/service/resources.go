package service

import (
	"context"
	"errors"
	"io"

	"github.com/coopr/coopr/agent/blobs"
	"github.com/coopr/coopr/agent/member"
	"github.com/coopr/coopr/consensus/duty/orchestrate"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/hostexec"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Blobs is the blob cache of this agent; *blobs.Cache implements it.
type Blobs interface {
	// Store returns the content on this agent's disk.
	Store() (*blobs.Store, error)
	// Replicate copies content to the disks of a majority of the voters.
	Replicate(ctx context.Context, m *member.Member, sum string, size int64) error
	// Content opens content, which it may fetch from another agent first.
	Content(ctx context.Context, p model.ResourcePin) (*blobs.Content, error)
}

// Resources stores plugin resources.
type Resources struct {
	Supervisor Supervisor
	HostExec   hostexec.Rules
	Blobs      Blobs
	// MaxSize is the size limit of one resource in bytes, MaxTotal that of all resources of
	// a tenant together.
	MaxSize, MaxTotal int64
}

// List returns all versions of all resources of a tenant, and the index of the state.
func (r *Resources) List(tenant string) ([]model.ResourceVersion, uint64, error) {
	m, _, err := leader(r.Supervisor)
	if err != nil {
		return nil, 0, err
	}
	v := m.Machine.View()
	var out []model.ResourceVersion
	for _, x := range v.PluginResources(tenant) {
		out = append(out, x.Versions...)
	}
	return out, v.Index(), nil
}

// MostBytes returns how many bytes the resources of a tenant may take whose document says nothing about that; 0: no limit.
func (r *Resources) MostBytes() int64 { return r.MaxTotal }

// Upload stores content as the next version of a resource.
func (r *Resources) Upload(ctx context.Context, who model.Caller, n api.NewResource, content io.Reader) (model.ResourceVersion,
	api.Written, error) {
	v, w, err := r.upload(ctx, who, n, content)
	if err != nil {
		return model.ResourceVersion{}, api.Written{}, err
	}
	return v, w, nil
}

func (r *Resources) upload(ctx context.Context, who model.Caller, n api.NewResource, content io.Reader) (v model.ResourceVersion,
	w api.Written, err error) {
	m, _, err := leader(r.Supervisor)
	if err == nil && n.Order != "" {
		err = permitResource(m.Machine.View(), who, r.HostExec)
	}
	if err != nil {
		return v, w, err
	}
	store, err := r.Blobs.Store()
	if err != nil {
		return v, w, problem.Wrap(problem.NoMajority, err)
	}
	pin, err := store.Upload(content, orchestrate.Lookup(m.Machine.View(), who.Tenant), n.ResourceKey, r.MaxSize, n.SHA256)
	if err != nil {
		return v, w, err
	}
	if err := r.Blobs.Replicate(ctx, m, pin.SHA256, pin.Size); err != nil {
		return v, w, problem.Wrap(problem.NoMajority, err)
	}
	add, err := logformat.AddResource(&model.ResourceVersion{ResourcePin: pin}, r.MaxTotal, n.Order)
	if err != nil {
		return v, w, err
	}
	a, err := r.change(ctx, who, add)
	if err != nil {
		return v, w, err
	}
	if w = written(a); len(w.Effect.Resources) != 1 {
		return v, w, problem.New(problem.Conflict, "request %q was used for something else", who.Request)
	}
	return w.Effect.Resources[0], w, nil
}

// Order carries out an order about a version of a resource.
func (r *Resources) Order(ctx context.Context, who model.Caller, order string, k model.ResourceKey, version int) (api.Written, error) {
	m, _, err := leader(r.Supervisor)
	if err == nil {
		err = permitResource(m.Machine.View(), who, r.HostExec)
	}
	if err != nil {
		return api.Written{}, err
	}
	change, err := logformat.OrderResource(order, k, version)
	if err != nil {
		return api.Written{}, err
	}
	a, err := r.change(ctx, who, change)
	if err != nil {
		return api.Written{}, err
	}
	return written(a), nil
}

// permitResource returns problem.Forbidden if a caller without the right host:exec changes which plugin resources are used, and
// tasks that use them may run on control hosts.
func permitResource(v *state.View, who model.Caller, rules hostexec.Rules) error {
	if hostexec.May(who) {
		return nil
	}
	if where := controlHosts(v, who.Tenant, rules); where != "" {
		return problem.New(problem.Forbidden, "%s has nodes or steps on a control host, where plugin resources may be used: "+
			"%s lacks the right host:exec", where, who.Actor)
	}
	return nil
}

// controlHosts names a definition or a cluster of a tenant with nodes, or with steps of plans, on control hosts, or returns "".
func controlHosts(v *state.View, tenant string, rules hostexec.Rules) string {
	rules = rules.Among(v.Agents)
	for _, kind := range []model.Kind{model.KindProvider, model.KindClusterTemplate, model.KindPartialTemplate} {
		for _, d := range v.Definitions(tenant, kind) {
			if p, err := model.Restore(d.Kind, d.Body); err == nil && len(rules.Here(hostexec.Definition(p))) > 0 {
				return p.ID()
			}
		}
	}
	for _, cl := range v.Clusters(tenant) {
		uses := append(hostexec.Provider(cl.Provider.ProviderType, cl.Provider.Provisioner), hostexec.Steps(cl.Template.Plans)...)
		if cl.Status != model.ClusterTerminated && len(rules.Here(uses)) > 0 {
			return "cluster " + cl.Name
		}
	}
	return ""
}

func (r *Resources) change(ctx context.Context, who model.Caller, c *pb.ChangeResource) (state.Answer, error) {
	return propose(ctx, r.Supervisor, who, &pb.Command{Change: &pb.Command_ChangeResource{ChangeResource: c}})
}

// Content returns the content of a version.
func (r *Resources) Content(ctx context.Context, p model.ResourcePin) (io.ReadCloser, error) {
	if _, _, err := leader(r.Supervisor); err != nil {
		return nil, err
	}
	f, err := r.Blobs.Content(ctx, p)
	switch {
	case errors.Is(err, blobs.ErrNoDisk):
		return nil, err
	case err != nil:
		return nil, problem.New(problem.Conflict, "resource %s: %w", p, err)
	}
	return f, nil
}
