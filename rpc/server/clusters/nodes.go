package clusters

import (
	"context"
	"iter"
	"slices"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/listing"
	"github.com/coopr/coopr/rpc/server/redact"
	"github.com/coopr/coopr/rpc/server/rest"
)

func nodeRoutes(s *rest.Server) {
	const tag = "nodes"

	commandRoute(s)
	forwardRoute(s)

	rest.Pages(s, rest.Route{ID: "listNodes", Path: "/v1/nodes", Tag: tag, Order: "id", Paged: true, Summary: "List nodes"},
		func(_ context.Context, c *rest.Call, v rest.View, in *struct {
			Cluster string `query:"cluster" doc:"Only those of this cluster, by id or name"`
		}) (out listing.Source[*model.Node, model.Node], err error) {
			clusters := func(from string) iter.Seq[*model.Cluster] { return c.Clusters(v, from) }
			if in.Cluster != "" {
				cl, err := c.Cluster(v, in.Cluster)
				if err != nil {
					return out, err
				}
				clusters = func(string) iter.Seq[*model.Cluster] { return slices.Values([]*model.Cluster{cl}) }
			}
			return listing.Source[*model.Node, model.Node]{
				All: func(from string) iter.Seq[*model.Node] {
					return func(yield func(*model.Node) bool) {
						for cl := range clusters(string(model.NodeID(from).Cluster())) {
							for _, n := range c.Nodes(v, cl) {
								if !yield(n) {
									return
								}
							}
						}
					}
				},
				Sorted: true,
				Show:   redact.Node,
			}, nil
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
