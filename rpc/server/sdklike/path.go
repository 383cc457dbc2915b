package sdklike

import (
	"context"
	"net/http"
	"net/url"
	"strings"
)

// sdkPath returns the path of this API for a path of the DC/OS SDK's scheduler, or "" if the path
// is not one.
func sdkPath(escaped string) string {
	if escaped == "/service/describe" || escaped == "/service/update" {
		return "/cosmos" + escaped // the client has a URL of its own for the package service
	}
	part := strings.Split(strings.TrimPrefix(escaped, "/"), "/")
	var rest []string
	var service string
	switch {
	case len(part) > 3 && part[0] == "v1" && (part[1] == "service" || part[1] == "multi"):
		service, rest = part[2], part[3:]
	case len(part) > 3 && part[0] == "service" && part[2] == "v1":
		service, rest = part[1], part[3:]
	default:
		return ""
	}
	switch rest[0] {
	case "plan": // deprecated alias of the plan deploy
		rest = append([]string{"plans", "deploy"}, rest[1:]...)
	case "plans", "pod", "debug", "health", "endpoints", "state", "configurations":
	default:
		return ""
	}
	return "/v1/clusters/" + service + "/" + strings.Join(rest, "/")
}

// sdkKey is the key of the URL that a client of the DC/OS SDK sent.
type sdkKey struct{}

// URI returns the URI of a request as the client sent it. Another agent that gets it answers as the
// DC/OS SDK does, too.
func URI(r *http.Request) string {
	if u, ok := r.Context().Value(sdkKey{}).(*url.URL); ok {
		return u.RequestURI()
	}
	return r.URL.RequestURI()
}

// asSDK rewrites requests of the DC/OS SDK's client to the paths of this API. ok is false for other requests.
func asSDK(r *http.Request) (out *http.Request, ok bool) {
	to := sdkPath(r.URL.EscapedPath())
	if to == "" {
		return r, false
	}
	path, err := url.PathUnescape(to)
	if err != nil {
		return r, false
	}
	out = r.WithContext(context.WithValue(r.Context(), sdkKey{}, r.URL))
	u := *r.URL
	u.Path, u.RawPath = path, to
	out.URL = &u
	return out, true
}
