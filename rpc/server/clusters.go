package server

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/words"
	"github.com/coopr/coopr/rpc/api"
)

// ByCluster names a cluster in the path.
type ByCluster struct {
	ID string `path:"cluster" doc:"The cluster's id or name"`
}

// Previewing is the parameter of routes that start an operation.
type Previewing struct {
	DryRun bool `query:"dryRun" doc:"Only preview the operation"`
}

func (s *server) clusterRoutes() {
	const tag, path, one = "clusters", "/v1/clusters", "/v1/clusters/{cluster}"
	reads, writes := rule{need: model.RoleRead}, rule{need: model.RoleUser}

	read(s, route{id: "listClusters", path: path, tag: tag, rule: reads, summary: "List clusters"},
		func(_ context.Context, c *call, v View, in *struct {
			Status string `query:"status" doc:"Only these statuses, separated by commas"`
		}) ([]api.ClusterSummary, error) {
			wanted, err := statuses("query.status", in.Status, clusterStatuses)
			if err != nil {
				return nil, err
			}
			out := []api.ClusterSummary{}
			for _, cl := range c.visible(v) {
				if len(wanted) == 0 || slices.Contains(wanted, string(cl.Status)) {
					out = append(out, summary(v, c.who.Tenant, cl))
				}
			}
			return out, nil
		})
	write(s, route{id: "createCluster", method: http.MethodPost, path: path, status: http.StatusAccepted, tag: tag, rule: writes, summary: "Create a cluster",
		description: "Solves the layout, plans and starts the operation. With dryRun it only previews it."},
		func(ctx context.Context, c *call, in *struct {
			Previewing
			Body raw[model.CreateCluster]
		}) (api.StartedBody, api.Written, error) {
			req, err := in.Body.by(model.DecodeCreateCluster)
			if err != nil {
				return api.StartedBody{}, api.Written{}, err
			}
			started, err := s.Clusters.Create(ctx, c.who, req, in.DryRun)
			return s.started(ctx, c, started, in.DryRun, err)
		})
	read(s, route{id: "getCluster", path: one, tag: tag, rule: reads, summary: "Get a cluster with its nodes, links and progress"},
		func(_ context.Context, c *call, v View, in *ByCluster) (api.ClusterDetails, error) {
			cl, err := c.cluster(v, in.ID)
			if err != nil {
				return api.ClusterDetails{}, err
			}
			d := api.ClusterDetails{Cluster: newRedactor(v, c.who.Tenant).cluster(cl), Nodes: []model.Node{}, Links: v.Links(cl), Progress: progress(v, c.who.Tenant, cl)}
			if d.Links == nil {
				d.Links = []model.Link{}
			}
			for _, n := range v.Nodes(c.who.Tenant, cl.ID) {
				d.Nodes = append(d.Nodes, redactNode(n))
			}
			return d, nil
		})
	write(s, route{id: "deleteCluster", method: http.MethodDelete, path: one, status: http.StatusAccepted, tag: tag, rule: writes, optional: true, summary: "Delete a cluster and its machines"},
		func(ctx context.Context, c *call, in *struct {
			ByCluster
			Previewing
			Graceful bool `query:"graceful" doc:"Stop and remove the services first; also in the body"`
			Body     raw[model.DeleteCluster]
		}) (api.StartedBody, api.Written, error) {
			body, err := in.Body.by(model.DecodeDeleteCluster)
			if err != nil {
				return api.StartedBody{}, api.Written{}, err
			}
			return s.operate(ctx, c, in.ID, api.Operate{Type: model.OpDelete, Graceful: in.Graceful || body.Graceful, ProviderFields: body.ProviderFields, Rollout: body.Rollout, DryRun: in.DryRun})
		})
	for _, op := range []struct {
		typ     model.OperationType
		id, doc string
	}{
		{model.OpStart, "start", "Start"}, {model.OpStop, "stop", "Stop"}, {model.OpRestart, "restart", "Restart"},
	} {
		write(s, route{id: op.id + "Cluster", method: http.MethodPost, path: one + "/" + op.id, status: http.StatusAccepted, tag: tag, rule: writes, optional: true, summary: op.doc + " a cluster's services"},
			func(ctx context.Context, c *call, in *struct {
				ByCluster
				Previewing
				Body raw[model.ServiceRequest]
			}) (api.StartedBody, api.Written, error) {
				body, err := in.Body.by(model.DecodeServiceRequest)
				if err != nil {
					return api.StartedBody{}, api.Written{}, err
				}
				return s.operate(ctx, c, in.ID, api.Operate{Type: op.typ, Services: body.Services, ProviderFields: body.ProviderFields, Rollout: body.Rollout, DryRun: in.DryRun})
			})
		write(s, route{id: op.id + "Service", method: http.MethodPost, path: one + "/services/{service}/" + op.id, status: http.StatusAccepted, tag: tag, rule: writes, summary: op.doc + " one service of a cluster"},
			func(ctx context.Context, c *call, in *struct {
				ByCluster
				Previewing
				Service string `path:"service" doc:"The service's name"`
			}) (api.StartedBody, api.Written, error) {
				return s.operate(ctx, c, in.ID, api.Operate{Type: op.typ, Services: []string{in.Service}, DryRun: in.DryRun})
			})
	}
	configure := func(ctx context.Context, c *call, in *struct {
		ByCluster
		Previewing
		Body raw[model.ConfigureCluster]
	}) (api.StartedBody, api.Written, error) {
		var body model.ConfigureCluster
		var err error
		if len(in.Body.data) > 0 {
			body, err = in.Body.by(model.DecodeConfigureCluster)
		}
		if err != nil {
			return api.StartedBody{}, api.Written{}, err
		}
		return s.operate(ctx, c, in.ID, api.Operate{
			Type: model.OpConfigure, Config: body.Config, ConfigMode: body.ConfigMode, Restart: body.Restart,
			ProviderFields: body.ProviderFields, Rollout: body.Rollout, DryRun: in.DryRun,
		})
	}
	read(s, route{id: "getClusterConfig", path: one + "/config", tag: tag, rule: reads, summary: "Get a cluster's configuration"},
		func(_ context.Context, c *call, v View, in *ByCluster) (map[string]any, error) {
			cl, err := c.cluster(v, in.ID)
			if err != nil {
				return nil, err
			}
			if cl.Config == nil {
				return map[string]any{}, nil
			}
			return cl.Config, nil
		})
	write(s, route{id: "putClusterConfig", method: http.MethodPut, path: one + "/config", status: http.StatusAccepted, tag: tag, rule: writes, summary: "Change a cluster's configuration and apply it"}, configure)
	write(s, route{id: "configureCluster", method: http.MethodPost, path: one + "/configure", status: http.StatusAccepted, tag: tag, rule: writes, optional: true, summary: "Apply a new configuration to a cluster, or without a body the present one again"}, configure)
	read(s, route{id: "listClusterServices", path: one + "/services", tag: tag, rule: reads, summary: "List a cluster's services"},
		func(_ context.Context, c *call, v View, in *ByCluster) ([]string, error) {
			cl, err := c.cluster(v, in.ID)
			if err != nil {
				return nil, err
			}
			return append([]string{}, cl.Services...), nil
		})
}

var clusterStatuses = []string{string(model.ClusterPending), string(model.ClusterActive), string(model.ClusterIncomplete), string(model.ClusterInconsistent), string(model.ClusterFailed), string(model.ClusterTerminated)}

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

func summary(v View, tenant string, cl *model.Cluster) api.ClusterSummary {
	return api.ClusterSummary{
		ID: cl.ID, Name: cl.Name, Description: cl.Description, Status: cl.Status, Message: cl.Message, OwnerID: cl.Owner,
		CreatedAt: cl.CreatedAt, ExpiresAt: cl.ExpiresAt,
		ClusterTemplate: api.Labelled{Name: cl.Template.Name, Label: cl.Template.Label, Icon: cl.Template.Icon},
		Provider:        api.Labelled{Name: cl.Provider.Name, Label: cl.Provider.Label, Icon: cl.Provider.Icon},
		NumNodes:        len(v.Nodes(tenant, cl.ID)), Services: append([]string{}, cl.Services...),
		Operation: cl.Operation, Progress: progress(v, tenant, cl),
	}
}

func progress(v View, tenant string, cl *model.Cluster) api.ClusterProgress {
	op, ok := v.Operation(tenant, cl.Operation)
	if !ok {
		return api.ClusterProgress{}
	}
	p := v.Progress(tenant, op.ID)
	return api.ClusterProgress{Action: op.Type, ActionStatus: op.Status, StepsTotal: p.Total, StepsCompleted: p.Done, Counts: p.Counts}
}

func (s *server) operate(ctx context.Context, c *call, idOrName string, req api.Operate) (api.StartedBody, api.Written, error) {
	v, err := s.now(ctx)
	if err != nil {
		return api.StartedBody{}, api.Written{}, err
	}
	cl, err := c.cluster(v, idOrName)
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
		p := notFound("%v", faults[0])
		p.Errors = faults
		return api.StartedBody{}, api.Written{}, p
	}
	started, err := s.Clusters.Operate(ctx, c.who, cl.ID, req)
	return s.started(ctx, c, started, req.DryRun, err)
}

// started returns the answer to a request that starts an operation.
func (s *server) started(ctx context.Context, c *call, st api.Started, dryRun bool, err error) (api.StartedBody, api.Written, error) {
	if err != nil {
		return api.StartedBody{}, st.Written, err
	}
	body := api.StartedBody{ID: st.Cluster.ID, DryRun: dryRun, Preview: st.Preview, Warnings: st.Written.Warnings}
	for i := range body.Preview.Nodes {
		body.Preview.Nodes[i] = redactNode(&body.Preview.Nodes[i])
	}
	if st.Operation.ID != "" {
		op := st.Operation
		body.Operation = &op
	}
	if st.Cluster.Name != "" {
		v, err := s.now(ctx)
		if err != nil {
			v = nil
		}
		cl := redactCluster(v, c.who.Tenant, &st.Cluster)
		body.Cluster = &cl
	}
	return body, st.Written, nil
}

// redactCluster redacts the fields that the plugins declare sensitive, or all fields of the
// provider if the plugins' declarations are not available now.
func redactCluster(v View, tenant string, cl *model.Cluster) model.Cluster {
	if v != nil {
		return newRedactor(v, tenant).cluster(cl)
	}
	out := *cl
	out.Provider.Provisioner = nil
	return out
}
