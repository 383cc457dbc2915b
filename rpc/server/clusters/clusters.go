package clusters

import (
	"context"
	"iter"
	"net/http"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/access"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/model/decode"
	"github.com/coopr/coopr/internal/words"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/listing"
	"github.com/coopr/coopr/rpc/server/redact"
	"github.com/coopr/coopr/rpc/server/rest"
	"github.com/coopr/coopr/rpc/server/schema"
)

// Previewing is the parameter of routes that start an operation.
type Previewing struct {
	DryRun bool `query:"dryRun" doc:"Only preview the operation"`
}

func clusterRoutes(s *rest.Server) {
	const tag, path, one = "clusters", "/v1/clusters", "/v1/clusters/{cluster}"

	rest.Pages(s, rest.Route{ID: "listClusters", Path: path, Tag: tag, Order: "id", Summary: "List clusters"},
		func(_ context.Context, c *rest.Call, v rest.View, in *struct {
			Status    string `query:"status" doc:"Only these statuses, separated by commas"`
			Unhealthy bool   `query:"unhealthy" doc:"Only clusters that need attention: with unhealthy nodes, a failed latest operation, or the status incomplete, inconsistent or failed"`
		}) (out listing.Source[*model.Cluster, api.ClusterSummary], err error) {
			wanted, err := statuses("query.status", in.Status, schema.ClusterStatuses)
			if err != nil {
				return out, err
			}
			return listing.Source[*model.Cluster, api.ClusterSummary]{
				All: func(from string) iter.Seq[*model.Cluster] {
					return only(c.Clusters(v, from), func(cl *model.Cluster) bool {
						return (len(wanted) == 0 || slices.Contains(wanted, string(cl.Status))) && (!in.Unhealthy || needsAttention(v, cl))
					})
				},
				Sorted: c.Tenants() != "",
				Show:   func(cl *model.Cluster) api.ClusterSummary { return summary(v, c.Who.Tenant, cl) },
				Brief:  func(cl *model.Cluster) api.ClusterSummary { return summaryOf(cl, 0, api.ClusterProgress{}) },
				Costly: []string{"health", "numNodes", "progress"},
			}, nil
		})
	rest.Write(
		s,
		rest.Route{
			ID:          "createCluster",
			Method:      http.MethodPost,
			Path:        path,
			Status:      http.StatusAccepted,
			Tag:         tag,
			Rule:        rest.Rule{Planned: true},
			Summary:     "Create a cluster",
			Description: "Solves the layout, plans and starts the operation. With dryRun it only previews it.",
		},
		func(ctx context.Context, c *rest.Call, in *struct {
			Previewing
			Body rest.Raw[model.CreateCluster]
		}) (api.StartedBody, api.Written, error) {
			req, err := in.Body.By(decode.CreateCluster)
			if err != nil {
				return api.StartedBody{}, api.Written{}, err
			}
			v, err := s.Latest(ctx)
			if err != nil {
				return api.StartedBody{}, api.Written{}, err
			}
			if err := mayCreate(c, &req); err != nil {
				return api.StartedBody{}, api.Written{}, err
			}
			if req.Config, err = redact.RestoreConfig(req.Config, nil); err != nil {
				return api.StartedBody{}, api.Written{}, err
			}
			started, err := s.Clusters.Create(ctx, c.Who, req, in.DryRun)
			return startedBody(v, c, started, in.DryRun, err)
		},
	)
	rest.Read(s, rest.Route{ID: "getCluster", Path: one, Tag: tag, Summary: "Get a cluster with its nodes, links and progress"},
		func(_ context.Context, c *rest.Call, v rest.View, in *rest.ByCluster) (api.ClusterDetails, error) {
			cl, err := c.Cluster(v, in.ID)
			if err != nil {
				return api.ClusterDetails{}, err
			}
			d := api.ClusterDetails{
				Cluster:  redact.For(v, c.Who.Tenant).Cluster(cl),
				Nodes:    []model.Node{},
				Links:    v.Links(cl),
				Progress: progress(v, c.Who.Tenant, cl),
			}
			if d.Links == nil {
				d.Links = []model.Link{}
			}
			for _, n := range c.Nodes(v, cl) {
				d.Nodes = append(d.Nodes, redact.Node(n))
			}
			return d, nil
		})
	rest.Write(
		s,
		rest.Route{
			ID:       "deleteCluster",
			Method:   http.MethodDelete,
			Path:     one,
			Status:   http.StatusAccepted,
			Tag:      tag,
			Rule:     rest.Rule{Planned: true},
			Optional: true,
			Summary:  "Delete a cluster and its machines",
		},
		func(ctx context.Context, c *rest.Call, in *struct {
			rest.ByCluster
			Previewing
			Graceful bool `query:"graceful" doc:"Stop and remove the services first; also in the body"`
			Body     rest.Raw[model.DeleteCluster]
		}) (api.StartedBody, api.Written, error) {
			body, err := in.Body.By(decode.DeleteCluster)
			if err != nil {
				return api.StartedBody{}, api.Written{}, err
			}
			return operate(
				ctx,
				s,
				c,
				in.ID,
				api.Operate{
					Type:           model.OpDelete,
					Graceful:       in.Graceful || body.Graceful,
					ProviderFields: body.ProviderFields,
					Rollout:        body.Rollout,
					DryRun:         in.DryRun,
				},
			)
		},
	)
	for _, op := range []struct {
		typ     model.OperationType
		ID, doc string
	}{
		{model.OpStart, "start", "Start"}, {model.OpStop, "stop", "Stop"}, {model.OpRestart, "restart", "Restart"},
	} {
		rest.Write(
			s,
			rest.Route{
				ID:       op.ID + "Cluster",
				Method:   http.MethodPost,
				Path:     one + "/" + op.ID,
				Status:   http.StatusAccepted,
				Tag:      tag,
				Rule:     rest.Rule{Planned: true},
				Optional: true,
				Summary:  op.doc + " a cluster's services",
			},
			func(ctx context.Context, c *rest.Call, in *struct {
				rest.ByCluster
				Previewing
				Body rest.Raw[model.ServiceRequest]
			}) (api.StartedBody, api.Written, error) {
				body, err := in.Body.By(decode.ServiceRequest)
				if err != nil {
					return api.StartedBody{}, api.Written{}, err
				}
				return operate(
					ctx,
					s,
					c,
					in.ID,
					api.Operate{Type: op.typ, Services: body.Services, ProviderFields: body.ProviderFields, Rollout: body.Rollout, DryRun: in.DryRun},
				)
			},
		)
		rest.Write(
			s,
			rest.Route{
				ID:      op.ID + "Service",
				Method:  http.MethodPost,
				Path:    one + "/services/{service}/" + op.ID,
				Status:  http.StatusAccepted,
				Tag:     tag,
				Rule:    rest.Rule{Planned: true},
				Summary: op.doc + " one service of a cluster",
			},
			func(ctx context.Context, c *rest.Call, in *struct {
				rest.ByCluster
				Previewing
				Service string `path:"service" doc:"The service's name"`
			}) (api.StartedBody, api.Written, error) {
				return operate(ctx, s, c, in.ID, api.Operate{Type: op.typ, Services: []string{in.Service}, DryRun: in.DryRun})
			},
		)
	}
	configure := func(ctx context.Context, c *rest.Call, in *struct {
		rest.ByCluster
		Previewing
		Body rest.Raw[model.ConfigureCluster]
	}) (api.StartedBody, api.Written, error) {
		var body model.ConfigureCluster
		var err error
		if len(in.Body.Data) > 0 {
			body, err = in.Body.By(decode.ConfigureCluster)
		}
		if err != nil {
			return api.StartedBody{}, api.Written{}, err
		}
		return operate(ctx, s, c, in.ID, api.Operate{
			Type: model.OpConfigure, Config: body.Config, ConfigMode: body.ConfigMode, Restart: body.Restart,
			ProviderFields: body.ProviderFields, Rollout: body.Rollout, DryRun: in.DryRun,
		})
	}
	rest.Read(s, rest.Route{ID: "getClusterConfig", Path: one + "/config", Tag: tag, Summary: "Get a cluster's configuration"},
		func(_ context.Context, c *rest.Call, v rest.View, in *rest.ByCluster) (map[string]any, error) {
			cl, err := c.Cluster(v, in.ID)
			if err != nil {
				return nil, err
			}
			if cl.Config == nil {
				return map[string]any{}, nil
			}
			return cl.Config, nil
		})
	rest.Write(
		s,
		rest.Route{
			ID:      "putClusterConfig",
			Method:  http.MethodPut,
			Path:    one + "/config",
			Status:  http.StatusAccepted,
			Tag:     tag,
			Rule:    rest.Rule{Planned: true},
			Summary: "Change a cluster's configuration and apply it",
		},
		configure,
	)
	rest.Write(
		s,
		rest.Route{
			ID:       "configureCluster",
			Method:   http.MethodPost,
			Path:     one + "/configure",
			Status:   http.StatusAccepted,
			Tag:      tag,
			Rule:     rest.Rule{Planned: true},
			Optional: true,
			Summary:  "Apply a new configuration to a cluster, or the current one again if there is no body",
		},
		configure,
	)
	rest.Read(s, rest.Route{ID: "listClusterServices", Path: one + "/services", Tag: tag, Summary: "List a cluster's services"},
		func(_ context.Context, c *rest.Call, v rest.View, in *rest.ByCluster) ([]string, error) {
			cl, err := c.Cluster(v, in.ID)
			if err != nil {
				return nil, err
			}
			return append([]string{}, cl.Services...), nil
		})
}

// mayCreate returns nil if the caller may create a cluster, as far as the request determines it, and give it its labels.
func mayCreate(c *rest.Call, req *model.CreateCluster) error {
	wanted := &model.Cluster{Tenant: c.Who.Tenant, Owner: c.Who.Actor, Name: req.Name, Services: req.Services}
	wanted.Template.Name, wanted.Provider.Name = req.ClusterTemplate, req.Provider
	after := access.AfterOf(wanted, int(req.NumMachines))
	after.HardwareType, after.ImageType = req.HardwareType, req.ImageType
	if err := c.MayCreate(wanted, after); err != nil {
		return err
	}
	return mayLabel(c, nil, wanted, api.Labels{Set: req.Labels})
}

// only returns those of a sequence for which a function returns true.
func only[T any](all iter.Seq[T], ok func(T) bool) iter.Seq[T] {
	return func(yield func(T) bool) {
		for x := range all {
			if ok(x) && !yield(x) {
				return
			}
		}
	}
}

// statuses parses a list of statuses that are separated by commas. Unknown statuses are faults.
func statuses(path, text string, known []string) ([]string, error) {
	if text == "" {
		return nil, nil
	}
	var faults model.Faults
	wanted := strings.Split(text, ",")
	for i, w := range wanted {
		wanted[i] = strings.TrimSpace(w)
		if !slices.Contains(known, wanted[i]) {
			faults.Add(path, "unknown status "+w+": it must be one of "+strings.Join(known, ", "))
		}
	}
	return wanted, faults.Err()
}

func summary(v rest.View, tenant string, cl *model.Cluster) api.ClusterSummary {
	nodes := v.Nodes(tenant, cl.ID)
	out := summaryOf(cl, len(nodes), progress(v, tenant, cl))
	out.Health = model.HealthOf(nodes)
	return out
}

func summaryOf(cl *model.Cluster, nodes int, p api.ClusterProgress) api.ClusterSummary {
	return api.ClusterSummary{
		ID: cl.ID, Name: cl.Name, Description: cl.Description, Status: cl.Status, Message: cl.Message, OwnerID: cl.Owner,
		CreatedAt: cl.CreatedAt, ExpiresAt: cl.ExpiresAt,
		ClusterTemplate: api.Labelled{Name: cl.Template.Name, Label: cl.Template.Label, Icon: cl.Template.Icon},
		Provider:        api.Labelled{Name: cl.Provider.Name, Label: cl.Provider.Label, Icon: cl.Provider.Icon},
		Labels:          cl.Labels, NumNodes: nodes, Services: append([]string{}, cl.Services...),
		Operation: cl.Operation, Progress: p,
	}
}

func progress(v rest.View, tenant string, cl *model.Cluster) api.ClusterProgress {
	op, ok := v.Operation(tenant, cl.Operation)
	if !ok {
		return api.ClusterProgress{}
	}
	return progressOf(op, v.Progress(tenant, op.ID))
}

func progressOf(op *model.Operation, p model.Progress) api.ClusterProgress {
	return api.ClusterProgress{Action: op.Type, ActionStatus: op.Status, StepsTotal: p.Total, StepsCompleted: p.Done, Counts: p.Counts}
}

func operate(ctx context.Context, s *rest.Server, c *rest.Call, idOrName string, req api.Operate) (api.StartedBody, api.Written, error) {
	v, done, err := s.Before(ctx, c)
	if err != nil {
		return api.StartedBody{}, api.Written{}, err
	}
	if done != nil && !req.DryRun {
		started, err := s.Clusters.Operate(ctx, c.Who, idOrName, req)
		return startedBody(v, c, started, false, err)
	}
	cl, err := c.Cluster(v, idOrName)
	if err != nil {
		return api.StartedBody{}, api.Written{}, err
	}
	var faults model.Faults
	for _, name := range req.Services {
		if req.Type != model.OpAddServices && !slices.Contains(cl.Services, name) {
			hint := ""
			if near := words.Nearest(name, cl.Services); near != "" {
				hint = ": did you mean " + near + "?"
			}
			faults.Add("services", "cluster "+cl.Name+" has no service "+name+hint)
		}
	}
	if len(faults) > 0 {
		p := rest.NotFound("%v", faults[0])
		p.Errors = faults
		return api.StartedBody{}, api.Written{}, p
	}
	if faults := model.CheckSealedRefs("config", req.Config); len(faults) > 0 {
		return api.StartedBody{}, api.Written{}, faults
	}
	if req.Config, err = redact.RestoreConfig(req.Config, cl.Config); err != nil {
		return api.StartedBody{}, api.Written{}, err
	}
	started, err := s.Clusters.Operate(ctx, c.Who, cl.ID, req)
	return startedBody(v, c, started, req.DryRun, err)
}

// startedBody returns the answer to a request that starts an operation. v is a state from before the
// write.
func startedBody(v rest.View, c *rest.Call, st api.Started, dryRun bool, err error) (api.StartedBody, api.Written, error) {
	if err != nil {
		return api.StartedBody{}, st.Written, err
	}
	body := api.StartedBody{DryRun: dryRun, Preview: st.Preview, Warnings: st.Written.Warnings}
	for i := range body.Preview.Nodes {
		body.Preview.Nodes[i] = redact.Node(&body.Preview.Nodes[i])
	}
	if dryRun {
		return body, st.Written, nil
	}
	body.ID = st.Cluster.ID
	if st.Operation.ID != "" {
		op := st.Operation
		body.Operation = &op
	}
	if st.Cluster.Name != "" {
		cl := redact.For(v, c.Who.Tenant).Cluster(&st.Cluster)
		body.Cluster = &cl
	}
	return body, st.Written, nil
}
