package resources

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/coopr/coopr/engine/access"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/rest"
)

// ByResource names a resource in the path.
type ByResource struct {
	Kind   string `path:"kind" enum:"providertypes,automatortypes" doc:"The kind of plugin"`
	Plugin string `path:"type" doc:"Name of the provider type or automator type"`
	Type   string `path:"resourcetype" doc:"One of the resourceTypes in the type's descriptor"`
	Name   string `path:"name" doc:"The resource's name"`
}

func (b ByResource) key() model.ResourceKey {
	return model.ResourceKey{Kind: model.Kind(b.Kind), Plugin: b.Plugin, Type: b.Type, Name: b.Name}
}

type byResourceVersion struct {
	ByResource
	Version int `path:"version" minimum:"1" doc:"The version, from 1"`
}

// ByStatus selects versions by status.
type ByStatus struct {
	Status string `query:"status" enum:"inactive,staged,active,recalled" doc:"Only versions of this status"`
}

// Register adds the routes.
func Register(s *rest.Server) {
	const tag, path = "plugin resources", "/v1/plugins"
	const ofType = path + "/{kind}/{type}/{resourcetype}"
	const one = ofType + "/{name}"
	const version = one + "/versions/{version}"

	list := func(c *rest.Call, status string, of func(model.ResourceVersion) bool) ([]model.ResourceVersion, error) {
		all, _, err := s.Resources.List(c.Who.Tenant)
		out := []model.ResourceVersion{}
		if err != nil {
			return nil, err
		}
		for _, v := range all {
			if (status == "" || string(v.Status) == status) && of(v) {
				out = append(out, shown(v))
			}
		}
		return rest.Listed(c, access.TypePluginResource, out, func(v model.ResourceVersion) string { return v.Name })
	}
	find := func(c *rest.Call, in *byResourceVersion) (model.ResourceVersion, error) {
		all, _, err := s.Resources.List(c.Who.Tenant)
		if err != nil {
			return model.ResourceVersion{}, err
		}
		for _, v := range all {
			if v.ResourceKey == in.key() && v.Version == in.Version {
				return v, nil
			}
		}
		return model.ResourceVersion{}, rest.NotFound("there is no version %d of resource %s in tenant %s", in.Version, in.key(), c.Who.Tenant)
	}
	rest.AskList(
		s,
		rest.Route{
			ID: "listResources", Order: "kind,plugin,type,name,version",
			Method:  http.MethodGet,
			Path:    path + "/resources",
			Tag:     tag,
			Summary: "List every version of every plugin resource",
		},
		func(_ context.Context, c *rest.Call, in *ByStatus) ([]model.ResourceVersion, error) {
			return list(c, in.Status, func(model.ResourceVersion) bool { return true })
		},
	)
	rest.AskList(
		s,
		rest.Route{
			ID: "listResourcesOfType", Order: "kind,plugin,type,name,version",
			Method:  http.MethodGet,
			Path:    ofType,
			Tag:     tag,
			Summary: "List the resources of one type of a plugin",
		},
		func(_ context.Context, c *rest.Call, in *struct {
			ByStatus
			Kind   string `path:"kind" enum:"providertypes,automatortypes" doc:"The kind of plugin"`
			Plugin string `path:"type" doc:"Name of the provider type or automator type"`
			Type   string `path:"resourcetype" doc:"One of the resourceTypes in the type's descriptor"`
		}) ([]model.ResourceVersion, error) {
			return list(c, in.Status, func(v model.ResourceVersion) bool {
				return string(v.Kind) == in.Kind && v.Plugin == in.Plugin && v.ResourceKey.Type == in.Type
			})
		},
	)
	rest.AskList(
		s,
		rest.Route{
			ID: "listResourceVersions", Order: "kind,plugin,type,name,version",
			Method:  http.MethodGet,
			Path:    one,
			Tag:     tag,
			Summary: "List the versions of a plugin resource",
		},
		func(_ context.Context, c *rest.Call, in *struct {
			ByStatus
			ByResource
		}) ([]model.ResourceVersion, error) {
			return list(c, in.Status, func(v model.ResourceVersion) bool { return v.ResourceKey == in.key() })
		},
	)
	rest.Ask(
		s,
		rest.Route{
			ID:      "getResourceVersion",
			Method:  http.MethodGet,
			Path:    version,
			Tag:     tag,
			Summary: "Get the record of one version of a plugin resource",
		},
		func(_ context.Context, c *rest.Call, in *byResourceVersion) (model.ResourceVersion, error) {
			v, err := find(c, in)
			return shown(v), err
		},
	)
	rest.Stream(
		s,
		rest.Route{
			ID:          "getResourceContent",
			Method:      http.MethodGet,
			Path:        version + "/content",
			Tag:         tag,
			Bare:        true,
			Summary:     "Get the content of a version",
			Description: "The content of keys and other secrets cannot be read: 403.",
		},
		"application/octet-stream",
		"The content",
		func(ctx context.Context, c *rest.Call, in *byResourceVersion, w http.ResponseWriter, _ *http.Request) error {
			v, err := find(c, in)
			if err != nil {
				return err
			}
			if v.Secret {
				return rest.Forbidden("resource %s is secret: its content cannot be read", v)
			}
			content, err := s.Resources.Content(ctx, v.ResourcePin)
			if err != nil {
				return err
			}
			defer content.Close()
			w.Header().Set("Content-Length", strconv.FormatInt(v.Size, 10))
			_, err = io.Copy(w, content)
			return err
		},
	)
	uploadRoute(s, tag, one)

	order := func(order, summary string) {
		rest.Write(
			s,
			rest.Route{ID: order + "Resource", Method: http.MethodPost, Path: version + "/" + order, Tag: tag, Summary: summary},
			func(ctx context.Context, c *rest.Call, in *byResourceVersion) (model.ResourceVersion, api.Written, error) {
				w, err := s.Resources.Order(ctx, c.Who, order, in.key(), in.Version)
				if err != nil {
					return model.ResourceVersion{}, w, err
				}
				if len(w.Effect.Resources) == 1 {
					return shown(w.Effect.Resources[0]), w, nil
				}
				v, err := rest.Wrote[model.ResourceVersion](w, nil)
				return v, w, err
			},
		)
	}
	order(model.StageResource, "Stage a version: the next sync puts it in force, in the place of another")
	order(model.RecallResource, "Recall a version: the next sync takes it out of force; one that is staged is not any more")
	order(model.ActivateResource, "Put a version in force now, alone: stage and sync of this resource")
	rest.Write(
		s,
		rest.Route{
			ID:          "syncResources",
			Method:      http.MethodPost,
			Path:        path + "/sync",
			Tag:         tag,
			Summary:     "Activate all staged versions and deactivate all recalled ones",
			Description: "New plans use the active versions. Present plans keep the versions that they were planned with.",
		},
		func(ctx context.Context, c *rest.Call, _ *rest.None) (api.Synced, api.Written, error) {
			w, err := s.Resources.Order(ctx, c.Who, "sync", model.ResourceKey{}, 0)
			if err != nil {
				return api.Synced{}, w, err
			}
			out := api.Synced{Active: []model.ResourceVersion{}}
			for _, v := range w.Effect.Resources {
				out.Active = append(out.Active, shown(v))
			}
			return out, w, nil
		},
	)
	drop := func(ctx context.Context, c *rest.Call, k model.ResourceKey, version int) (api.Deleted, api.Written, error) {
		w, err := s.Resources.Order(ctx, c.Who, model.DeleteResource, k, version)
		return api.Deleted{Name: k.String(), Version: version}, w, err
	}
	rest.Write(
		s,
		rest.Route{
			ID:      "deleteResourceVersion",
			Method:  http.MethodDelete,
			Path:    version,
			Tag:     tag,
			Summary: "Delete an inactive version",
		},
		func(ctx context.Context, c *rest.Call, in *byResourceVersion) (api.Deleted, api.Written, error) {
			return drop(ctx, c, in.key(), in.Version)
		},
	)
	rest.Write(
		s,
		rest.Route{
			ID:      "deleteResource",
			Method:  http.MethodDelete,
			Path:    one,
			Tag:     tag,
			Summary: "Delete a resource with all its versions, which must be inactive",
		},
		func(ctx context.Context, c *rest.Call, in *ByResource) (api.Deleted, api.Written, error) {
			return drop(ctx, c, in.key(), 0)
		},
	)
}

func uploadRoute(s *rest.Server, tag, path string) {
	rt := rest.Route{
		ID:      "uploadResource",
		Method:  http.MethodPost,
		Path:    path,
		Tag:     tag,
		Status:  http.StatusCreated,
		Rule:    rest.Rule{Streamed: true, Once: true},
		Summary: "Upload the next version of a plugin resource, as the body",
		Description: "The version is inactive unless then is given. " +
			"The answer comes when the content is on the disks of a majority of the voters.",
	}
	rest.Stream(s, rt, "application/json", "The new version",
		func(ctx context.Context, c *rest.Call, in *struct {
			ByResource
			SHA256 string `query:"sha256" pattern:"^[0-9a-fA-F]{64}$" doc:"The expected SHA-256 of the content; other content is refused"`
			Then   string `query:"then" enum:"activate,stage" doc:"What to do with the new version immediately"`
		}, w http.ResponseWriter, r *http.Request) error {
			if in.Then != "" {
				if err := c.MayNamed(access.Operate, access.TypePluginResource, in.Name); err != nil {
					return err
				}
			}
			v, written, err := s.Resources.Upload(ctx, c.Who, api.NewResource{ResourceKey: in.key(), SHA256: in.SHA256, Order: in.Then}, r.Body)
			if err := c.BodyProblem(); err != nil {
				return err
			}
			if err != nil {
				return err
			}
			if written.Index > 0 {
				w.Header().Set(api.HeaderIndex, strconv.FormatUint(written.Index, 10))
			}
			if written.Repeated {
				w.Header().Set(api.HeaderRepeated, "true")
			}
			w.WriteHeader(http.StatusCreated)
			return json.NewEncoder(w).Encode(shown(v))
		})
	item := s.OpenAPI().Paths[path].Post
	item.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
		"application/octet-stream": {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}},
	}}
}

// shown returns a version without the checksum of a secret.
func shown(v model.ResourceVersion) model.ResourceVersion {
	if v.Secret {
		v.SHA256 = ""
	}
	return v
}
