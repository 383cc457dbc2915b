package server

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
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

func (s *server) resourceRoutes() {
	const tag, path = "plugin resources", "/v1/plugins"
	const ofType = path + "/{kind}/{type}/{resourcetype}"
	const one = ofType + "/{name}"
	const version = one + "/versions/{version}"
	reads, admin := rule{need: model.RoleRead}, rule{need: model.RoleAdmin}

	list := func(c *call, status string, of func(model.ResourceVersion) bool) ([]model.ResourceVersion, error) {
		all, _, err := s.Resources.List(c.who.Tenant)
		out := []model.ResourceVersion{}
		for _, v := range all {
			if (status == "" || string(v.Status) == status) && of(v) {
				out = append(out, shown(v))
			}
		}
		return out, err
	}
	find := func(c *call, in *byResourceVersion) (model.ResourceVersion, error) {
		all, _, err := s.Resources.List(c.who.Tenant)
		if err != nil {
			return model.ResourceVersion{}, err
		}
		for _, v := range all {
			if v.ResourceKey == in.key() && v.Version == in.Version {
				return v, nil
			}
		}
		return model.ResourceVersion{}, notFound("there is no version %d of resource %s in tenant %s", in.Version, in.key(), c.who.Tenant)
	}
	ask(s, route{id: "listResources", method: http.MethodGet, path: path + "/resources", tag: tag, rule: reads, summary: "List every version of every plugin resource"},
		func(_ context.Context, c *call, in *ByStatus) ([]model.ResourceVersion, error) {
			return list(c, in.Status, func(model.ResourceVersion) bool { return true })
		})
	ask(s, route{id: "listResourcesOfType", method: http.MethodGet, path: ofType, tag: tag, rule: reads, summary: "List the resources of one type of a plugin"},
		func(_ context.Context, c *call, in *struct {
			ByStatus
			Kind   string `path:"kind" enum:"providertypes,automatortypes" doc:"The kind of plugin"`
			Plugin string `path:"type" doc:"Name of the provider type or automator type"`
			Type   string `path:"resourcetype" doc:"One of the resourceTypes in the type's descriptor"`
		}) ([]model.ResourceVersion, error) {
			return list(c, in.Status, func(v model.ResourceVersion) bool {
				return string(v.Kind) == in.Kind && v.Plugin == in.Plugin && v.ResourceKey.Type == in.Type
			})
		})
	ask(s, route{id: "listResourceVersions", method: http.MethodGet, path: one, tag: tag, rule: reads, summary: "List the versions of a plugin resource"},
		func(_ context.Context, c *call, in *struct {
			ByStatus
			ByResource
		}) ([]model.ResourceVersion, error) {
			return list(c, in.Status, func(v model.ResourceVersion) bool { return v.ResourceKey == in.key() })
		})
	ask(s, route{id: "getResourceVersion", method: http.MethodGet, path: version, tag: tag, rule: reads, summary: "Get the record of one version of a plugin resource"},
		func(_ context.Context, c *call, in *byResourceVersion) (model.ResourceVersion, error) {
			v, err := find(c, in)
			return shown(v), err
		})
	stream(s, route{id: "getResourceContent", method: http.MethodGet, path: version + "/content", tag: tag, rule: admin, bare: true, summary: "Get the content of a version",
		description: "The content of keys and other secrets cannot be read: 403."},
		"application/octet-stream", "The content",
		func(ctx context.Context, c *call, in *byResourceVersion, w http.ResponseWriter, _ *http.Request) error {
			v, err := find(c, in)
			if err != nil {
				return err
			}
			if v.Secret {
				return forbidden("resource %s is secret: its content cannot be read", v)
			}
			content, err := s.Resources.Content(ctx, v.ResourcePin)
			if err != nil {
				return err
			}
			defer content.Close()
			w.Header().Set("Content-Length", strconv.FormatInt(v.Size, 10))
			_, err = io.Copy(w, content)
			return err
		})
	s.uploadRoute(tag, one)

	order := func(order, summary string) {
		write(s, route{id: order + "Resource", method: http.MethodPost, path: version + "/" + order, tag: tag, rule: admin, summary: summary},
			func(ctx context.Context, c *call, in *byResourceVersion) (model.ResourceVersion, api.Written, error) {
				w, err := s.Resources.Order(ctx, c.who, order, in.key(), in.Version)
				if err != nil {
					return model.ResourceVersion{}, w, err
				}
				v, err := find(c, in)
				return shown(v), w, err
			})
	}
	order(model.StageResource, "Stage a version: the next sync puts it in force, in the place of another")
	order(model.RecallResource, "Recall a version: the next sync takes it out of force; one that is staged is not any more")
	order(model.ActivateResource, "Put a version in force now, alone: stage and sync of this resource")
	write(s, route{id: "syncResources", method: http.MethodPost, path: path + "/sync", tag: tag, rule: admin, summary: "Activate all staged versions and deactivate all recalled ones",
		description: "New plans use the active versions. Present plans keep the versions that they were planned with."},
		func(ctx context.Context, c *call, _ *none) (api.Synced, api.Written, error) {
			w, err := s.Resources.Order(ctx, c.who, "sync", model.ResourceKey{}, 0)
			if err != nil {
				return api.Synced{}, w, err
			}
			active, err := list(c, string(model.ResourceActive), func(model.ResourceVersion) bool { return true })
			return api.Synced{Active: active}, w, err
		})
	drop := func(ctx context.Context, c *call, k model.ResourceKey, version int) (api.Deleted, api.Written, error) {
		w, err := s.Resources.Order(ctx, c.who, model.DeleteResource, k, version)
		return api.Deleted{Name: k.String(), Version: version}, w, err
	}
	write(s, route{id: "deleteResourceVersion", method: http.MethodDelete, path: version, tag: tag, rule: admin, summary: "Delete an inactive version"},
		func(ctx context.Context, c *call, in *byResourceVersion) (api.Deleted, api.Written, error) {
			return drop(ctx, c, in.key(), in.Version)
		})
	write(s, route{id: "deleteResource", method: http.MethodDelete, path: one, tag: tag, rule: admin, summary: "Delete a resource with all its versions, which must be inactive"},
		func(ctx context.Context, c *call, in *ByResource) (api.Deleted, api.Written, error) {
			return drop(ctx, c, in.key(), 0)
		})
}

func (s *server) uploadRoute(tag, path string) {
	rt := route{id: "uploadResource", method: http.MethodPost, path: path, tag: tag, status: http.StatusCreated,
		rule: rule{need: model.RoleAdmin, streamed: true, once: true}, summary: "Upload the next version of a plugin resource, as the body",
		description: "The version is inactive unless then is given. The answer comes when the content is on the disks of a majority of the voters."}
	stream(s, rt, "application/json", "The new version",
		func(ctx context.Context, c *call, in *struct {
			ByResource
			SHA256 string `query:"sha256" pattern:"^[0-9a-fA-F]{64}$" doc:"The expected SHA-256 of the content; other content is refused"`
			Then   string `query:"then" enum:"activate,stage" doc:"What to do with the new version immediately"`
		}, w http.ResponseWriter, r *http.Request) error {
			v, written, err := s.Resources.Upload(ctx, c.who, api.NewResource{ResourceKey: in.key(), SHA256: in.SHA256, Order: in.Then}, r.Body)
			if c.note.body != nil {
				return bodyProblem(c.note.body)
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
	item := s.api.OpenAPI().Paths[path].Post
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
