package clusters

import (
	"context"
	"net/http"
	"strconv"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/rest"
)

func forwardRoute(s *rest.Server) {
	rest.Stream(
		s,
		rest.Route{
			ID:      "forwardNodePort",
			Method:  http.MethodPost,
			Path:    "/v1/nodes/{node}/forward",
			Tag:     "nodes",
			Rule:    rest.Rule{Watches: true, Private: true, Streamed: true, Duplex: true},
			Summary: "Connect to a TCP port of a node",
			Description: "The bodies of the request and of the answer are the bytes of the connection, both at the same time. " +
				"The audit log has the node and the port before the connection is opened, and its end. " +
				"The header Coopr-Through of the answer names the agent that has connected. A connection that is idle for an hour ends.",
		},
		"application/octet-stream",
		"What the node sends",
		func(ctx context.Context, c *rest.Call, in *struct {
			ID   string `path:"node" doc:"The node's id"`
			Port int    `query:"port" required:"true" minimum:"1" maximum:"65535" doc:"The TCP port"`
		}, w http.ResponseWriter, r *http.Request) error {
			v, err := s.View(ctx, c)
			if err != nil {
				return err
			}
			n, err := c.Node(v, in.ID)
			if err != nil {
				return err
			}
			i := rest.IncidentOf(s, r, model.IncidentNodeForward, n.ID+": port "+strconv.Itoa(in.Port))
			begun := func(agent string) error {
				w.Header().Set(api.HeaderThrough, agent)
				_, err := w.Write(nil) // sends the header
				return err
			}
			err = s.Operations.Forward(ctx, c.Who, n.ID, in.Port, i, begun, r.Body, w)
			if err != nil && r.Context().Err() != nil {
				return rest.Ended(r.Context()) // or the client is gone
			}
			return err
		},
	)
}
