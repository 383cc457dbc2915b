package server

import (
	"context"
	"net/http"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
)

func (s *server) meshRoutes() {
	const tag = "mesh"
	local := rule{local: true, need: model.RoleRead}
	steer := rule{local: true, need: model.RoleSuperadmin}

	ask(s, route{id: "healthz", method: http.MethodGet, path: "/v1/healthz", tag: tag, rule: rule{public: true, local: true}, summary: "Check that the agent answers; needs no token"}, always(api.Health{Status: "ok"}))
	ask(s, route{id: "getStatus", method: http.MethodGet, path: "/v1/status", tag: tag, rule: local, summary: "Get the status of the asked agent and of its mesh"},
		func(context.Context, *call, *none) (api.AgentStatus, error) { return s.Mesh.Status(), nil })
	ask(s, route{id: "listMembers", method: http.MethodGet, path: "/v1/members", tag: tag, rule: local, summary: "List the members of the mesh as the asked agent sees them"},
		func(context.Context, *call, *none) ([]api.Member, error) {
			return append([]api.Member{}, s.Mesh.Members()...), nil
		})
	ask(s, route{id: "joinMesh", method: http.MethodPost, path: "/v1/join", tag: tag, rule: steer, summary: "Make the asked agent contact the mesh at gossip addresses"},
		func(ctx context.Context, _ *call, in *struct {
			Body raw[api.JoinBody]
		}) (api.Joined, error) {
			body, err := in.Body.value()
			if err != nil {
				return api.Joined{}, err
			}
			if len(body.Addresses) == 0 {
				return api.Joined{}, invalid(model.Faults{{Path: "addresses", Message: "is empty: give the gossip address of at least one agent"}})
			}
			n, err := s.Mesh.Join(ctx, body.Addresses)
			return api.Joined{Reached: n}, err
		})
	ask(s, route{id: "leaveMesh", method: http.MethodPost, path: "/v1/leave", tag: tag, rule: steer, optional: true, summary: "Make the asked agent leave the mesh, or remove an agent that is dead"},
		func(ctx context.Context, _ *call, in *struct {
			Body raw[api.LeaveBody]
		}) (api.Left, error) {
			body, err := in.Body.value()
			if err != nil {
				return api.Left{}, err
			}
			return api.Left(body), s.Mesh.Leave(ctx, body.Agent)
		})
	stream(s, route{id: "getMetrics", method: http.MethodGet, path: "/v1/metrics", tag: tag, rule: local, bare: true, summary: "Get the asked agent's metrics"},
		"text/plain; version=0.0.4; charset=utf-8", "Prometheus text format",
		func(_ context.Context, _ *call, _ *none, w http.ResponseWriter, _ *http.Request) error {
			return s.metrics.write(w)
		})
	read(s, route{id: "listAgents", path: "/v1/agents", tag: tag, rule: rule{need: model.RoleRead}, summary: "List the agents on record"},
		func(_ context.Context, _ *call, v View, _ *none) ([]model.Agent, error) {
			return append([]model.Agent{}, v.Agents()...), nil
		})
	read(s, route{id: "getAgent", path: "/v1/agents/{agent}", tag: tag, rule: rule{need: model.RoleRead}, summary: "Get an agent on record, by id or name"},
		func(_ context.Context, _ *call, v View, in *struct {
			ID string `path:"agent" doc:"The agent's id or name"`
		}) (model.Agent, error) {
			for _, a := range v.Agents() {
				if a.ID == in.ID || a.Name == in.ID {
					return a, nil
				}
			}
			return model.Agent{}, notFound("there is no agent %q on record", in.ID)
		})
	read(s, route{id: "listPlugins", path: "/v1/plugins", tag: tag, rule: rule{need: model.RoleRead}, summary: "List the plugin types that the agents offer"},
		func(_ context.Context, _ *call, v View, _ *none) ([]model.PluginType, error) {
			return append([]model.PluginType{}, v.PluginTypes()...), nil
		})
}

// always returns a handler with a fixed answer.
func always[T any](v T) func(context.Context, *call, *none) (T, error) {
	return func(context.Context, *call, *none) (T, error) { return v, nil }
}
