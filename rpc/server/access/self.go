package access

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/rest"
)

// How long a token is valid that somebody makes for themselves.
const (
	ownTokenTime    = 30 * 24 * time.Hour
	maxOwnTokenTime = 366 * 24 * time.Hour
)

// selfRoutes registers what every caller may do about themselves, and the login.
func selfRoutes(s *rest.Server) {
	const tag = "self"

	rest.Ask(s, rest.Route{ID: "getSelf", Method: http.MethodGet, Path: rest.SelfPath, Tag: tag,
		Summary: "Show whom the token belongs to"},
		func(_ context.Context, c *rest.Call, _ *rest.None) (api.Self, error) { return rest.SelfOf(c.Who), nil })
	rest.Write(
		s,
		rest.Route{
			ID: "login", Method: http.MethodPost, Path: "/v1/login", Status: http.StatusCreated, Tag: tag,
			Rule:    rest.Rule{Open: true, Password: true, Names: loginName, Secret: true, Private: true},
			Summary: "Open a session with a name and a password",
			Description: "The answer holds the session's token, which is valid for eight hours, and the user's name in records. The route " +
				"renewSession prolongs it, for at most seven days after the login. A failure does not tell what is wrong.",
		},
		func(ctx context.Context, _ *rest.Call, in *struct {
			Body rest.Raw[api.Login]
		}) (out api.IssuedToken, w api.Written, err error) {
			req, err := in.Body.Value()
			if err != nil {
				return out, w, err
			}
			var faults model.Faults
			for path, value := range map[string]string{"tenant": req.Tenant, "user": req.User, "password": req.Password} {
				if value == "" {
					faults.Add(path, "is missing")
				}
			}
			if len(faults) > 0 {
				return out, w, rest.Invalid(faults)
			}
			if out.Secret, w, err = s.Users.Login(ctx, req.Tenant, req.Method, req.User, req.Password); err != nil {
				return out, w, err
			}
			if out.Token, err = rest.Wrote(w, w.Effect.Token); err == nil {
				rest.LoggedIn(ctx, out.Token)
			}
			return out, w, err
		},
	)
	pageRoutes(s, tag)
	rest.Write(s, rest.Route{ID: "renewSession", Method: http.MethodPost, Path: rest.SelfPath + "/renew", Tag: tag, Rule: rest.Rule{Own: true},
		Summary: "Prolong the session"},
		func(ctx context.Context, c *rest.Call, _ *rest.None) (model.Token, api.Written, error) {
			if err := needSession(c); err != nil {
				return model.Token{}, api.Written{}, err
			}
			w, err := s.Tokens.Renew(ctx, c.Who)
			if err != nil {
				return model.Token{}, w, err
			}
			t, err := rest.Wrote(w, w.Effect.Token)
			return t, w, err
		})
	rest.Write(s, rest.Route{ID: "logout", Method: http.MethodPost, Path: "/v1/logout", Tag: tag, Rule: rest.Rule{Own: true},
		Summary: "End the session"},
		func(ctx context.Context, c *rest.Call, _ *rest.None) (api.Deleted, api.Written, error) {
			if err := needSession(c); err != nil {
				return api.Deleted{}, api.Written{}, err
			}
			w, err := s.Tokens.Delete(ctx, c.Who, c.Who.Token)
			return api.Deleted{Name: c.Who.Token}, w, err
		})
	rest.Write(
		s,
		rest.Route{
			ID: "changePassword", Method: http.MethodPut, Path: rest.SelfPath + "/password", Tag: tag,
			Rule:    rest.Rule{Own: true, Password: true, Private: true},
			Summary: "Change the own password", Description: "The caller's other sessions end.",
		},
		func(ctx context.Context, c *rest.Call, in *struct {
			Body rest.Raw[api.NewPassword]
		}) (u model.User, w api.Written, err error) {
			req, err := in.Body.Value()
			if err != nil {
				return u, w, err
			}
			if err := needSession(c); err != nil {
				return u, w, err
			}
			var faults model.Faults
			checkPassword(&faults, "new", req.New)
			if len(faults) > 0 {
				return u, w, rest.Invalid(faults)
			}
			v, done, err := s.Before(ctx, c)
			if err != nil {
				return u, w, err
			}
			if done != nil {
				u, err = rest.Wrote(*done, done.Effect.User)
				return u, *done, err
			}
			if known, _ := v.User(c.Who.Tenant, c.Who.Actor); known.FromDirectory() {
				return u, w, rest.Forbidden("the password of %s is in the directory %s: change it there", known.Name, known.Method)
			}
			if err := s.Users.Verify(ctx, c.Who.Tenant, c.Who.Actor, req.Old); err != nil {
				if problem.CodeOf(err) == problem.Unauthorized { // it is not the token that is wrong
					err = rest.Forbidden("the old password is wrong")
				}
				return u, w, err
			}
			u = model.User{Name: c.Who.Actor, Tenant: c.Who.Tenant}
			if w, err = s.Users.Change(ctx, c.Who, u, nil, req.New, c.Who.Token); err != nil {
				return u, w, err
			}
			u, err = rest.Wrote(w, w.Effect.User)
			return u, w, err
		},
	)
	ownTokenRoutes(s, tag)
}

// loginName returns the user who logs in with a body, or "" if it does not say.
func loginName(body []byte) string {
	req, err := rest.Raw[api.Login]{Data: body}.Value()
	if err != nil || req.User == "" {
		return ""
	}
	if req.Method != "" && req.Method != model.MethodLocal {
		return req.Tenant + "/" + req.Method + "." + req.User
	}
	return req.Tenant + "/" + req.User
}

// needSession returns an error unless the caller has a session.
func needSession(c *rest.Call) error {
	if !c.Who.Session {
		return rest.Forbidden("this needs a session, which `coopr login` opens: the token of %s is none", c.Who.Actor)
	}
	return nil
}

// ownTokenRoutes registers the routes of the caller's own tokens. A token that is no session sees itself and those that it made.
func ownTokenRoutes(s *rest.Server, tag string) {
	const path = rest.SelfPath + "/tokens"

	own := func(c *rest.Call, v rest.View) []model.Token {
		return slices.DeleteFunc(v.Tokens(c.Who.Tenant), func(t model.Token) bool {
			return t.Actor != c.Who.Actor || !c.Who.Session && t.ID != c.Who.Token && t.Parent != c.Who.Token || c.Who.Token == ""
		})
	}
	rest.List(s, rest.Route{ID: "listOwnTokens", Order: "id", Path: path, Tag: tag, Rule: rest.Rule{Own: true},
		Summary: "List the caller's tokens and sessions"},
		func(_ context.Context, c *rest.Call, v rest.View, _ *rest.None) ([]model.Token, error) {
			return own(c, v), nil
		})
	rest.Write(
		s,
		rest.Route{
			ID: "createOwnToken", Method: http.MethodPost, Path: path, Status: http.StatusCreated, Tag: tag,
			Rule:    rest.Rule{Own: true, Secret: true},
			Summary: "Make a token of the caller's own",
			Description: "It may do no more than the caller, at any time, and ends with the token that made it, unless that is a session. " +
				"If the request is repeated with the same request id, no other token is made, and the secret is not shown again.",
		},
		func(ctx context.Context, c *rest.Call, in *struct {
			Body rest.Raw[api.OwnToken]
		}) (out api.IssuedToken, w api.Written, err error) {
			req, err := in.Body.Value()
			if err != nil {
				return out, w, err
			}
			t, err := ownToken(c, req, s.Millis())
			if err != nil {
				return out, w, err
			}
			if out.Secret, w, err = s.Tokens.Create(ctx, c.Who, t); err != nil {
				return out, w, err
			}
			out.Token, err = rest.Wrote(w, w.Effect.Token)
			return out, w, err
		},
	)
	rest.Write(s, rest.Route{ID: "deleteOwnToken", Method: http.MethodDelete, Path: path + "/{id}", Tag: tag, Rule: rest.Rule{Own: true},
		Summary: "Revoke a token of the caller's own, and those that it made"},
		func(ctx context.Context, c *rest.Call, in *struct {
			ID string `path:"id" doc:"The token's id, as the list shows it"`
		}) (api.Deleted, api.Written, error) {
			v, done, err := s.Before(ctx, c)
			if err != nil {
				return api.Deleted{}, api.Written{}, err
			}
			if done != nil {
				return api.Deleted{Name: in.ID}, *done, nil
			}
			if !slices.ContainsFunc(own(c, v), func(t model.Token) bool { return t.ID == in.ID }) {
				return api.Deleted{}, api.Written{}, rest.NotFound("%s has no token with the id %q", c.Who.Actor, in.ID)
			}
			w, err := s.Tokens.Delete(ctx, c.Who, in.ID)
			return api.Deleted{Name: in.ID}, w, err
		})
}

// ownToken returns the record of a token that a caller makes for themselves.
func ownToken(c *rest.Call, req api.OwnToken, now int64) (t model.Token, err error) {
	var faults model.Faults
	ttl, err := ttlOf(req.TTL, ownTokenTime)
	if err != nil {
		faults.Add("ttl", err.Error())
	}
	if ttl > maxOwnTokenTime {
		faults.Add("ttl", fmt.Sprintf("must be at most 366d, but is %s", req.TTL))
	}
	if req.Role != "" && !slices.Contains(model.Roles, req.Role) {
		faults.Add("role", fmt.Sprintf("must be one of %s, but is %q", roleNames(), req.Role))
	}
	sources := model.ParseSources(&faults, req.Sources, c.Who.Sources)
	if len(req.Description) > 1000 {
		faults.Add("description", "is longer than 1000 bytes")
	}
	switch {
	case len(faults) > 0:
		return t, rest.Invalid(faults)
	case c.Who.Token == "":
		return t, rest.Forbidden("the root token makes no tokens of its own: issue one for a user (POST /v1/tokens)")
	case req.Role != "" && !c.Who.Role.AtLeast(req.Role):
		return t, rest.Forbidden("%s has the role %s and cannot make a token with the role %s", c.Who.Actor, c.Who.Role, req.Role)
	case c.Who.Child:
		return t, rest.Forbidden("this token was made with a token: it makes no further ones")
	}
	t = model.Token{
		Actor: c.Who.Actor, Tenant: c.Who.Tenant, Role: req.Role, Description: req.Description, Expires: now + ttl.Milliseconds(),
		Sources: sources,
	}
	if !c.Who.Session {
		t.Parent = c.Who.Token
	}
	return t, nil
}

// endOf returns when something ends that is asked for at a time, both in Unix milliseconds, and lasts as long as a text says; 0 without a
// text.
func endOf(faults *model.Faults, now int64, ttl string) int64 {
	if ttl == "" {
		return 0
	}
	d, err := ttlOf(ttl, 0)
	if err != nil {
		faults.Add("ttl", err.Error())
	}
	return now + d.Milliseconds()
}

// ttlOf parses a duration such as 12h or 30d; "" is a default.
func ttlOf(text string, absent time.Duration) (time.Duration, error) {
	if text == "" {
		return absent, nil
	}
	d, err := time.ParseDuration(text)
	if days, ok := strings.CutSuffix(text, "d"); ok {
		var n int
		if n, err = strconv.Atoi(days); err == nil {
			d = time.Duration(min(n, 100_000)) * 24 * time.Hour
		}
	}
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("must be a duration such as 12h or 30d, but is %q", text)
	}
	return d, nil
}
