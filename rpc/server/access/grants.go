package access

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/access"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/words"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/rest"
)

// shareable are the actions that can be shared.
var shareable = []access.Action{access.List, access.Read, access.Update, access.Delete, access.Label, access.Operate, access.Execute,
	access.Use, access.Approve}

func grantRoutes(s *rest.Server) {
	const tag, path = "grants", "/v1/grants"

	rest.List(
		s,
		rest.Route{
			ID: "listGrants", Order: "id", Path: path, Tag: tag,
			Summary:     "List grants",
			Description: "Those that the caller made, those for the caller, and those of resources that the caller may share.",
		},
		func(_ context.Context, c *rest.Call, v rest.View, _ *rest.None) ([]model.Grant, error) {
			out := []model.Grant{}
			for _, g := range v.Grants(c.Who.Tenant) {
				if !g.Ended(s.Millis()) && (forCaller(c, &g) || mayRemove(c, v, &g)) {
					out = append(out, g)
				}
			}
			return out, nil
		},
	)
	rest.Write(
		s,
		rest.Route{
			ID: "createGrant", Method: http.MethodPost, Path: path, Status: http.StatusCreated, Tag: tag,
			Summary: "Share a resource with a user or a group",
			Description: "The caller needs the right grant, and each right that is shared, without another's grant. The grant counts as long as " +
				"that holds. A policy that forbids something overrides it.",
		},
		func(ctx context.Context, c *rest.Call, in *struct {
			Body rest.Raw[api.NewGrant]
		}) (model.Grant, api.Written, error) {
			return createGrant(ctx, s, c, in.Body)
		},
	)
	rest.Write(s, rest.Route{ID: "deleteGrant", Method: http.MethodDelete, Path: path + "/{id}", Tag: tag, Summary: "Remove a grant"},
		func(ctx context.Context, c *rest.Call, in *struct {
			ID string `path:"id" doc:"The grant's id, as the list shows it"`
		}) (api.Deleted, api.Written, error) {
			v, done, err := s.Before(ctx, c)
			if err != nil {
				return api.Deleted{}, api.Written{}, err
			}
			if done != nil {
				return api.Deleted{Name: in.ID}, *done, nil
			}
			grants := v.Grants(c.Who.Tenant)
			i := slices.IndexFunc(grants, func(g model.Grant) bool { return g.ID == in.ID })
			switch {
			case i < 0 || !mayRemove(c, v, &grants[i]) && !forCaller(c, &grants[i]):
				return api.Deleted{}, api.Written{}, rest.NotFound("there is no grant with the id %q in tenant %s", in.ID, c.Who.Tenant)
			case !mayRemove(c, v, &grants[i]):
				return api.Deleted{}, api.Written{}, rest.Forbidden("%s did not make grant %s and may not share %s", c.Who.Actor, in.ID,
					grants[i].Resource)
			}
			w, err := s.Users.DeleteGrant(ctx, c.Who, in.ID)
			return api.Deleted{Name: in.ID}, w, err
		})
}

// forCaller reports whether a grant is for the caller.
func forCaller(c *rest.Call, g *model.Grant) bool {
	kind, name, _ := strings.Cut(g.To, "/")
	if kind == "group" {
		return slices.Contains(c.Who.Groups, access.GroupID(g.Tenant, name))
	}
	return name == c.Who.Actor
}

// mayRemove reports whether the caller made a grant, or may share its resource.
func mayRemove(c *rest.Call, v rest.View, g *model.Grant) bool {
	own := g.Granter == c.Who.Actor && c.Who.Maker == nil
	return own || c.DecideFor(c.Who, access.GrantIt, c.Resource(v, access.RefOf(g.Resource))).Allowed
}

func createGrant(ctx context.Context, s *rest.Server, c *rest.Call, body rest.Raw[api.NewGrant]) (g model.Grant, w api.Written, err error) {
	req, err := body.Value()
	if err != nil {
		return g, w, err
	}
	v, done, err := s.Before(ctx, c)
	if err != nil {
		return g, w, err
	}
	if done != nil {
		g, err = rest.Wrote(*done, done.Effect.Grant)
		return g, *done, err
	}
	var faults model.Faults
	on, name, typed := strings.Cut(req.Resource, "/")
	kind := access.RefOf(req.Resource).Type
	if !typed || name == "" || kind == "" || !access.Applies(access.GrantIt, kind) {
		faults.Add("resource", fmt.Sprintf("must be TYPE/NAME with a type that can be shared, such as cluster/shop, but is %q%s", req.Resource,
			words.DidYouMean(on, []string{"cluster", "node", "run", "template", "service", "provider", "program", "secret", "site"})))
	}
	g = model.Grant{ID: rand.Text()[:8], Tenant: c.Who.Tenant, Granter: c.Who.Actor, To: grantee(&faults, v, c, req.To), Name: name}
	g.Actions = shared(&faults, req.Actions, kind)
	g.Until = endOf(&faults, s.Millis(), req.TTL)
	if len(faults) > 0 {
		return g, w, rest.Invalid(faults)
	}
	x, err := c.Find(v, kind, name)
	if err != nil {
		return g, w, err
	}
	g.Resource = access.ShortOf(x.Ref)
	if err := c.May(access.GrantIt, x); err != nil {
		return g, w, err
	}
	for _, a := range g.Actions {
		if d := c.DecideFor(c.Who, access.Action(a), x); !d.Allowed || d.Because == access.ByGrant {
			return g, w, rest.Forbidden("%s may not %s %s without another's grant, and so cannot share it", c.Who.Actor, a, req.Resource)
		}
	}
	if w, err = s.Users.PutGrant(ctx, c.Who, g); err != nil {
		return g, w, err
	}
	g, err = rest.Wrote(w, w.Effect.Grant)
	return g, w, err
}

// grantee returns whom a grant is for: user/NAME, account/NAME or group/NAME. A name alone is a user or a service account.
func grantee(faults *model.Faults, v rest.View, c *rest.Call, to string) string {
	kind, name, typed := strings.Cut(to, "/")
	if !typed {
		kind, name = "user", to
	}
	users := v.Users(c.Who.Tenant)
	switch kind {
	case "group":
		if !slices.ContainsFunc(users, func(u model.User) bool { return slices.Contains(u.Groups, name) }) {
			faults.Add("to", fmt.Sprintf("no user of tenant %s is in the group %q", c.Who.Tenant, name))
		}
		return to
	case "user", "account":
		for _, u := range users {
			if u.Name == name && u.Method == model.MethodAccount {
				return "account/" + name
			}
		}
		if who := v.Acting(c.Who.Tenant, name); name == "" || who.Role == "" || who.Root {
			faults.Add("to", fmt.Sprintf("tenant %s has no user named %q", c.Who.Tenant, name))
		}
		return "user/" + name
	}
	faults.Add("to", fmt.Sprintf("must be a user's name, or group/NAME, but is %q", to))
	return ""
}

// shared returns the actions to share: who may do something with a resource may also see it.
func shared(faults *model.Faults, actions []string, on access.Type) []string {
	if len(actions) == 0 {
		faults.Add("actions", "are missing: name what is shared, such as read")
	}
	var known []string
	for _, a := range shareable {
		if on == "" || access.Applies(a, on) {
			known = append(known, string(a))
		}
	}
	out := []string{string(access.List), string(access.Read)}
	for _, a := range actions {
		if !slices.Contains(known, a) {
			faults.Add("actions", fmt.Sprintf("%q cannot be shared%s", a, words.DidYouMeanOrOneOf(a, known)))
		}
		out = append(out, a)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
