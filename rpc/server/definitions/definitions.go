package definitions

import (
	"context"
	"fmt"
	"net/http"

	"github.com/coopr/coopr/engine/access"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/model/decode"
	"github.com/coopr/coopr/internal/words"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/redact"
	"github.com/coopr/coopr/rpc/server/rest"
)

func kindRoutes(s *rest.Server) {
	definitionRoutes[model.ClusterTemplate](s, model.KindClusterTemplate, "ClusterTemplate", "cluster template")
	definitionRoutes[model.PartialTemplate](s, model.KindPartialTemplate, "PartialTemplate", "partial template")
	definitionRoutes[model.Service](s, model.KindService, "Service", "service")
	definitionRoutes[model.Provider](s, model.KindProvider, "Provider", "provider")
	definitionRoutes[model.HardwareType](s, model.KindHardwareType, "HardwareType", "hardware type")
	definitionRoutes[model.ImageType](s, model.KindImageType, "ImageType", "image type")
	definitionRoutes[model.PluginType](s, model.KindProviderType, "ProviderType", "provider type")
	definitionRoutes[model.PluginType](s, model.KindAutomatorType, "AutomatorType", "automator type")
	policyRoutes(s, "/v1/policies", "PolicyDocument", "policy document")
	policyRoutes(s, "/v1/mesh/policies", "MeshPolicyDocument", "policy document of the mesh")
}

// typeOf has the type that policies know a kind of definition as.
var typeOf = map[model.Kind]access.Type{
	model.KindClusterTemplate: access.TypeTemplate, model.KindPartialTemplate: access.TypeTemplate, model.KindService: access.TypeService,
	model.KindProvider: access.TypeProvider, model.KindHardwareType: access.TypeHardwareType, model.KindImageType: access.TypeImageType,
	model.KindProviderType: access.TypePluginType, model.KindAutomatorType: access.TypePluginType, model.KindPolicies: access.TypePolicy,
}

// list returns the definitions of a kind that the caller may list.
func list(c *rest.Call, v rest.View, kind model.Kind) ([]model.StoredDefinition, error) {
	return rest.Listed(c, typeOf[kind], v.Definitions(c.Who.Tenant, kind), func(d model.StoredDefinition) string { return d.Name })
}

type byVersion struct {
	Name    string `path:"name" doc:"The definition's name"`
	Version int    `path:"version" minimum:"1" doc:"The version, from 1"`
}

type deletion struct {
	rest.ByName
	Force bool `query:"force" doc:"Delete the definition even if it is in use"`
}

type versionDeletion struct {
	Name    string `path:"name" doc:"The definition's name"`
	Version int    `path:"version" minimum:"1" doc:"The version, from 1"`
	Force   bool   `query:"force" doc:"Delete the version even if it is the only one and the definition is in use"`
}

type definitionBody[T any] struct {
	Body rest.Raw[T]
}

type namedDefinitionBody[T any] struct {
	Name string `path:"name" doc:"The definition's name"`
	Body rest.Raw[T]
}

// definitionRoutes registers the routes of one kind of definition.
func definitionRoutes[T any](s *rest.Server, kind model.Kind, id, word string) {
	path := "/v1/" + string(kind)
	readRoutes[T](s, kind, path, id, word)
	writeRoutes[T](s, kind, path, id, word)
}

const tag = "definitions"

// readRoutes registers the routes that read one kind of definition.
func readRoutes[T any](s *rest.Server, kind model.Kind, path, id, word string) {
	one := path + "/{name}"
	rest.List(s, rest.Route{ID: "list" + id + "s", Order: "name", Path: path, Tag: tag, Summary: "List the latest version of every " + word},
		func(_ context.Context, c *rest.Call, v rest.View, _ *rest.None) ([]*T, error) {
			listed, err := list(c, v, kind)
			if err != nil {
				return nil, err
			}
			return decodeAll[T](v, c.Who.Tenant, listed)
		})
	rest.Read(s, rest.Route{ID: "get" + id, Path: one, Tag: tag, Summary: "Get a " + word},
		func(_ context.Context, c *rest.Call, v rest.View, in *rest.ByName) (*T, error) {
			return getDefinition[T](v, c.Who.Tenant, kind, word, in.Name, 0)
		})
	rest.List(
		s,
		rest.Route{ID: "list" + id + "Versions", Order: "version", Path: one + "/versions", Tag: tag, Summary: "List all versions of a " + word},
		func(_ context.Context, c *rest.Call, v rest.View, in *rest.ByName) ([]*T, error) {
			all := v.Versions(c.Who.Tenant, kind, in.Name)
			if len(all) == 0 {
				return nil, noDefinition(v, c.Who.Tenant, kind, word, in.Name)
			}
			return decodeAll[T](v, c.Who.Tenant, all)
		},
	)
	rest.Read(
		s,
		rest.Route{ID: "get" + id + "Version", Path: one + "/versions/{version}", Tag: tag, Summary: "Get one version of a " + word},
		func(_ context.Context, c *rest.Call, v rest.View, in *byVersion) (*T, error) {
			return getDefinition[T](v, c.Who.Tenant, kind, word, in.Name, in.Version)
		},
	)
}

// writeRoutes registers the routes that write one kind of definition.
func writeRoutes[T any](s *rest.Server, kind model.Kind, path, id, word string) {
	one := path + "/{name}"
	rest.Write(
		s,
		rest.Route{
			ID:      "create" + id,
			Method:  http.MethodPost,
			Path:    path,
			Status:  http.StatusCreated,
			Tag:     tag,
			Summary: "Create a " + word + ", which must not exist yet",
		},
		func(ctx context.Context, c *rest.Call, in *definitionBody[T]) (*T, api.Written, error) {
			return putDefinition[T](ctx, s, c, kind, "", in.Body.Data, rest.PutOptions{CreateOnly: true})
		},
	)
	rest.Write(
		s,
		rest.Route{
			ID:      "put" + id,
			Method:  http.MethodPut,
			Path:    one,
			Tag:     tag,
			Summary: "Write a new version of a " + word + ", or the first one",
		},
		func(ctx context.Context, c *rest.Call, in *namedDefinitionBody[T]) (*T, api.Written, error) {
			return putDefinition[T](ctx, s, c, kind, in.Name, in.Body.Data, rest.PutOptions{})
		},
	)
	rest.Write(
		s,
		rest.Route{ID: "delete" + id, Method: http.MethodDelete, Path: one, Tag: tag, Summary: "Delete all versions of a " + word},
		func(ctx context.Context, c *rest.Call, in *deletion) (api.Deleted, api.Written, error) {
			w, err := s.Definitions.Delete(ctx, c.Who, kind, in.Name, 0, in.Force)
			return api.Deleted{Kind: kind, Name: in.Name}, w, err
		},
	)
	rest.Write(
		s,
		rest.Route{
			ID:      "delete" + id + "Version",
			Method:  http.MethodDelete,
			Path:    one + "/versions/{version}",
			Tag:     tag,
			Summary: "Delete one version of a " + word,
		},
		func(ctx context.Context, c *rest.Call, in *versionDeletion) (api.Deleted, api.Written, error) {
			w, err := s.Definitions.Delete(ctx, c.Who, kind, in.Name, in.Version, in.Force)
			return api.Deleted{Kind: kind, Name: in.Name, Version: in.Version}, w, err
		},
	)
}

// restore decodes a stored definition and sets its version and author.
func restore(d model.StoredDefinition) (model.Definition, error) {
	def, err := model.Restore(d.Kind, d.Body)
	if err != nil {
		return def, fmt.Errorf("%s/%s version %d: %w", d.Kind, d.Name, d.Version, err)
	}
	def.SetOrigin(d)
	return def, nil
}

func decodeAll[T any](v rest.View, tenant string, stored []model.StoredDefinition) ([]*T, error) {
	out := make([]*T, 0, len(stored))
	r := redact.For(v, tenant)
	for _, d := range stored {
		t, err := decodeOne[T](r, d)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

func decodeOne[T any](r *redact.Redactor, d model.StoredDefinition) (*T, error) {
	def, err := restore(d)
	if err != nil {
		return nil, err
	}
	def = r.Definition(def)
	t, ok := def.Value.(*T)
	if !ok {
		return nil, fmt.Errorf("definition %s has the unexpected Go type %T", def.ID(), def.Value)
	}
	return t, nil
}

func getDefinition[T any](v rest.View, tenant string, kind model.Kind, word, name string, version int) (*T, error) {
	d, ok := v.Definition(tenant, kind, name, version)
	if !ok {
		if version != 0 && len(v.Versions(tenant, kind, name)) > 0 {
			return nil, rest.NotFound("the %s %q has no version %d in tenant %s", word, name, version, tenant)
		}
		return nil, noDefinition(v, tenant, kind, word, name)
	}
	return decodeOne[T](redact.For(v, tenant), d)
}

func noDefinition(v rest.View, tenant string, kind model.Kind, word, name string) error {
	all := v.Definitions(tenant, kind)
	names := make([]string, len(all))
	for i, d := range all {
		names[i] = d.Name
	}
	hint := ""
	if near := words.Nearest(name, names); near != "" {
		hint = fmt.Sprintf(": did you mean %q?", near)
	}
	return rest.NotFound("there is no %s %q in tenant %s%s", word, name, tenant, hint)
}

func putDefinition[T any](
	ctx context.Context,
	s *rest.Server,
	c *rest.Call,
	kind model.Kind,
	name string,
	data []byte,
	opts rest.PutOptions,
) (*T, api.Written, error) {
	def, err := decode.Definition(kind, data)
	if err != nil {
		return nil, api.Written{}, rest.Judge(err, data)
	}
	if name != "" && def.Name != name {
		return nil, api.Written{}, rest.Invalid(
			model.Faults{{Path: "name", Message: fmt.Sprintf("is %q, but the path says %q: they must be equal", def.Name, name)}},
		)
	}
	stored, w, v, err := put(ctx, s, c, []model.Definition{def}, opts)
	if err != nil {
		return nil, w, err
	}
	t, err := decodeOne[T](redact.For(v, c.Who.Tenant), stored[0])
	return t, w, err
}

// put writes definitions, and returns them with their new versions. v is a state from before the
// write.
func put(ctx context.Context, s *rest.Server, c *rest.Call, defs []model.Definition, opts rest.PutOptions) (stored []model.StoredDefinition,
	w api.Written, v rest.View, err error) {
	v, done, err := s.Before(ctx, c)
	if err != nil {
		return nil, w, nil, err
	}
	for i := range defs {
		a := access.Update
		if _, old := v.Definition(c.Who.Tenant, defs[i].Kind, defs[i].Name, 0); !old || opts.CreateOnly {
			a = access.Create
		}
		if err := c.MayNamed(a, typeOf[defs[i].Kind], defs[i].Name); err != nil && done == nil {
			return nil, w, nil, err
		}
	}
	// The values that a repeated request leaves to the stored definition were filled in the first
	// time, and the answer does not show them.
	if stored, err = store(v, c.Who, defs, done == nil); err != nil {
		return nil, w, nil, err
	}
	if done == nil {
		if err = checkPolicies(c, v, stored, "", opts.Force); err != nil {
			return nil, w, nil, err
		}
	}
	if done != nil {
		w = *done
	} else if w, err = s.Definitions.Put(ctx, c.Who, stored, opts); err != nil {
		return nil, w, nil, err
	}
	for i := range stored {
		d := &stored[i]
		for _, made := range w.Effect.Definitions {
			if made.Kind == d.Kind && made.Name == d.Name {
				d.Version = made.Version
			}
		}
		if d.Version == 0 {
			_, err := rest.Wrote[model.StoredDefinition](w, nil)
			return nil, w, nil, err
		}
	}
	return stored, w, v, nil
}

// store encodes definitions for storage. With fill, redacted values are replaced by the
// stored ones.
func store(v rest.View, who model.Caller, defs []model.Definition, fill bool) ([]model.StoredDefinition, error) {
	out := make([]model.StoredDefinition, len(defs))
	var faults model.Faults
	for i, def := range defs {
		if fill {
			var found model.Faults
			def, found = filled(v, who, def)
			for _, f := range found {
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

// filled returns a definition with the stored values in place of redacted ones. Names of encrypted values are faults.
func filled(v rest.View, who model.Caller, def model.Definition) (model.Definition, model.Faults) {
	var faults model.Faults
	redacted := false
	for path, p := range def.Parts() {
		faults = append(faults, model.CheckSealedRefs(path, p.Fields)...)
		redacted = redacted || redact.Redacted(p.Fields)
	}
	if len(faults) > 0 || !redacted {
		return def, faults
	}
	var old *model.Definition
	if d, ok := v.Definition(who.Tenant, def.Kind, def.Name, 0); ok {
		if o, err := model.Restore(d.Kind, d.Body); err == nil {
			old = &o
		}
	}
	return redact.For(v, who.Tenant).Restore(def, old, who.Role)
}
