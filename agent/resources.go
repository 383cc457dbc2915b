package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/coopr/coopr/agent/resources"
	"github.com/coopr/coopr/consensus/orchestrate"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Resources gives what the leader does about plugin resources.
func (b *backend) Resources() (api.Resources, error) {
	m, _, ok := b.leader()
	if !ok {
		return nil, api.ErrNoLeader
	}
	return resourceBackend{b, m}, nil
}

type resourceBackend struct {
	*backend
	m *member
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

// resourceType finds what a plugin says of a type of its resources.
func resourceType(v *state.View, tenant string, k model.ResourceKey) (model.ResourceType, error) {
	look := orchestrate.Lookup(v, tenant)
	kind := strings.TrimSuffix(string(k.Kind), "types") + " type"
	d, ok := look.Definition(k.Kind, k.Plugin)
	if !ok {
		return model.ResourceType{}, fmt.Errorf("%w: there is no %s %q%s: an agent has to offer it", api.ErrNotFound, kind, k.Plugin, hint(k.Plugin, look.Names(k.Kind)))
	}
	t, _ := d.Value.(*model.PluginType)
	rt, ok := t.ResourceTypes[k.Type]
	if !ok {
		names := slices.Sorted(maps.Keys(t.ResourceTypes))
		if len(names) == 0 {
			return model.ResourceType{}, fmt.Errorf("%w: %s %s takes no resources", api.ErrNotFound, kind, k.Plugin)
		}
		return model.ResourceType{}, fmt.Errorf("%w: %s %s has no resource type %q: it has %s", api.ErrNotFound, kind, k.Plugin, k.Type, strings.Join(names, ", "))
	}
	return rt, nil
}

func hint(name string, names []string) string {
	if near := model.Nearest(name, names); near != "" {
		return fmt.Sprintf(" (did you mean %q?)", near)
	}
	return ""
}

// Upload keeps a content as the next version of a resource.
func (r resourceBackend) Upload(ctx context.Context, who model.Caller, n api.NewResource, content io.Reader) (model.ResourceVersion, api.Written, error) {
	fail := func(err error) (model.ResourceVersion, api.Written, error) {
		return model.ResourceVersion{}, api.Written{}, err
	}
	if why := model.CheckResourceName(n.Name); why != "" {
		return fail(model.Faults{{Path: "name", Message: why}})
	}
	rt, err := resourceType(r.m.Machine.View(), who.Tenant, n.ResourceKey)
	if err != nil {
		return fail(err)
	}
	if r.shelf.blobs == nil {
		return fail(fmt.Errorf("%w: %w", api.ErrNoMajority, errNoShelf))
	}
	limit := int64(r.cfg.Limits.Resource)
	sum, size, err := r.shelf.blobs.Put(content, limit, strings.ToLower(n.SHA256))
	switch {
	case errors.Is(err, resources.ErrTooLarge):
		return fail(fmt.Errorf("%w: resource %s is larger than the %d bytes that are allowed: the agents' limits.resource says so", api.ErrTooLarge, n.ResourceKey, limit))
	case errors.Is(err, resources.ErrOther):
		return fail(model.Faults{{Path: "sha256", Message: err.Error()}})
	case err != nil:
		return fail(err)
	}
	v := model.ResourceVersion{ResourcePin: model.ResourcePin{
		ResourceKey: n.ResourceKey, SHA256: sum, Size: size, Format: rt.Format, Permissions: rt.Permissions, Secret: rt.IsSecret(),
	}}
	if rt.Format == "archive" {
		if err := r.check(sum); err != nil {
			return fail(model.Faults{{Path: "content", Message: err.Error()}})
		}
	}
	if err := r.shelf.spread(ctx, r.m, sum, size); err != nil {
		return fail(fmt.Errorf("%w: %w", api.ErrNoMajority, err))
	}
	body, err := json.Marshal(v)
	if err != nil {
		return fail(err)
	}
	subject, w, err := r.change(ctx, who, &pb.ChangeResource{Add: body, MostBytes: int64(r.cfg.Limits.Resources), Order: n.Order})
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
	return fail(fmt.Errorf("%w: resource %s was uploaded, and is gone again", api.ErrConflict, subject))
}

func (r resourceBackend) check(sum string) error {
	f, err := r.shelf.blobs.Open(sum)
	if err != nil {
		return err
	}
	defer f.Close()
	return resources.Check(f)
}

// change commits a command and gives its subject.
func (r resourceBackend) change(ctx context.Context, who model.Caller, ch *pb.ChangeResource) (string, api.Written, error) {
	answers, err := r.m.Propose(ctx, &pb.Command{Tenant: who.Tenant, Actor: who.Actor, RequestId: who.Request, Change: &pb.Command_ChangeResource{ChangeResource: ch}})
	if err == nil {
		err = answers[0].Err
	}
	if err != nil {
		return "", api.Written{}, mapError(err)
	}
	return answers[0].Subject, api.Written{Index: answers[0].Index, Repeated: answers[0].Repeated}, nil
}

// Order carries out an order.
func (r resourceBackend) Order(ctx context.Context, who model.Caller, order string, k model.ResourceKey, version int) (api.Written, error) {
	_, w, err := r.change(ctx, who, &pb.ChangeResource{Order: order, Kind: string(k.Kind), Plugin: k.Plugin, Type: k.Type, Name: k.Name, Version: int32(version)})
	return w, err
}

// Content gives what was uploaded.
func (r resourceBackend) Content(ctx context.Context, p model.ResourcePin) (io.ReadCloser, error) {
	if r.shelf.blobs == nil {
		return nil, errNoShelf
	}
	f, err := r.shelf.open(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("%w: resource %s: %w", api.ErrConflict, p, err)
	}
	return f, nil
}
