package access

import (
	"context"
	"net/http"
	"net/netip"
	"net/url"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/rest"
)

// pageRoutes registers the login on the pages of an identity provider.
func pageRoutes(s *rest.Server, tag string) {
	rule := rest.Rule{Open: true, Password: true, Secret: true, Private: true}
	rest.Write(
		s,
		rest.Route{
			ID: "beginLogin", Method: http.MethodPost, Path: "/v1/login/begin", Status: http.StatusCreated, Tag: tag, Rule: rule,
			Summary: "Begin a login on the pages of an identity provider",
			Description: "The answer has the page's URL and what finishes the login within ten minutes. With a redirect, the browser comes back " +
				"there with a code and a state, for the route finishLogin. Without one, the person confirms the answer's code on the page, " +
				"which may be on another device. For a method with passwords the answer is empty.",
		},
		func(ctx context.Context, _ *rest.Call, in *struct {
			Body rest.Raw[api.BeginLogin]
		}) (out api.LoginPrompt, w api.Written, err error) {
			req, err := in.Body.Value()
			if err != nil {
				return out, w, err
			}
			var faults model.Faults
			for path, value := range map[string]string{"tenant": req.Tenant, "method": req.Method} {
				if value == "" {
					faults.Add(path, "is missing")
				}
			}
			if why := checkRedirect(req.Redirect); why != "" {
				faults.Add("redirect", why)
			}
			if len(faults) > 0 {
				return out, w, rest.Invalid(faults)
			}
			out, err = s.Users.BeginLogin(ctx, req.Tenant, req.Method, req.Redirect)
			return out, w, err
		},
	)
	rest.Write(
		s,
		rest.Route{
			ID: "finishLogin", Method: http.MethodPost, Path: "/v1/login/finish", Status: http.StatusCreated, Tag: tag, Rule: rule,
			Summary: "Open the session of a login on the pages of an identity provider",
			Description: "The answer holds the session's token, as that of the route login does. It is empty, with the status 202, as long " +
				"as nobody has logged in.",
		},
		func(ctx context.Context, _ *rest.Call, in *struct {
			Body rest.Raw[api.FinishLogin]
		}) (out api.FinishedLogin, w api.Written, err error) {
			req, err := in.Body.Value()
			if err != nil {
				return out, w, err
			}
			secret, slower, w, err := s.Users.FinishLogin(ctx, req.Login, req.State, req.Code)
			out.Slower = slower
			if err != nil || secret == "" {
				return out, w, err
			}
			t, err := rest.Wrote(w, w.Effect.Token)
			if err == nil {
				rest.LoggedIn(ctx, t)
			}
			out.Token = &api.IssuedToken{Token: t, Secret: secret}
			return out, w, err
		},
	)
}

// checkRedirect returns why a browser is not sent to a URL after a login, or "". It comes back to the machine on which
// it runs, where the command that began the login listens, or to the console, whose address the provider's settings have.
func checkRedirect(redirect string) string {
	if redirect == "" {
		return ""
	}
	u, err := url.Parse(redirect)
	if err == nil && u.Scheme == "https" && u.Host != "" && redirect == "https://"+u.Host+"/console/callback" {
		return ""
	}
	if err != nil || u.Scheme != "http" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Port() == "" {
		return "write it as http://127.0.0.1:PORT/PATH"
	}
	if ip, err := netip.ParseAddr(u.Hostname()); err != nil || !ip.IsLoopback() {
		return "must be of a loopback address, such as http://127.0.0.1:PORT/PATH, where a browser comes back to its own machine"
	}
	return ""
}
