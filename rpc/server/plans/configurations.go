package plans

import (
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/redact"
	"github.com/coopr/coopr/rpc/server/rest"
)

// target is a target of a cluster, with the records that have it.
type target struct {
	id      string
	cluster *model.Cluster
	nodes   []*model.Node
}

var uuidForm = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// configurationsOf returns the targets of a cluster at which it or a snapshot stands, the oldest first. The last one is the cluster's.
func configurationsOf(c *rest.Call, v rest.View, cl *model.Cluster) []target {
	byTarget := map[int]target{}
	for _, s := range v.History(c.Who.Tenant, cl.ID) {
		byTarget[s.State.Target] = target{cluster: s.State, nodes: c.Listable(v, s.Nodes)}
	}
	byTarget[cl.Target] = target{cluster: cl, nodes: c.Nodes(v, cl)}
	var out []target
	for number, x := range byTarget {
		x.id = tree.UUID(cl.ID, "target", strconv.Itoa(number))
		out = append(out, x)
	}
	slices.SortFunc(out, func(a, b target) int { return a.cluster.Target - b.cluster.Target })
	return out
}

// shown returns a configuration without secrets.
func (x target) shown(r *redact.Redactor) api.Configuration {
	cl := r.Cluster(x.cluster)
	out := api.Configuration{
		Cluster: cl.Name, Target: cl.Target, Template: api.TemplateVersion{Name: cl.Template.Name, Version: cl.Template.Version},
		Services: cl.Services, Definitions: cl.Definitions, Config: model.RedactFields(model.PluginType{}, cl.Config),
		Layout: map[string]api.PlacedNode{},
	}
	for _, n := range x.nodes {
		out.Layout[podName(n)] = api.PlacedNode{HardwareType: n.HardwareType, ImageType: n.ImageType, Services: n.Services}
	}
	return out
}

func configurationRoutes(s *rest.Server) {
	cluster := func(in *rest.ByCluster) string { return in.ID }
	inspect(s, "listConfigurations", "configurations", "List the ids of a cluster's targets, the oldest first",
		reflect.TypeFor[[]string](), cluster,
		func(c *rest.Call, v rest.View, cl *model.Cluster, _ *rest.ByCluster) (any, error) {
			var ids []string
			for _, x := range configurationsOf(c, v, cl) {
				ids = append(ids, x.id)
			}
			return ids, nil
		})
	inspect(s, "getTargetConfigurationID", "configurations/targetId", "Get the id of a cluster's present target, in a list",
		reflect.TypeFor[[]string](), cluster,
		func(c *rest.Call, v rest.View, cl *model.Cluster, _ *rest.ByCluster) (any, error) {
			all := configurationsOf(c, v, cl)
			return []string{all[len(all)-1].id}, nil
		})
	configuration := reflect.TypeFor[api.Configuration]()
	inspect(s, "getTargetConfiguration", "configurations/target", "Get a cluster's present target", configuration, cluster,
		func(c *rest.Call, v rest.View, cl *model.Cluster, _ *rest.ByCluster) (any, error) {
			all := configurationsOf(c, v, cl)
			return all[len(all)-1].shown(redact.For(v, c.Who.Tenant)), nil
		})
	type byConfiguration struct {
		rest.ByCluster
		Configuration string `path:"configuration" doc:"The target's id, or the number of a snapshot"`
	}
	inspect(s, "getConfiguration", "configurations/{configuration}", "Get one of a cluster's targets", configuration,
		func(in *byConfiguration) string { return in.ID },
		func(c *rest.Call, v rest.View, cl *model.Cluster, in *byConfiguration) (any, error) {
			number, err := strconv.Atoi(in.Configuration)
			if err != nil && !uuidForm.MatchString(in.Configuration) {
				return nil, &tree.Refusal{Code: http.StatusBadRequest, Message: "Invalid UUID string: " + in.Configuration}
			}
			all := configurationsOf(c, v, cl)
			for _, snapshot := range v.History(c.Who.Tenant, cl.ID) {
				if err == nil && snapshot.Number == number {
					return target{cluster: snapshot.State, nodes: c.Listable(v, snapshot.Nodes)}.shown(redact.For(v, c.Who.Tenant)), nil
				}
			}
			if i := slices.IndexFunc(all, func(x target) bool { return x.id == in.Configuration }); i >= 0 {
				return all[i].shown(redact.For(v, c.Who.Tenant)), nil
			}
			return nil, notFound("Configuration", in.Configuration)
		})
}
