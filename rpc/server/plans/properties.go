package plans

import (
	"context"
	"maps"
	"net/http"
	"reflect"
	"slices"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/redact"
	"github.com/coopr/coopr/rpc/server/rest"
)

// sortedNames returns the keys of a map, sorted. It is never nil.
func sortedNames[T any](m map[string]T) []string {
	return append([]string{}, slices.Sorted(maps.Keys(m))...)
}

// propertiesOf returns the properties of a cluster by their names. Each is a function that returns the content.
func propertiesOf(c *rest.Call, v rest.View, cl *model.Cluster) map[string]func() any {
	out := map[string]func() any{}
	deployed := cl.Status == model.ClusterActive
	for _, s := range v.History(c.Who.Tenant, cl.ID) {
		deployed = deployed || s.State.Status == model.ClusterActive
	}
	if deployed {
		out["last-completed-update-type"] = func() any { return "DEPLOY" }
	}
	for _, op := range v.Operations(c.Who.Tenant, cl.ID) {
		content := func() any {
			return api.OperationProperty{
				ID: op.ID, Type: op.Type, Status: op.Status, Message: op.Message, Actor: op.Actor, Created: op.CreatedAt, Ended: op.EndedAt,
			}
		}
		out["operation:"+op.ID] = content
		if op.ID == cl.Operation {
			out["operation"] = content
		}
	}
	for _, n := range c.Nodes(v, cl) {
		for _, s := range n.Services {
			out[podName(n)+"-"+s+":task-status"] = func() any { return taskProperty(c, v, cl, n, s) }
		}
		if len(n.Results) > 0 {
			out[podName(n)+":results"] = func() any { return redact.Node(n).Results }
		}
	}
	return out
}

// taskProperty returns the status of a service on a node, with the agent and the time of its latest task in the cluster's latest
// operation.
func taskProperty(c *rest.Call, v rest.View, cl *model.Cluster, n *model.Node, service string) api.TaskProperty {
	out := api.TaskProperty{Address: n.IPAddresses["access_v4"], Node: n.ID}
	if state := taskState(cl, n, service, attemptsOf(c, v, cl)); state != "" {
		out.State = "TASK_" + state
	}
	tasks := v.Tasks(c.Who.Tenant, cl.Operation)
	for _, t := range tasks {
		if t.Node == n.ID && t.Service == service && t.LeasedAt > out.Time {
			out.Agent, out.Time = t.Agent, t.LeasedAt
		}
	}
	return out
}

func stateRoutes(s *rest.Server) {
	cluster := func(in *rest.ByCluster) string { return in.ID }
	inspect(s, "getFrameworkID", "state/frameworkId", "Get a cluster's id, in a list", reflect.TypeFor[[]string](), cluster,
		func(_ *rest.Call, _ rest.View, cl *model.Cluster, _ *rest.ByCluster) (any, error) {
			return []string{cl.ID}, nil
		})
	inspect(s, "listProperties", "state/properties", "List the names of a cluster's properties", reflect.TypeFor[[]string](), cluster,
		func(c *rest.Call, v rest.View, cl *model.Cluster, _ *rest.ByCluster) (any, error) {
			return sortedNames(propertiesOf(c, v, cl)), nil
		})
	type byProperty struct {
		rest.ByCluster
		Property string `path:"property" doc:"The property's name"`
	}
	inspect(s, "getProperty", "state/properties/{property}", "Get a property of a cluster", reflect.TypeFor[any](),
		func(in *byProperty) string { return in.ID },
		func(c *rest.Call, v rest.View, cl *model.Cluster, in *byProperty) (any, error) {
			content, ok := propertiesOf(c, v, cl)[in.Property]
			if !ok {
				return nil, notFound("Property", in.Property)
			}
			return content(), nil
		})
	sdk(
		s,
		rest.Route{
			ID:          "refreshState",
			Method:      http.MethodPut,
			Path:        "/v1/clusters/{cluster}/state/refresh",
			Tag:         "plans",
			Summary:     "Has no effect, because there is no cache that could be out of date",
			Description: alsoSDK,
		},
		[]sdkAnswer{{http.StatusOK, "There is nothing to refresh", reflect.TypeFor[api.Said]()}},
		func(ctx context.Context, c *rest.Call, in *rest.ByCluster) (int, any, uint64, error) {
			v, _, err := viewOf(ctx, s, c, in.ID)
			if err != nil {
				return 0, nil, 0, err
			}
			return http.StatusOK, api.Said{Message: "Received cmd: refresh"}, v.Index(), nil
		},
	)
}
