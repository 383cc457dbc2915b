package server

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
)

func (s *server) operatorRoutes() {
	const tag = "operator"
	super := rule{need: model.RoleSuperadmin}

	ask(s, route{id: "listRaftPeers", method: http.MethodGet, path: "/v1/operator/raft/peers", tag: tag, rule: super, summary: "List the members of the Raft group"},
		func(ctx context.Context, _ *call, _ *none) ([]api.RaftPeer, error) {
			peers, err := s.Raft.Peers(ctx)
			return append([]api.RaftPeer{}, peers...), err
		})
	ask(s, route{id: "transferLeadership", method: http.MethodPost, path: "/v1/operator/raft/transfer", tag: tag, rule: super, optional: true, summary: "Transfer the leadership to another voter"},
		func(ctx context.Context, _ *call, in *struct {
			Body raw[api.TransferBody]
		}) (api.Done, error) {
			body, err := in.Body.value()
			if err != nil {
				return api.Done{}, err
			}
			return api.Done{Done: true}, s.Raft.Transfer(ctx, body.To)
		})
	ask(s, route{id: "removeRaftPeer", method: http.MethodDelete, path: "/v1/operator/raft/peers/{id}", tag: tag, rule: super, summary: "Remove a member from the Raft group"},
		func(ctx context.Context, _ *call, in *struct {
			ID string `path:"id" doc:"The member's id"`
		}) (api.Deleted, error) {
			return api.Deleted{Name: in.ID}, s.Raft.Remove(ctx, in.ID)
		})
	stream(s, route{id: "saveSnapshot", method: http.MethodGet, path: "/v1/operator/snapshot", tag: tag, rule: super, bare: true, summary: "Save a snapshot of the whole state"},
		"application/octet-stream", "The snapshot archive",
		func(_ context.Context, _ *call, _ *none, w http.ResponseWriter, r *http.Request) error {
			return s.Raft.Save(r.Context(), w)
		})
	rt := route{id: "restoreSnapshot", method: http.MethodPost, path: "/v1/operator/snapshot", tag: tag, rule: rule{need: model.RoleSuperadmin, streamed: true}, summary: "Replace the whole state by a snapshot"}
	stream(s, rt, "application/json", "Done, when the state is replaced",
		func(_ context.Context, _ *call, _ *none, w http.ResponseWriter, r *http.Request) error {
			if r.Body == nil || r.Body == http.NoBody {
				return malformed(model.Faults{{Message: "the body is empty: send a snapshot archive"}})
			}
			if err := s.Raft.Restore(r.Context(), r.Body); err != nil {
				return err
			}
			_, err := w.Write([]byte(`{"done":true}` + "\n"))
			return err
		})
	post := s.api.OpenAPI().Paths[rt.path].Post
	post.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
		"application/octet-stream": {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}},
	}}
}
