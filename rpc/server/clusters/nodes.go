package clusters

import (
	"context"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/server/redact"
	"github.com/coopr/coopr/rpc/server/rest"
)

func nodeRoutes(s *rest.Server) {
	const tag = "nodes"

	rest.List(s, rest.Route{ID: "listNodes", Path: "/v1/nodes", Tag: tag, Summary: "List nodes"},
		func(_ context.Context, c *rest.Call, v rest.View, in *struct {
			Cluster string `query:"cluster" doc:"Only those of this cluster, by id or name"`
			Offset  int    `query:"offset" minimum:"0" doc:"Number of results to skip"`
			Limit   int    `query:"limit" minimum:"1" maximum:"10000" doc:"Maximum number of results; 1000 if absent"`
		}) ([]model.Node, int, error) {
			clusters := []*model.Cluster{}
			if in.Cluster != "" {
				cl, err := c.Cluster(v, in.Cluster)
				if err != nil {
					return nil, 0, err
				}
				clusters = append(clusters, cl)
			} else {
				clusters = c.Clusters(v)
			}
			var all []*model.Node
			for _, cl := range clusters {
				all = append(all, c.Nodes(v, cl)...)
			}
			var out []model.Node
			for _, n := range rest.Page(all, in.Offset, in.Limit) {
				out = append(out, redact.Node(n))
			}
			return out, len(all), nil
		})
	rest.Read(s, rest.Route{ID: "getNode", Path: "/v1/nodes/{node}", Tag: tag, Summary: "Get a node"},
		func(_ context.Context, c *rest.Call, v rest.View, in *struct {
			ID string `path:"node" doc:"The node's id"`
		}) (model.Node, error) {
			n, err := c.Node(v, in.ID)
			if err != nil {
				return model.Node{}, err
			}
			return redact.Node(n), nil
		})
}
