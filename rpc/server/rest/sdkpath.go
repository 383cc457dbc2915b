package rest

import (
	"net/http"
	"net/url"
	"strings"
)

// sdkPath returns the path of this API for a path of the DC/OS SDK's scheduler, or "" if the path
// is not one.
func sdkPath(escaped string) string {
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
	case "plans", "pod", "debug", "health":
	default:
		return ""
	}
	return "/v1/clusters/" + service + "/" + strings.Join(rest, "/")
}

// asSDK rewrites requests of the DC/OS SDK's client to the paths of this API.
func asSDK(r *http.Request) *http.Request {
	to := sdkPath(r.URL.EscapedPath())
	if to == "" {
		return r
	}
	path, err := url.PathUnescape(to)
	if err != nil {
		return r
	}
	out := new(http.Request)
	*out = *r
	u := *r.URL
	u.Path, u.RawPath = path, to
	out.URL = &u
	return out
}
