package mesh

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/rest"
)

func operatorRoutes(s *rest.Server) {
	const tag = "operator"
	rotationRoutes(s)
	inspectRoutes(s)

	rest.AskList(
		s,
		rest.Route{
			ID: "listRaftPeers", Order: "id",
			Method:  http.MethodGet,
			Path:    "/v1/operator/raft/peers",
			Tag:     tag,
			Summary: "List the members of the Raft group",
		},
		func(ctx context.Context, _ *rest.Call, _ *rest.None) ([]api.RaftPeer, error) {
			peers, err := s.Raft.Peers(ctx)
			return append([]api.RaftPeer{}, peers...), err
		},
	)
	rest.Ask(
		s,
		rest.Route{
			ID:       "transferLeadership",
			Method:   http.MethodPost,
			Path:     "/v1/operator/raft/transfer",
			Tag:      tag,
			Optional: true,
			Summary:  "Transfer the leadership to another voter",
		},
		func(ctx context.Context, _ *rest.Call, in *struct {
			Body rest.Raw[api.TransferBody]
		}) (api.Done, error) {
			body, err := in.Body.Value()
			if err != nil {
				return api.Done{}, err
			}
			return api.Done{Done: true}, s.Raft.Transfer(ctx, body.To)
		},
	)
	rest.Ask(
		s,
		rest.Route{
			ID:      "removeRaftPeer",
			Method:  http.MethodDelete,
			Path:    "/v1/operator/raft/peers/{id}",
			Tag:     tag,
			Summary: "Remove a member from the Raft group",
		},
		func(ctx context.Context, _ *rest.Call, in *struct {
			ID string `path:"id" doc:"The member's id"`
		}) (api.Deleted, error) {
			return api.Deleted{Name: in.ID}, s.Raft.Remove(ctx, in.ID)
		},
	)
	rest.Stream(
		s,
		rest.Route{
			ID:      "saveSnapshot",
			Method:  http.MethodGet,
			Path:    "/v1/operator/snapshot",
			Tag:     tag,
			Bare:    true,
			Summary: "Save a snapshot of the whole state",
		},
		"application/octet-stream",
		"The snapshot archive",
		func(_ context.Context, _ *rest.Call, _ *rest.None, w http.ResponseWriter, r *http.Request) error {
			return s.Raft.Save(r.Context(), w)
		},
	)
	rt := rest.Route{
		ID:          "restoreSnapshot",
		Method:      http.MethodPost,
		Path:        "/v1/operator/snapshot",
		Tag:         tag,
		Rule:        rest.Rule{Streamed: true},
		Summary:     "Replace the whole state by a snapshot",
		Description: "The mesh is held then: it begins no work until it is resumed.",
	}
	rest.Stream(s, rt, "application/json", "Done, when the state is replaced",
		func(_ context.Context, c *rest.Call, in *struct {
			Unsigned bool   `query:"unsigned" doc:"Take a snapshot that nothing proves: without a signature, or signed by a mesh whose keyring this mesh does not have"`
			Resume   bool   `query:"resume" doc:"Begin work at once"`
			File     string `query:"file" maxLength:"255" doc:"The name of the snapshot's file, which the status of a mesh that is held shows"`
		}, w http.ResponseWriter, r *http.Request) error {
			if r.Body == nil || r.Body == http.NoBody {
				return rest.Malformed(model.Faults{{Message: "the body is empty: send a snapshot archive"}})
			}
			o := api.RestoreOptions{Unsigned: in.Unsigned, Resume: in.Resume, File: in.File}
			if err := s.Raft.Restore(r.Context(), c.Who, r.Body, o); err != nil {
				return err
			}
			_, err := w.Write([]byte(`{"done":true}` + "\n"))
			return err
		})
	rest.Write(
		s,
		rest.Route{
			ID: "resumeMesh", Method: http.MethodPost, Path: "/v1/operator/resume", Tag: tag, Optional: true,
			Summary:     "Have a mesh begin work again that was restored from a snapshot",
			Description: "Until then the mesh is held: it leases no tasks, and starts, recovers, watches and removes nothing.",
		},
		func(ctx context.Context, c *rest.Call, _ *rest.None) (api.Done, api.Written, error) {
			w, err := s.Raft.Resume(ctx, c.Who)
			return api.Done{Done: true}, w, err
		},
	)
	post := s.OpenAPI().Paths[rt.Path].Post
	post.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
		"application/octet-stream": {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}},
	}}
}
