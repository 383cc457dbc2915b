package api

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
)

// ClusterSummary is a cluster in a list (docs/spec/coopr.md 3.7).
type ClusterSummary struct {
	ID              string              `json:"id"`
	Name            string              `json:"name"`
	Description     string              `json:"description,omitempty"`
	Status          model.ClusterStatus `json:"status"`
	Message         string              `json:"message,omitempty"`
	OwnerID         string              `json:"ownerId"`
	CreatedAt       int64               `json:"createTime" doc:"Unix milliseconds"`
	ExpiresAt       int64               `json:"expireTime" doc:"Unix milliseconds; 0 means never"`
	ClusterTemplate Labelled            `json:"clusterTemplate"`
	Provider        Labelled            `json:"provider"`
	NumNodes        int                 `json:"numNodes"`
	Services        []string            `json:"services"`
	Operation       string              `json:"operation,omitempty" doc:"The latest operation"`
	Progress        ClusterProgress     `json:"progress"`
}

// Labelled names a definition the way lists show it.
type Labelled struct {
	Name  string `json:"name"`
	Label string `json:"label,omitempty"`
	Icon  string `json:"icon,omitempty"`
}

// ClusterProgress is how far a cluster's latest operation is.
type ClusterProgress struct {
	Action         model.OperationType   `json:"action,omitempty"`
	ActionStatus   model.OperationStatus `json:"actionstatus,omitempty"`
	StepsTotal     int                   `json:"stepstotal"`
	StepsCompleted int                   `json:"stepscompleted"`
	Counts         map[string]int        `json:"counts,omitempty" doc:"Tasks by status"`
}

// ClusterDetails is everything about one cluster.
type ClusterDetails struct {
	model.Cluster
	Nodes    []model.Node    `json:"nodes"`
	Links    []model.Link    `json:"links" doc:"Links whose macros can be expanded by now"`
	Progress ClusterProgress `json:"progress"`
}

// StartedBody is the answer to a request that starts an operation, or with
// dryRun would.
type StartedBody struct {
	// ID is the cluster's, as in the original's answer.
	ID        string           `json:"id,omitempty"`
	DryRun    bool             `json:"dryRun,omitempty"`
	Cluster   *model.Cluster   `json:"cluster,omitempty"`
	Operation *model.Operation `json:"operation,omitempty"`
	Preview   Preview          `json:"preview"`
	Warnings  model.Faults     `json:"warnings,omitempty"`
}

func (b StartedBody) status() int {
	if b.Operation == nil {
		return http.StatusOK
	}
	return http.StatusAccepted
}

// ByCluster names a cluster in the path.
type ByCluster struct {
	ID string `path:"cluster" doc:"The cluster's id or name"`
}

// Previewing is the parameter of everything that starts an operation.
type Previewing struct {
	DryRun bool `query:"dryRun" doc:"Only say what would be done"`
}

func (s *server) clusterRoutes() {
	const tag, path, one = "clusters", "/v1/clusters", "/v1/clusters/{cluster}"
	reads, writes := rule{need: model.RoleRead}, rule{need: model.RoleUser}

	read(s, route{id: "listClusters", path: path, tag: tag, rule: reads, summary: "List clusters"},
		func(_ context.Context, c *call, v View, in *struct {
			Status string `query:"status" doc:"Only these statuses, separated by commas"`
		}) ([]ClusterSummary, error) {
			wanted, err := statuses("query.status", in.Status, clusterStatuses)
			if err != nil {
				return nil, err
			}
			out := []ClusterSummary{}
			for _, cl := range c.visible(v) {
				if len(wanted) == 0 || slices.Contains(wanted, string(cl.Status)) {
					out = append(out, summary(v, c.who.Tenant, cl))
				}
			}
			return out, nil
		})
	write(s, route{id: "createCluster", method: http.MethodPost, path: path, status: http.StatusAccepted, tag: tag, rule: writes, summary: "Create a cluster",
		description: "Solves the layout, plans and starts. With dryRun it only says what would be done."},
		func(ctx context.Context, c *call, in *struct {
			Previewing
			Body raw[model.CreateCluster]
		}) (StartedBody, Written, error) {
			req, err := in.Body.by(model.DecodeCreateCluster)
			if err != nil {
				return StartedBody{}, Written{}, err
			}
			started, err := s.backend.CreateCluster(ctx, c.who, req, in.DryRun)
			return s.started(ctx, c, started, in.DryRun, err)
		})
	read(s, route{id: "getCluster", path: one, tag: tag, rule: reads, summary: "A cluster with its nodes, links and progress"},
		func(_ context.Context, c *call, v View, in *ByCluster) (ClusterDetails, error) {
			cl, err := c.cluster(v, in.ID)
			if err != nil {
				return ClusterDetails{}, err
			}
			d := ClusterDetails{Cluster: newRedactor(v, c.who.Tenant).cluster(cl), Nodes: []model.Node{}, Links: v.Links(cl), Progress: progress(v, c.who.Tenant, cl)}
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
		}) (StartedBody, Written, error) {
			body, err := in.Body.by(model.DecodeDeleteCluster)
			if err != nil {
				return StartedBody{}, Written{}, err
			}
			return s.operate(ctx, c, in.ID, Operate{Type: model.OpDelete, Graceful: in.Graceful || body.Graceful, ProviderFields: body.ProviderFields, Rollout: body.Rollout, DryRun: in.DryRun})
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
			}) (StartedBody, Written, error) {
				body, err := in.Body.by(model.DecodeServiceRequest)
				if err != nil {
					return StartedBody{}, Written{}, err
				}
				return s.operate(ctx, c, in.ID, Operate{Type: op.typ, Services: body.Services, ProviderFields: body.ProviderFields, Rollout: body.Rollout, DryRun: in.DryRun})
			})
		write(s, route{id: op.id + "Service", method: http.MethodPost, path: one + "/services/{service}/" + op.id, status: http.StatusAccepted, tag: tag, rule: writes, summary: op.doc + " one service of a cluster"},
			func(ctx context.Context, c *call, in *struct {
				ByCluster
				Previewing
				Service string `path:"service" doc:"The service's name"`
			}) (StartedBody, Written, error) {
				return s.operate(ctx, c, in.ID, Operate{Type: op.typ, Services: []string{in.Service}, DryRun: in.DryRun})
			})
	}
	configure := func(ctx context.Context, c *call, in *struct {
		ByCluster
		Previewing
		Body raw[model.ConfigureCluster]
	}) (StartedBody, Written, error) {
		var body model.ConfigureCluster
		var err error
		if len(in.Body.data) > 0 {
			body, err = in.Body.by(model.DecodeConfigureCluster)
		}
		if err != nil {
			return StartedBody{}, Written{}, err
		}
		return s.operate(ctx, c, in.ID, Operate{
			Type: model.OpConfigure, Config: body.Config, ConfigMode: body.ConfigMode, Restart: body.Restart,
			ProviderFields: body.ProviderFields, Rollout: body.Rollout, DryRun: in.DryRun,
		})
	}
	read(s, route{id: "getClusterConfig", path: one + "/config", tag: tag, rule: reads, summary: "A cluster's configuration"},
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
	write(s, route{id: "configureCluster", method: http.MethodPost, path: one + "/configure", status: http.StatusAccepted, tag: tag, rule: writes, optional: true, summary: "Apply a cluster's configuration, or with no body the present one again"}, configure)
	read(s, route{id: "listClusterServices", path: one + "/services", tag: tag, rule: reads, summary: "A cluster's services"},
		func(_ context.Context, c *call, v View, in *ByCluster) ([]string, error) {
			cl, err := c.cluster(v, in.ID)
			if err != nil {
				return nil, err
			}
			return append([]string{}, cl.Services...), nil
		})
}

var clusterStatuses = []string{string(model.ClusterPending), string(model.ClusterActive), string(model.ClusterIncomplete), string(model.ClusterInconsistent), string(model.ClusterFailed), string(model.ClusterTerminated)}

// statuses reads a list separated by commas; unknown names are faults.
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

func summary(v View, tenant string, cl *model.Cluster) ClusterSummary {
	return ClusterSummary{
		ID: cl.ID, Name: cl.Name, Description: cl.Description, Status: cl.Status, Message: cl.Message, OwnerID: cl.Owner,
		CreatedAt: cl.CreatedAt, ExpiresAt: cl.ExpiresAt,
		ClusterTemplate: Labelled{cl.Template.Name, cl.Template.Label, cl.Template.Icon},
		Provider:        Labelled{cl.Provider.Name, cl.Provider.Label, cl.Provider.Icon},
		NumNodes:        len(v.Nodes(tenant, cl.ID)), Services: append([]string{}, cl.Services...),
		Operation: cl.Operation, Progress: progress(v, tenant, cl),
	}
}

func progress(v View, tenant string, cl *model.Cluster) ClusterProgress {
	op, ok := v.Operation(tenant, cl.Operation)
	if !ok {
		return ClusterProgress{}
	}
	p := v.Progress(tenant, op.ID)
	return ClusterProgress{Action: op.Type, ActionStatus: op.Status, StepsTotal: p.Total, StepsCompleted: p.Done, Counts: p.Counts}
}

func (s *server) operate(ctx context.Context, c *call, idOrName string, req Operate) (StartedBody, Written, error) {
	v, err := s.now(ctx)
	if err != nil {
		return StartedBody{}, Written{}, err
	}
	cl, err := c.cluster(v, idOrName)
	if err != nil {
		return StartedBody{}, Written{}, err
	}
	var faults model.Faults
	for _, name := range req.Services {
		if req.Type != model.OpAddServices && !slices.Contains(cl.Services, name) {
			hint := ""
			if near := model.Nearest(name, cl.Services); near != "" {
				hint = ": did you mean " + near + "?"
			}
			faults.Add("services", "cluster "+cl.Name+" has no service "+name+hint)
		}
	}
	if len(faults) > 0 {
		p := notFound("%v", faults[0])
		p.Errors = faults
		return StartedBody{}, Written{}, p
	}
	started, err := s.backend.Operate(ctx, c.who, cl.ID, req)
	return s.started(ctx, c, started, req.DryRun, err)
}

// started gives the answer to a request that starts an operation.
func (s *server) started(ctx context.Context, c *call, st Started, dryRun bool, err error) (StartedBody, Written, error) {
	if err != nil {
		return StartedBody{}, st.Written, err
	}
	body := StartedBody{ID: st.Cluster.ID, DryRun: dryRun, Preview: st.Preview, Warnings: st.Written.Warnings}
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

// redactCluster redacts by the plugins' fields, or where they are not to be
// had at the moment, everything of the provider.
func redactCluster(v View, tenant string, cl *model.Cluster) model.Cluster {
	if v != nil {
		return newRedactor(v, tenant).cluster(cl)
	}
	out := *cl
	out.Provider.Provisioner = nil
	return out
}
