package mesh

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/roster"
	"github.com/coopr/coopr/internal/words"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/rest"
)

// Limits of join tokens.
const (
	joinTTL     = time.Hour
	maxJoinTTL  = 90 * 24 * time.Hour
	maxJoinUses = 1000
	maxNames    = 16
)

func joinTokenRoutes(s *rest.Server) {
	const tag, path = "mesh", "/v1/join-tokens"

	rest.List(s, rest.Route{ID: "listJoinTokens", Order: "id", Path: path, Tag: tag,
		Summary: "List the tokens with which agents join the mesh"},
		func(_ context.Context, _ *rest.Call, v rest.View, _ *rest.None) ([]roster.JoinToken, error) {
			now := s.Millis()
			return slices.DeleteFunc(append([]roster.JoinToken{}, v.JoinTokens()...), func(t roster.JoinToken) bool {
				return t.Expires <= now || t.Uses <= 0
			}), nil
		})
	rest.Write(
		s,
		rest.Route{
			ID: "createJoinToken", Method: http.MethodPost, Path: path, Status: http.StatusCreated, Tag: tag, Rule: rest.Rule{Secret: true},
			Summary: "Make a token with which agents join the mesh",
			Description: "The token decides what its agents are: a voter may hold the state and the keys of the mesh, and is trusted with " +
				"everything; a worker carries out tasks. If the request is repeated with the same request id, the token is not shown again.",
		},
		func(ctx context.Context, c *rest.Call, in *struct {
			Body rest.Raw[api.NewJoinToken]
		}) (out api.IssuedJoinToken, w api.Written, err error) {
			req, err := in.Body.Value()
			if err != nil {
				return out, w, err
			}
			t, err := joinToken(req, s.Millis())
			if err != nil {
				return out, w, err
			}
			if out.Secret, w, err = s.Tokens.CreateJoin(ctx, c.Who, t); err != nil {
				return out, w, err
			}
			out.JoinToken, err = rest.Wrote(w, w.Effect.JoinToken)
			return out, w, err
		},
	)
	rest.Write(
		s,
		rest.Route{
			ID: "deleteJoinToken", Method: http.MethodDelete, Path: path + "/{id}", Tag: tag, Summary: "Revoke a join token",
			Description: "Agents that have joined with it stay.",
		},
		func(ctx context.Context, c *rest.Call, in *struct {
			ID string `path:"id" doc:"The token's id, as the list shows it"`
		}) (api.Deleted, api.Written, error) {
			w, err := s.Tokens.DeleteJoin(ctx, c.Who, in.ID)
			return api.Deleted{Name: in.ID}, w, err
		},
	)
}

// joinToken returns the token that a request describes.
func joinToken(req api.NewJoinToken, now int64) (roster.JoinToken, error) {
	var faults model.Faults
	roles := []string{roster.Voter, roster.Worker}
	if !slices.Contains(roles, req.Kind) {
		faults.Add("kind", fmt.Sprintf("must be voter or worker, but is %q%s", req.Kind, words.DidYouMean(req.Kind, roles)))
	}
	ttl := joinTTL
	if req.TTL != "" {
		d, err := time.ParseDuration(req.TTL)
		if ttl = d; err != nil || d < time.Minute || d > maxJoinTTL {
			faults.Add("ttl", fmt.Sprintf("must be a duration from 1m to %dh, but is %q", int(maxJoinTTL.Hours()), req.TTL))
		}
	}
	uses := 1
	if req.Uses != nil {
		if uses = *req.Uses; uses < 1 || uses > maxJoinUses {
			faults.Add("uses", fmt.Sprintf("must be from 1 to %d, but is %d", maxJoinUses, uses))
		}
	}
	if len(req.Names) > maxNames {
		faults.Add("names", fmt.Sprintf("has %d names, and at most %d are possible", len(req.Names), maxNames))
	}
	for i, n := range req.Names {
		if _, err := netip.ParseAddr(n); err != nil && !model.IsHostName(n) {
			faults.Add(fmt.Sprintf("names[%d]", i), fmt.Sprintf("%q is no host name or address", n))
		}
	}
	if len(req.Names) > 0 && !req.API && req.Kind == roster.Worker {
		faults.Add("names", "are of the API, which a worker serves on loopback only: set api, too")
	}
	if req.API && req.Kind == roster.Worker && len(req.Names) == 0 {
		faults.Add("names", "is missing: clients of the API check the name or address by which they know the agent")
	}
	if len(faults) > 0 {
		return roster.JoinToken{}, rest.Invalid(faults)
	}
	return roster.JoinToken{
		Role: req.Kind, Zone: req.Zone, Names: req.Names, API: req.API, Uses: uses, Expires: now + ttl.Milliseconds(),
	}, nil
}
