package plans

import (
	"cmp"
	"net"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/rest"
)

// notInName are the runs of characters that the name of an endpoint cannot have.
var notInName = regexp.MustCompile(`[^a-z0-9.-]+`)

// endpointName returns the name of the endpoint that a link's label stands for.
func endpointName(label string) string {
	return strings.Trim(notInName.ReplaceAllString(strings.ToLower(label), "-"), "-")
}

// endpointsOf returns the links of a cluster by the names of their endpoints. Links with the same name share one.
func endpointsOf(c *rest.Call, v rest.View, cl *model.Cluster) map[string][]operation.Endpoint {
	out := map[string][]operation.Endpoint{}
	for _, e := range operation.Endpoints(cl, v.Nodes(c.Who.Tenant, cl.ID)) {
		if name := endpointName(e.Label); name != "" {
			out[name] = append(out[name], e)
		}
	}
	return out
}

// portOf returns the port of a link: its own, or that of its scheme.
func portOf(link string) string {
	u, err := url.Parse(link)
	switch {
	case err == nil && u.Port() != "":
		return u.Port()
	case strings.HasPrefix(link, "https:"):
		return "443"
	}
	return "80"
}

// endpoint returns an endpoint with an entry for each node that carries one of its services, by the nodes' numbers. An endpoint that
// names no node is text, with one link a line.
func endpoint(links []operation.Endpoint, nodes []*model.Node) any {
	var out api.Endpoint
	for _, l := range links {
		out.URL = append(out.URL, l.URL)
	}
	nodes = slices.Clone(nodes)
	slices.SortFunc(nodes, func(a, b *model.Node) int { return cmp.Compare(a.Number, b.Number) })
	named := false
	for _, l := range links {
		named = named || len(l.Services) > 0
		for _, n := range nodes {
			if !slices.ContainsFunc(l.Services, func(s string) bool { return slices.Contains(n.Services, s) }) {
				continue
			}
			dns := net.JoinHostPort(n.Hostname, portOf(l.URL))
			if slices.Contains(out.DNS, dns) {
				continue
			}
			out.DNS = append(out.DNS, dns)
			out.Address = append(out.Address, net.JoinHostPort(cmp.Or(n.IPAddresses["access_v4"], n.Hostname), portOf(l.URL)))
		}
	}
	if !named {
		return plainText(strings.Join(out.URL, "\n"))
	}
	return out
}

func endpointRoutes(s *rest.Server) {
	inspect(s, "listEndpoints", "endpoints", "List the names of a cluster's endpoints: the labels of its links", reflect.TypeFor[[]string](),
		func(in *rest.ByCluster) string { return in.ID },
		func(c *rest.Call, v rest.View, cl *model.Cluster, _ *rest.ByCluster) (any, error) {
			return sortedNames(endpointsOf(c, v, cl)), nil
		})
	type byEndpoint struct {
		rest.ByCluster
		Endpoint string `path:"endpoint" doc:"The endpoint's name"`
	}
	inspect(s, "getEndpoint", "endpoints/{endpoint}", "Get the addresses of an endpoint", reflect.TypeFor[api.Endpoint](),
		func(in *byEndpoint) string { return in.ID },
		func(c *rest.Call, v rest.View, cl *model.Cluster, in *byEndpoint) (any, error) {
			links, ok := endpointsOf(c, v, cl)[in.Endpoint]
			if !ok {
				return nil, notFound("Endpoint", in.Endpoint)
			}
			return endpoint(links, c.Nodes(v, cl)), nil
		})
}
