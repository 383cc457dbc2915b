package client

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
)

// ClusterFilter selects clusters of a list. The zero value selects all.
type ClusterFilter struct {
	// Statuses selects the clusters with one of these statuses.
	Statuses []string
	// Unhealthy selects the clusters that need attention.
	Unhealthy bool
}

// Clusters returns the clusters that a filter selects.
func (c *Client) Clusters(ctx context.Context, f ClusterFilter, read Read) ([]api.ClusterSummary, Meta, error) {
	var out []api.ClusterSummary
	q := values("status", strings.Join(f.Statuses, ","))
	if f.Unhealthy {
		q.Set("unhealthy", "true")
	}
	m, err := c.get(ctx, "/v1/clusters", read, q, &out)
	return out, m, err
}

// Cluster returns a cluster, by id or name, with its nodes, links and progress.
func (c *Client) Cluster(ctx context.Context, idOrName string, read Read) (api.ClusterDetails, Meta, error) {
	var out api.ClusterDetails
	m, err := c.get(ctx, "/v1/clusters/"+seg(idOrName), read, nil, &out)
	return out, m, err
}

// CreateCluster starts a new cluster, or with dryRun previews it.
func (c *Client) CreateCluster(ctx context.Context, req model.CreateCluster, dryRun bool) (api.StartedBody, Meta, error) {
	var out api.StartedBody
	m, err := c.send(ctx, http.MethodPost, "/v1/clusters", dry(dryRun), req, &out)
	return out, m, err
}

// Operate starts an operation on a cluster, or with op.DryRun previews it.
func (c *Client) Operate(ctx context.Context, cluster string, op api.Operate) (api.StartedBody, Meta, error) {
	var out api.StartedBody
	method, path := http.MethodPost, "/v1/clusters/"+seg(cluster)
	var body any
	switch op.Type {
	case model.OpDelete:
		method, body = http.MethodDelete, model.DeleteCluster{Rollout: op.Rollout, Graceful: op.Graceful, ProviderFields: op.ProviderFields}
	case model.OpConfigure:
		path += "/configure"
		if op.Config != nil {
			method, path = http.MethodPut, "/v1/clusters/"+seg(cluster)+"/config"
		}
		if op.Config != nil || op.Rollout != (model.Rollout{}) || op.ProviderFields != nil {
			body = model.ConfigureCluster{
				Rollout:        op.Rollout,
				Config:         op.Config,
				ConfigMode:     op.ConfigMode,
				Restart:        op.Restart,
				ProviderFields: op.ProviderFields,
			}
		}
	case model.OpStart, model.OpStop, model.OpRestart:
		path += "/" + seg(string(op.Type))
		body = model.ServiceRequest{Rollout: op.Rollout, NodeChoice: op.NodeChoice, Services: op.Services, ProviderFields: op.ProviderFields}
	default:
		path += "/" + seg(string(op.Type))
		change := op.Change
		change.Services, change.ProviderFields, change.Rollout = op.Services, op.ProviderFields, op.Rollout
		body = change
	}
	m, err := c.send(ctx, method, path, dry(op.DryRun), body, &out)
	return out, m, err
}

// History returns a cluster's snapshots, the oldest first.
func (c *Client) History(ctx context.Context, cluster string, read Read) ([]api.HistoryEntry, Meta, error) {
	var out []api.HistoryEntry
	m, err := c.get(ctx, "/v1/clusters/"+seg(cluster)+"/history", read, nil, &out)
	return out, m, err
}

// Snapshot returns one snapshot of a cluster.
func (c *Client) Snapshot(ctx context.Context, cluster string, number int, read Read) (model.Snapshot, Meta, error) {
	var out model.Snapshot
	m, err := c.get(ctx, "/v1/clusters/"+seg(cluster)+"/history/"+strconv.Itoa(number), read, nil, &out)
	return out, m, err
}

// Diff compares two snapshots of a cluster; 0 is the present state.
func (c *Client) Diff(ctx context.Context, cluster string, from, to int, read Read) ([]api.Difference, Meta, error) {
	var out []api.Difference
	m, err := c.get(ctx, "/v1/clusters/"+seg(cluster)+"/diff", read, values("from", strconv.Itoa(from), "to", strconv.Itoa(to)), &out)
	return out, m, err
}

// Resolve marks a failed cluster as repaired.
func (c *Client) Resolve(ctx context.Context, cluster, reason string) (api.ClusterSummary, Meta, error) {
	var out api.ClusterSummary
	m, err := c.send(ctx, http.MethodPost, "/v1/clusters/"+seg(cluster)+"/resolve", nil, api.OrderBody{Reason: reason}, &out)
	return out, m, err
}

// LabelCluster sets and removes labels of a cluster.
func (c *Client) LabelCluster(ctx context.Context, cluster string, l api.Labels) (api.ClusterSummary, Meta, error) {
	var out api.ClusterSummary
	m, err := c.send(ctx, http.MethodPost, "/v1/clusters/"+seg(cluster)+"/labels", nil, l, &out)
	return out, m, err
}

// ChangeLease changes when the lease of a cluster ends.
func (c *Client) ChangeLease(ctx context.Context, cluster string, l api.Lease) (api.ClusterSummary, Meta, error) {
	var out api.ClusterSummary
	m, err := c.send(ctx, http.MethodPost, "/v1/clusters/"+seg(cluster)+"/lease", nil, l, &out)
	return out, m, err
}

// PauseRecovery pauses or resumes the recovery of a cluster.
func (c *Client) PauseRecovery(ctx context.Context, cluster string, pause bool, reason string) (model.Cluster, Meta, error) {
	var out model.Cluster
	word := "resume"
	if pause {
		word = "pause"
	}
	m, err := c.send(ctx, http.MethodPost, "/v1/clusters/"+seg(cluster)+"/recovery/"+word, nil, api.OrderBody{Reason: reason}, &out)
	return out, m, err
}

func dry(run bool) map[string][]string {
	if !run {
		return nil
	}
	return values("dryRun", "true")
}

// Page selects a part of a list. The zero value is the server's default.
type Page struct{ Offset, Limit int }

func (p Page) pairs() []string {
	var out []string
	if p.Offset > 0 {
		out = append(out, "offset", strconv.Itoa(p.Offset))
	}
	if p.Limit > 0 {
		out = append(out, "limit", strconv.Itoa(p.Limit))
	}
	return out
}

// Operations returns operations, the newest first, of one cluster or, if cluster is "", of all.
func (c *Client) Operations(
	ctx context.Context,
	cluster string,
	statuses []string,
	page Page,
	read Read,
) ([]api.OperationDetails, Meta, error) {
	var out []api.OperationDetails
	m, err := c.get(
		ctx,
		"/v1/operations",
		read,
		values(append(page.pairs(), "cluster", cluster, "status", strings.Join(statuses, ","))...),
		&out,
	)
	return out, m, err
}

// Operation returns an operation and its progress.
func (c *Client) Operation(ctx context.Context, id string, read Read) (api.OperationDetails, Meta, error) {
	var out api.OperationDetails
	m, err := c.get(ctx, "/v1/operations/"+seg(id), read, nil, &out)
	return out, m, err
}

// Tasks returns the tasks of an operation with a status, or all of them if status is "".
func (c *Client) Tasks(ctx context.Context, operation, status string, page Page, read Read) ([]model.Task, Meta, error) {
	var out []model.Task
	m, err := c.get(ctx, "/v1/operations/"+seg(operation)+"/tasks", read, values(append(page.pairs(), "status", status)...), &out)
	return out, m, err
}

// Order carries out an order about an operation: "pause", "resume", "abort" or "rollback".
func (c *Client) Order(ctx context.Context, operation, order, reason string) (api.OperationDetails, Meta, error) {
	var out api.OperationDetails
	m, err := c.send(ctx, http.MethodPost, "/v1/operations/"+seg(operation)+"/"+seg(order), nil, api.OrderBody{Reason: reason}, &out)
	return out, m, err
}

// Task returns a task with its attempts.
func (c *Client) Task(ctx context.Context, id string, read Read) (model.Task, Meta, error) {
	var out model.Task
	m, err := c.get(ctx, "/v1/tasks/"+seg(id), read, nil, &out)
	return out, m, err
}

// A TaskLog is read from the agent that has the log of a task. A read fails if the agent is lost before the end.
type TaskLog struct {
	io.ReadCloser
	// Missing is why that agent did not send the log, and "" if it does. Otherwise only the end of the log is there, without times, or
	// nothing.
	Missing string
}

// TaskLog returns the log of an attempt of a task; attempt 0 is the latest. With follow the log
// continues until the task ends. The caller closes it.
func (c *Client) TaskLog(ctx context.Context, id string, attempt int, follow bool) (*TaskLog, error) {
	q := values()
	if attempt > 0 {
		q.Set("attempt", strconv.Itoa(attempt))
	}
	if follow {
		q.Set("follow", "true")
	}
	resp, err := c.do(ctx, request{method: http.MethodGet, path: "/v1/tasks/" + seg(id) + "/log", query: q})
	if err != nil {
		return nil, err
	}
	return &TaskLog{ReadCloser: resp.Body, Missing: resp.Header.Get(api.HeaderLogMissing)}, nil
}

// Nodes returns the nodes of one cluster or, if cluster is "", of all.
func (c *Client) Nodes(ctx context.Context, cluster string, page Page, read Read) ([]model.Node, Meta, error) {
	var out []model.Node
	m, err := c.get(ctx, "/v1/nodes", read, values(append(page.pairs(), "cluster", cluster)...), &out)
	return out, m, err
}

// Node returns a node.
func (c *Client) Node(ctx context.Context, id string, read Read) (model.Node, Meta, error) {
	var out model.Node
	m, err := c.get(ctx, "/v1/nodes/"+seg(id), read, nil, &out)
	return out, m, err
}
