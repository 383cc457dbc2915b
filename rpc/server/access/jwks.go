package access

import (
	"context"
	"encoding/base64"
	"math/big"
	"net/http"
	"time"

	"github.com/coopr/coopr/engine/signing"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/rest"
)

// jwksRoutes has the routes of the keys for tokens of tasks, which whoever verifies such a token asks without one of ours.
func jwksRoutes(s *rest.Server) {
	rest.Ask(
		s,
		rest.Route{
			ID: "getJWKS", Method: http.MethodGet, Path: "/v1/jwks", Tag: "self",
			Rule:    rest.Rule{Open: true},
			Summary: "Get the public keys for tokens of tasks; needs no token",
			Description: "A JSON Web Key Set. It has the keys that may have signed a valid token, and the next one for a day before that signs. " +
				"It is empty until the mesh has the setting issuer.",
		},
		func(ctx context.Context, _ *rest.Call, _ *rest.None) (api.WebKeySet, error) {
			v, err := s.Latest(ctx)
			if err != nil {
				return api.WebKeySet{}, err
			}
			return keySet(v.TaskKeys().Published(time.Now().UnixMilli()))
		},
	)
	rest.Ask(
		s,
		rest.Route{
			ID: "getIssuer", Method: http.MethodGet, Path: "/.well-known/openid-configuration", Tag: "self",
			Rule:    rest.Rule{Open: true},
			Summary: "Get what receivers need to verify tokens of tasks; needs no token",
			Description: "The document of OpenID Connect Discovery. The mesh logs nobody in, so it has only what is needed to verify a token. " +
				"Not found without the setting issuer.",
		},
		func(context.Context, *rest.Call, *rest.None) (api.Issuer, error) {
			if s.Issuer == "" {
				return api.Issuer{}, rest.NotFound("this mesh issues no tokens of tasks: its leader's setting issuer is not set")
			}
			return api.Issuer{Issuer: s.Issuer, Keys: s.Issuer + "/v1/jwks", Algorithms: []string{"RS256"},
				Responses: []string{"id_token"}, Subjects: []string{"public"}}, nil
		},
	)
}

// keySet returns keys as a JSON Web Key Set.
func keySet(keys signing.TaskKeys) (api.WebKeySet, error) {
	out := api.WebKeySet{Keys: []api.WebKey{}}
	for _, k := range keys {
		public, err := k.RSA()
		if err != nil {
			return out, err
		}
		encode := base64.RawURLEncoding.EncodeToString
		key := api.WebKey{Type: "RSA", Use: "sig", Algorithm: "RS256", ID: signing.Thumbprint(public),
			Modulus: encode(public.N.Bytes()), Exponent: encode(big.NewInt(int64(public.E)).Bytes())}
		out.Keys = append(out.Keys, key)
	}
	return out, nil
}
