package clusters

import (
	"context"
	"net/http"
	"slices"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/model/decode"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/rest"
)

// changing describes an operation that changes a cluster, and the fields of its request.
type changing struct {
	typ     model.OperationType
	summary string
	takes   []string
	needs   string // required field
}

var changings = []changing{
	{model.OpGrow, "Add nodes to a cluster", []string{"nodes", "hardwaretype", "imagetype", "comparator"}, "nodes"},
	{model.OpShrink, "Remove nodes from a cluster: a number of the newest ones, or those named", []string{"nodes", "nodeNames", "forced"}, ""},
	{
		model.OpAddServices,
		"Add services to a cluster, on its nodes or on new ones",
		[]string{"services", "nodes", "hardwaretype", "imagetype", "comparator"},
		"services",
	},
	{model.OpRemoveServices, "Remove services from a cluster", []string{"services"}, "services"},
	{model.OpReplaceNode, "Replace nodes; the new ones have the same numbers and names", []string{"nodeNames", "forced"}, "nodeNames"},
	{model.OpRecover, "Restart services of nodes, concurrently with other operations", []string{"nodeNames", "services"}, "nodeNames"},
	{model.OpPauseNode, "Stop services of nodes and exclude them from recovery", []string{"nodeNames", "services"}, "nodeNames"},
	{model.OpResumeNode, "Start paused services of nodes again", []string{"nodeNames", "services"}, "nodeNames"},
	{model.OpUpgrade, "Update services, or all services of a cluster, to their newest definitions", []string{"services"}, ""},
	{model.OpSyncTemplate, "Update a cluster to a version of its template, the newest one if none is named", []string{"to"}, ""},
	{model.OpRollback, "Return a cluster to an earlier snapshot", []string{"to"}, "to"},
}

// check reports fields that the operation does not take, and required fields that are missing.
func (c changing) check(r model.ChangeCluster) error {
	var faults model.Faults
	given := map[string]bool{
		"nodes": r.Nodes != 0, "nodeNames": len(r.NodeNames) > 0, "services": len(r.Services) > 0, "hardwaretype": r.HardwareType != "",
		"imagetype": r.ImageType != "", "comparator": r.Comparator != "", "to": r.To != 0, "forced": r.Forced,
	}
	for _, name := range []string{"nodes", "nodeNames", "services", "hardwaretype", "imagetype", "comparator", "to", "forced"} {
		switch {
		case given[name] && !slices.Contains(c.takes, name):
			faults.Add(name, "does not apply to "+string(c.typ))
		case !given[name] && c.needs == name:
			faults.Add(name, "is missing")
		}
	}
	if c.typ == model.OpShrink && !given["nodes"] && !given["nodeNames"] {
		faults.Add("nodes", "is missing: give the number of nodes to remove, or their names as nodeNames")
	}
	return faults.Err()
}

func changeRoutes(s *rest.Server) {
	const tag, one = "clusters", "/v1/clusters/{cluster}"
	for _, ch := range changings {
		rest.Write(
			s,
			rest.Route{
				ID:          camel(string(ch.typ)) + "Cluster",
				Method:      http.MethodPost,
				Path:        one + "/" + string(ch.typ),
				Status:      http.StatusAccepted,
				Tag:         tag,
				Rule:        rest.Rule{Planned: true},
				Optional:    ch.needs == "",
				Summary:     ch.summary,
				Description: "Solves, plans and starts the operation. With dryRun it only previews it.",
			},
			func(ctx context.Context, c *rest.Call, in *struct {
				rest.ByCluster
				Previewing
				Body rest.Raw[model.ChangeCluster]
			}) (api.StartedBody, api.Written, error) {
				body, err := in.Body.By(func(b []byte) (model.ChangeCluster, error) {
					r, err := decode.ChangeCluster(b)
					if err == nil {
						err = ch.check(r)
					}
					return r, err
				})
				if err != nil {
					return api.StartedBody{}, api.Written{}, err
				}
				return operate(ctx, s, c, in.ID, api.Operate{
					Type: ch.typ, Services: body.Services, ProviderFields: body.ProviderFields, Rollout: body.Rollout, Change: body, DryRun: in.DryRun,
				})
			},
		)
	}
}

// camel converts "add-services" to "addServices".
func camel(s string) string {
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '-' && i+1 < len(s) {
			i++
			out = append(out, s[i]-'a'+'A')
			continue
		}
		out = append(out, s[i])
	}
	return string(out)
}
