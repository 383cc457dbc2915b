package access

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/access"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/words"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/rest"
)

// permissionRoutes registers the question whether somebody may do something.
func permissionRoutes(s *rest.Server) {
	rest.Read(
		s,
		rest.Route{
			ID: "canI", Method: http.MethodGet, Path: "/v1/can-i", Tag: "tokens", Summary: "Ask whether the caller may do something, and why",
			Description: "The answer names the policies that decide. Conditions on what a request asks for, such as the size of a cluster, " +
				"are checked when it is made.",
		},
		func(_ context.Context, c *rest.Call, v rest.View, in *struct {
			Action   string `query:"action" required:"true" doc:"The action, such as delete"`
			Resource string `query:"resource" required:"true" doc:"TYPE/NAME, such as cluster/shop, or TYPE alone"`
			As       string `query:"as" doc:"Ask for this user, whom the caller must be allowed to administer"`
		}) (api.Permission, error) {
			on, name, err := resourceOf(in.Action, in.Resource)
			if err != nil {
				return api.Permission{}, err
			}
			who := c.Who
			if in.As != "" {
				if who, err = as(c, v, in.As); err != nil {
					return api.Permission{}, err
				}
			}
			x, err := c.Find(v, on, name)
			if err != nil {
				return api.Permission{}, err
			}
			d := c.DecideFor(who, access.Action(in.Action), x)
			out := api.Permission{Allowed: d.Allowed, Rule: string(d.Because), Actor: who.Actor, Grants: d.Grants}
			for _, p := range d.Policies {
				out.Policies = append(out.Policies, api.DecidingPolicy{Policy: p.Policy, Mesh: p.Tenant == "", Message: p.Message})
			}
			if !d.Allowed {
				out.Reason = d.Why()
			}
			return out, nil
		},
	)
}

// resourceOf parses an action and "TYPE/NAME".
func resourceOf(action, text string) (on access.Type, name string, err error) {
	var faults model.Faults
	kind, name, _ := strings.Cut(text, "/")
	known := map[string]access.Type{}
	for _, t := range access.Types() {
		known[strings.ToLower(string(t))] = t
	}
	on, ok := known[strings.ToLower(kind)]
	if !ok {
		var all []string
		for word := range known {
			all = append(all, word)
		}
		slices.Sort(all)
		faults.Add("query.resource", "unknown type "+kind+words.DidYouMeanOrOneOf(kind, all))
	}
	if !slices.Contains(access.Actions(), access.Action(action)) {
		var all []string
		for _, a := range access.Actions() {
			all = append(all, string(a))
		}
		faults.Add("query.action", "unknown action "+action+words.DidYouMeanOrOneOf(action, all))
	}
	if len(faults) == 0 && !access.Applies(access.Action(action), on) {
		faults.Add("query.action", "the action "+action+" does not apply to the type "+strings.ToLower(string(on)))
	}
	if len(faults) > 0 {
		return "", "", rest.Invalid(faults)
	}
	return on, name, nil
}

// as returns another user of the tenant as a caller.
func as(c *rest.Call, v rest.View, actor string) (model.Caller, error) {
	if err := c.MayNamed(access.Admin, access.TypeUser, actor); err != nil {
		return model.Caller{}, err
	}
	found := v.Acting(c.Who.Tenant, actor)
	if found.Role == "" {
		return found, rest.NotFound("nobody named %q has access to tenant %s", actor, c.Who.Tenant)
	}
	return found, nil
}
