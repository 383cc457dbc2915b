package server

import (
	"context"

	"github.com/coopr/coopr/engine/model"
)

func (s *server) nodeRoutes() {
	const tag = "nodes"
	reads := rule{need: model.RoleRead}

	list(s, route{id: "listNodes", path: "/v1/nodes", tag: tag, rule: reads, summary: "List nodes"},
		func(_ context.Context, c *call, v View, in *struct {
			Cluster string `query:"cluster" doc:"Only those of this cluster, by id or name"`
			Offset  int    `query:"offset" minimum:"0" doc:"Number of results to skip"`
			Limit   int    `query:"limit" minimum:"1" maximum:"10000" doc:"Maximum number of results; 1000 if absent"`
		}) ([]model.Node, int, error) {
			clusters := []*model.Cluster{}
			if in.Cluster != "" {
				cl, err := c.cluster(v, in.Cluster)
				if err != nil {
					return nil, 0, err
				}
				clusters = append(clusters, cl)
			} else {
				clusters = c.visible(v)
			}
			var all []*model.Node
			for _, cl := range clusters {
				all = append(all, v.Nodes(c.who.Tenant, cl.ID)...)
			}
			var out []model.Node
			for _, n := range page(all, in.Offset, in.Limit) {
				out = append(out, redactNode(n))
			}
			return out, len(all), nil
		})
	read(s, route{id: "getNode", path: "/v1/nodes/{node}", tag: tag, rule: reads, summary: "Get a node"},
		func(_ context.Context, c *call, v View, in *struct {
			ID string `path:"node" doc:"The node's id"`
		}) (model.Node, error) {
			n, err := c.node(v, in.ID)
			if err != nil {
				return model.Node{}, err
			}
			return redactNode(n), nil
		})
}
