package server

import (
	"context"
	"net/http"
	"slices"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
)

// changing is what an operation that changes a cluster takes of a request.
type changing struct {
	typ     model.OperationType
	summary string
	takes   []string
	needs   string // what must not be missing
}

var changings = []changing{
	{model.OpGrow, "Add nodes to a cluster", []string{"nodes", "hardwaretype", "imagetype", "comparator"}, "nodes"},
	{model.OpShrink, "Take nodes away from a cluster: so many, the newest that can go, or those named", []string{"nodes", "nodeNames"}, ""},
	{model.OpAddServices, "Put services onto a cluster, on its nodes or with new ones", []string{"services", "nodes", "hardwaretype", "imagetype", "comparator"}, "services"},
	{model.OpRemoveServices, "Take services off a cluster", []string{"services"}, "services"},
	{model.OpReplaceNode, "Make nodes anew under their numbers and names", []string{"nodeNames", "forced"}, "nodeNames"},
	{model.OpRecover, "Restart services of nodes, beside whatever else is under way", []string{"nodeNames", "services"}, "nodeNames"},
	{model.OpPauseNode, "Stop services of nodes, and leave them alone", []string{"nodeNames", "services"}, "nodeNames"},
	{model.OpResumeNode, "Start services of nodes again that were paused", []string{"nodeNames", "services"}, "nodeNames"},
	{model.OpUpgrade, "Move services to their newest definitions, or all of a cluster's", []string{"services"}, ""},
	{model.OpSyncTemplate, "Bring a cluster to the newest version of its template", nil, ""},
	{model.OpRollback, "Bring a cluster back to an earlier snapshot", []string{"to"}, "to"},
}

// check finds fields that the operation does not take, and those it needs.
func (c changing) check(r model.ChangeCluster) error {
	var faults model.Faults
	given := map[string]bool{
		"nodes": r.Nodes != 0, "nodeNames": len(r.NodeNames) > 0, "services": len(r.Services) > 0, "hardwaretype": r.HardwareType != "",
		"imagetype": r.ImageType != "", "comparator": r.Comparator != "", "to": r.To != 0, "forced": r.Forced,
	}
	for _, name := range []string{"nodes", "nodeNames", "services", "hardwaretype", "imagetype", "comparator", "to", "forced"} {
		switch {
		case given[name] && !slices.Contains(c.takes, name):
			faults.Add(name, "is nothing that "+string(c.typ)+" takes")
		case !given[name] && c.needs == name:
			faults.Add(name, "is missing")
		}
	}
	if c.typ == model.OpShrink && !given["nodes"] && !given["nodeNames"] {
		faults.Add("nodes", "is missing: say how many nodes go, or which as nodeNames")
	}
	return faults.Err()
}

func (s *server) changeRoutes() {
	const tag, one = "clusters", "/v1/clusters/{cluster}"
	for _, ch := range changings {
		write(s, route{id: camel(string(ch.typ)) + "Cluster", method: http.MethodPost, path: one + "/" + string(ch.typ), status: http.StatusAccepted, tag: tag,
			rule: rule{need: model.RoleUser}, optional: ch.needs == "", summary: ch.summary,
			description: "Solves, plans and starts. With dryRun it only says what would be done."},
			func(ctx context.Context, c *call, in *struct {
				ByCluster
				Previewing
				Body raw[model.ChangeCluster]
			}) (api.StartedBody, api.Written, error) {
				body, err := in.Body.by(func(b []byte) (model.ChangeCluster, error) {
					r, err := model.DecodeChangeCluster(b)
					if err == nil {
						err = ch.check(r)
					}
					return r, err
				})
				if err != nil {
					return api.StartedBody{}, api.Written{}, err
				}
				return s.operate(ctx, c, in.ID, api.Operate{
					Type: ch.typ, Services: body.Services, ProviderFields: body.ProviderFields, Rollout: body.Rollout, Change: body, DryRun: in.DryRun,
				})
			})
	}
}

// camel writes "add-services" as "addServices".
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
