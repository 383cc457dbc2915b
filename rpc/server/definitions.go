package server

import (
	"context"
	"fmt"
	"net/http"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/internal/words"
	"github.com/coopr/coopr/rpc/api"
)

func (s *server) definitionRoutes() {
	definitionRoutes[model.ClusterTemplate](s, model.KindClusterTemplate, "ClusterTemplate", "cluster template")
	definitionRoutes[model.PartialTemplate](s, model.KindPartialTemplate, "PartialTemplate", "partial template")
	definitionRoutes[model.Service](s, model.KindService, "Service", "service")
	definitionRoutes[model.Provider](s, model.KindProvider, "Provider", "provider")
	definitionRoutes[model.HardwareType](s, model.KindHardwareType, "HardwareType", "hardware type")
	definitionRoutes[model.ImageType](s, model.KindImageType, "ImageType", "image type")
	definitionRoutes[model.PluginType](s, model.KindProviderType, "ProviderType", "provider type")
	definitionRoutes[model.PluginType](s, model.KindAutomatorType, "AutomatorType", "automator type")
}

type none struct{}

// ByName names a definition or a tenant in the path.
type ByName struct {
	Name string `path:"name" doc:"The definition's name"`
}

type byVersion struct {
	Name    string `path:"name" doc:"The definition's name"`
	Version int    `path:"version" minimum:"1" doc:"The version, from 1"`
}

type definitionBody[T any] struct {
	Body raw[T]
}

type namedDefinitionBody[T any] struct {
	Name string `path:"name" doc:"The definition's name"`
	Body raw[T]
}

// definitionRoutes registers the routes of one kind of definition.
func definitionRoutes[T any](s *server, kind model.Kind, id, word string) {
	path := "/v1/" + string(kind)
	one := path + "/{name}"
	admin := rule{need: model.RoleAdmin}
	user := rule{need: model.RoleRead}
	tag := "definitions"

	read(s, route{id: "list" + id + "s", path: path, tag: tag, rule: user, summary: "List the latest version of every " + word},
		func(_ context.Context, c *call, v View, _ *none) ([]*T, error) {
			return decodeAll[T](v, c.who.Tenant, v.Definitions(c.who.Tenant, kind))
		})
	read(s, route{id: "get" + id, path: one, tag: tag, rule: user, summary: "Get a " + word},
		func(_ context.Context, c *call, v View, in *ByName) (*T, error) {
			return getDefinition[T](v, c.who.Tenant, kind, word, in.Name, 0)
		})
	read(s, route{id: "list" + id + "Versions", path: one + "/versions", tag: tag, rule: user, summary: "List all versions of a " + word},
		func(_ context.Context, c *call, v View, in *ByName) ([]*T, error) {
			all := v.Versions(c.who.Tenant, kind, in.Name)
			if len(all) == 0 {
				return nil, noDefinition(v, c.who.Tenant, kind, word, in.Name)
			}
			return decodeAll[T](v, c.who.Tenant, all)
		})
	read(s, route{id: "get" + id + "Version", path: one + "/versions/{version}", tag: tag, rule: user, summary: "Get one version of a " + word},
		func(_ context.Context, c *call, v View, in *byVersion) (*T, error) {
			return getDefinition[T](v, c.who.Tenant, kind, word, in.Name, in.Version)
		})
	write(s, route{id: "create" + id, method: http.MethodPost, path: path, status: http.StatusCreated, tag: tag, rule: admin, summary: "Create a " + word + ", which must not exist yet"},
		func(ctx context.Context, c *call, in *definitionBody[T]) (*T, api.Written, error) {
			return putDefinition[T](ctx, s, c, kind, word, "", in.Body.data, true)
		})
	write(s, route{id: "put" + id, method: http.MethodPut, path: one, tag: tag, rule: admin, summary: "Write a new version of a " + word + ", or the first one"},
		func(ctx context.Context, c *call, in *namedDefinitionBody[T]) (*T, api.Written, error) {
			return putDefinition[T](ctx, s, c, kind, word, in.Name, in.Body.data, false)
		})
	write(s, route{id: "delete" + id, method: http.MethodDelete, path: one, tag: tag, rule: admin, summary: "Delete all versions of a " + word},
		func(ctx context.Context, c *call, in *ByName) (api.Deleted, api.Written, error) {
			w, err := s.Definitions.Delete(ctx, c.who, kind, in.Name, 0)
			return api.Deleted{Kind: kind, Name: in.Name}, w, err
		})
	write(s, route{id: "delete" + id + "Version", method: http.MethodDelete, path: one + "/versions/{version}", tag: tag, rule: admin, summary: "Delete one version of a " + word},
		func(ctx context.Context, c *call, in *byVersion) (api.Deleted, api.Written, error) {
			w, err := s.Definitions.Delete(ctx, c.who, kind, in.Name, in.Version)
			return api.Deleted{Kind: kind, Name: in.Name, Version: in.Version}, w, err
		})
}

// restore decodes a stored definition and sets its version.
func restore(d model.StoredDefinition) (model.Definition, error) {
	def, err := model.Restore(d.Kind, d.Body)
	if err != nil {
		return def, fmt.Errorf("%s/%s version %d: %w", d.Kind, d.Name, d.Version, err)
	}
	switch v := def.Value.(type) {
	case *model.Provider:
		v.Version = d.Version
	case *model.HardwareType:
		v.Version = d.Version
	case *model.ImageType:
		v.Version = d.Version
	case *model.Service:
		v.Version = d.Version
	case *model.ClusterTemplate:
		v.Version = d.Version
	case *model.PartialTemplate:
		v.Version = d.Version
	case *model.PluginType:
		v.Version = d.Version
	}
	return def, nil
}

func decodeAll[T any](v View, tenant string, stored []model.StoredDefinition) ([]*T, error) {
	out := make([]*T, 0, len(stored))
	r := newRedactor(v, tenant)
	for _, d := range stored {
		t, err := decodeOne[T](r, d)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

func decodeOne[T any](r *redactor, d model.StoredDefinition) (*T, error) {
	def, err := restore(d)
	if err != nil {
		return nil, err
	}
	if p, ok := def.Value.(*model.Provider); ok {
		clean := r.provider(*p)
		def.Value = &clean
	}
	t, ok := def.Value.(*T)
	if !ok {
		return nil, fmt.Errorf("%s is a %T", def.ID(), def.Value)
	}
	return t, nil
}

func getDefinition[T any](v View, tenant string, kind model.Kind, word, name string, version int) (*T, error) {
	d, ok := v.Definition(tenant, kind, name, version)
	if !ok {
		if version != 0 && len(v.Versions(tenant, kind, name)) > 0 {
			return nil, notFound("the %s %q has no version %d in tenant %s", word, name, version, tenant)
		}
		return nil, noDefinition(v, tenant, kind, word, name)
	}
	return decodeOne[T](newRedactor(v, tenant), d)
}

func noDefinition(v View, tenant string, kind model.Kind, word, name string) error {
	all := v.Definitions(tenant, kind)
	names := make([]string, len(all))
	for i, d := range all {
		names[i] = d.Name
	}
	hint := ""
	if near := words.Nearest(name, names); near != "" {
		hint = fmt.Sprintf(": did you mean %q?", near)
	}
	return notFound("there is no %s %q in tenant %s%s", word, name, tenant, hint)
}

func putDefinition[T any](ctx context.Context, s *server, c *call, kind model.Kind, word, name string, data []byte, createOnly bool) (*T, api.Written, error) {
	def, err := model.Decode(kind, data)
	if err != nil {
		return nil, api.Written{}, judge(err, data)
	}
	if name != "" && def.Name != name {
		return nil, api.Written{}, invalid(model.Faults{{Path: "name", Message: fmt.Sprintf("is %q, but the path says %q: they must be equal", def.Name, name)}})
	}
	stored, err := s.store(ctx, c, []model.Definition{def})
	if err != nil {
		return nil, api.Written{}, err
	}
	w, err := s.Definitions.Put(ctx, c.who, stored, createOnly)
	if err != nil {
		return nil, w, err
	}
	v, err := s.now(ctx)
	if err != nil {
		return nil, w, problem.New(problem.UnknownOutcome, "the definitions are written, but cannot be read back: %w", err)
	}
	t, err := getDefinition[T](v, c.who.Tenant, kind, word, def.Name, 0)
	return t, w, err
}

// store encodes definitions for storage. Redacted values of providers are replaced by the stored
// ones.
func (s *server) store(ctx context.Context, c *call, defs []model.Definition) ([]model.StoredDefinition, error) {
	out := make([]model.StoredDefinition, len(defs))
	var faults model.Faults
	var v View
	for i, def := range defs {
		if p, ok := def.Value.(*model.Provider); ok && hasRedacted(p.Provisioner) {
			if v == nil {
				var err error
				if v, err = s.now(ctx); err != nil {
					return nil, err
				}
			}
			var old *model.Provider
			if d, ok := v.Definition(c.who.Tenant, model.KindProvider, p.Name, 0); ok {
				if o, err := model.Restore(d.Kind, d.Body); err == nil {
					old, _ = o.Value.(*model.Provider)
				}
			}
			for _, f := range unredact(p, old) {
				f.Subject, f.Line = def.ID(), def.Line
				faults = append(faults, f)
			}
		}
		body, err := model.Encode(def)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", def.ID(), err)
		}
		out[i] = model.StoredDefinition{Kind: def.Kind, Name: def.Name, Body: body}
	}
	return out, faults.Err()
}

func hasRedacted(v any) bool {
	switch v := v.(type) {
	case string:
		return v == model.Redacted
	case map[string]any:
		for _, item := range v {
			if hasRedacted(item) {
				return true
			}
		}
	}
	return false
}
