package mesh

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/rest"
)

func meshRoutes(s *rest.Server) {
	const tag = "mesh"
	local := rest.Rule{Local: true}
	steer := rest.Rule{Local: true}

	rest.Ask(
		s,
		rest.Route{
			ID:      "healthz",
			Method:  http.MethodGet,
			Path:    "/v1/healthz",
			Tag:     tag,
			Rule:    rest.Rule{Public: true, Local: true},
			Summary: "Check that the agent answers; needs no token",
		},
		always(api.Health{Status: "ok"}),
	)
	ready := rest.Route{
		ID:      "readyz",
		Method:  http.MethodGet,
		Path:    "/v1/readyz",
		Tag:     tag,
		Rule:    rest.Rule{Public: true, Local: true},
		Summary: "Check that the agent can serve requests; needs no token",
		Description: "A voter is ready while it knows a leader and its copy of the state has caught up; a leader also needs its duties to run. " +
			"Any other agent is ready while it can reach a leader.",
	}
	rest.Ask(s, ready, func(ctx context.Context, _ *rest.Call, _ *rest.None) (api.Readiness, error) {
		return s.Mesh.Ready(ctx), nil
	})
	responses := s.OpenAPI().Paths[ready.Path].Get.Responses
	responses["503"] = &huma.Response{Description: "The agent cannot serve", Content: responses["200"].Content}
	rest.Ask(
		s,
		rest.Route{
			ID:      "getStatus",
			Method:  http.MethodGet,
			Path:    "/v1/status",
			Tag:     tag,
			Rule:    local,
			Summary: "Get the status of the contacted agent and of its mesh",
		},
		func(ctx context.Context, _ *rest.Call, _ *rest.None) (api.AgentStatus, error) {
			return s.Mesh.Status(ctx), nil
		},
	)
	rest.AskList(
		s,
		rest.Route{
			ID: "listMembers", Order: "id",
			Method:  http.MethodGet,
			Path:    "/v1/members",
			Tag:     tag,
			Rule:    local,
			Summary: "List the members of the mesh as the contacted agent sees them",
		},
		func(_ context.Context, c *rest.Call, _ *rest.None) ([]api.Member, error) {
			return append([]api.Member{}, s.Mesh.Members()...), c.MayList()
		},
	)
	rest.Ask(
		s,
		rest.Route{
			ID:      "joinMesh",
			Method:  http.MethodPost,
			Path:    "/v1/join",
			Tag:     tag,
			Rule:    steer,
			Summary: "Make the contacted agent contact the mesh at gossip addresses",
		},
		func(ctx context.Context, _ *rest.Call, in *struct {
			Body rest.Raw[api.JoinBody]
		}) (api.Joined, error) {
			body, err := in.Body.Value()
			if err != nil {
				return api.Joined{}, err
			}
			if len(body.Addresses) == 0 {
				return api.Joined{}, rest.Invalid(model.Faults{{Path: "addresses", Message: "is empty: give the gossip address of at least one agent"}})
			}
			n, err := s.Mesh.Join(ctx, body.Addresses)
			return api.Joined{Reached: n}, err
		},
	)
	rest.Ask(
		s,
		rest.Route{
			ID:       "leaveMesh",
			Method:   http.MethodPost,
			Path:     "/v1/leave",
			Tag:      tag,
			Rule:     steer,
			Optional: true,
			Summary:  "Make the contacted agent leave the mesh, or remove another agent",
		},
		func(ctx context.Context, c *rest.Call, in *struct {
			Body rest.Raw[api.LeaveBody]
		}) (api.Left, error) {
			body, err := in.Body.Value()
			if err != nil {
				return api.Left{}, err
			}
			return s.Mesh.Leave(ctx, c.Who, c.Bearer, body)
		},
	)
	rest.Stream(
		s,
		rest.Route{
			ID:      "getMetrics",
			Method:  http.MethodGet,
			Path:    "/v1/metrics",
			Tag:     tag,
			Rule:    local,
			Bare:    true,
			Summary: "Get the contacted agent's metrics",
		},
		"text/plain; version=0.0.4; charset=utf-8",
		"Prometheus text format",
		func(_ context.Context, _ *rest.Call, _ *rest.None, w http.ResponseWriter, _ *http.Request) error {
			return s.WriteMetrics(w)
		},
	)
	rest.List(
		s,
		rest.Route{ID: "listAgents", Order: "id", Path: "/v1/agents", Tag: tag, Summary: "List the agents on record"},
		func(_ context.Context, c *rest.Call, v rest.View, _ *rest.None) ([]model.Agent, error) {
			return append([]model.Agent{}, v.Agents()...), c.MayList()
		},
	)
	rest.Read(
		s,
		rest.Route{
			ID:      "getAgent",
			Path:    "/v1/agents/{agent}",
			Tag:     tag,
			Summary: "Get an agent on record, by id or name",
		},
		func(_ context.Context, _ *rest.Call, v rest.View, in *struct {
			ID string `path:"agent" doc:"The agent's id or name"`
		}) (model.Agent, error) {
			for _, a := range v.Agents() {
				if a.ID == in.ID || a.Name == in.ID {
					return a, nil
				}
			}
			return model.Agent{}, rest.NotFound("there is no agent %q on record", in.ID)
		},
	)
	rest.List(
		s,
		rest.Route{
			ID: "listPlugins", Order: "-class,name",
			Path:    "/v1/plugins",
			Tag:     tag,
			Summary: "List the plugin types that the agents offer",
		},
		func(_ context.Context, c *rest.Call, v rest.View, _ *rest.None) ([]model.PluginType, error) {
			return append([]model.PluginType{}, v.PluginTypes()...), c.MayList()
		},
	)
}

// always returns a handler with a fixed answer.
func always[T any](v T) func(context.Context, *rest.Call, *rest.None) (T, error) {
	return func(context.Context, *rest.Call, *rest.None) (T, error) { return v, nil }
}
