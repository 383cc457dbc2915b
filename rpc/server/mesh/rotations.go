package mesh

import (
	"context"
	"net/http"

	"github.com/coopr/coopr/engine/roster"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/rest"
)

func rotationRoutes(s *rest.Server) {
	const tag, path = "operator", "/v1/operator/rotations"

	rest.Read(s, rest.Route{ID: "getKeyring", Path: "/v1/operator/keyring", Tag: tag,
		Summary: "Get the number of the mesh key that is in use, and when it was exported for a backup"},
		func(_ context.Context, _ *rest.Call, v rest.View, _ *rest.None) (api.Keyring, error) {
			number, _ := v.ActiveMeshKey()
			return api.Keyring{Key: number, Exported: v.KeyringExported()}, nil
		})
	rest.List(s, rest.Route{ID: "listRotations", Order: "kind", Path: path, Tag: tag, Summary: "List the latest rotation of each kind of key"},
		func(_ context.Context, _ *rest.Call, v rest.View, _ *rest.None) ([]roster.Rotation, error) {
			return append([]roster.Rotation{}, v.Rotations()...), nil
		})
	rest.Write(
		s,
		rest.Route{
			ID: "createRotation", Method: http.MethodPost, Path: path, Status: http.StatusCreated, Tag: tag,
			Summary: "Replace a key of the mesh",
			Description: "The rotations of the mesh key, of the key of gossip and of the CA go on by themselves. That of the key for tokens " +
				"of tasks (jwks) is done with the answer; the new key signs a day later, or at once with full. That of the root token is " +
				"done with the answer; only the old root token may ask for it. The caller makes the new one and sends its hash, " +
				"so that it is not lost with an answer.",
		},
		func(ctx context.Context, c *rest.Call, in *struct {
			Body rest.Raw[api.NewRotation]
		}) (out roster.Rotation, w api.Written, err error) {
			req, err := in.Body.Value()
			if err != nil {
				return out, w, err
			}
			return s.Raft.Rotate(ctx, c.Who, req)
		},
	)
}
