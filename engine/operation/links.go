package operation

import (
	"slices"

	"github.com/coopr/coopr/engine/macro"
	"github.com/coopr/coopr/engine/model"
)

// Endpoint is a link of a cluster, with the services whose nodes it names, sorted.
type Endpoint struct {
	model.Link
	Services []string
}

// Endpoints returns the expanded links of a cluster's template and services. It leaves out links
// that cannot be expanded with the current nodes, and links to services that the cluster does
// not have.
func Endpoints(cl *model.Cluster, nodes []*model.Node) []Endpoint {
	known := known(nodes, staying)
	on := map[string]bool{}
	for _, n := range nodes {
		for _, svc := range n.Services {
			on[svc] = true
		}
	}
	ctx := macro.Context{Cluster: macro.NewCluster(cl.Owner, known), Self: macro.NoNode}
	all := slices.Clone(cl.Template.Links)
	for _, s := range cl.Services {
		all = append(all, cl.Definitions[s].Links...)
	}
	var out []Endpoint
	for _, l := range all {
		refs, err := macro.ReferencesOf(map[string]any{"url": l.URL})
		if err != nil || slices.ContainsFunc(refs.Services, func(svc string) bool { return !on[svc] }) {
			continue
		}
		url, err := macro.Expand(l.URL, ctx)
		if err != nil {
			continue
		}
		out = append(out, Endpoint{model.Link{Label: l.Label, URL: url}, refs.Services})
	}
	return out
}

// Links returns the links of the cluster's endpoints.
func Links(cl *model.Cluster, nodes []*model.Node) []model.Link {
	var out []model.Link
	for _, e := range Endpoints(cl, nodes) {
		out = append(out, e.Link)
	}
	return out
}
