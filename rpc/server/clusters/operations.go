package clusters

import (
	"context"
	"iter"
	"net/http"
	"slices"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/listing"
	"github.com/coopr/coopr/rpc/server/rest"
	"github.com/coopr/coopr/rpc/server/schema"
)

func operationRoutes(s *rest.Server) {
	const tag, path, one = "operations", "/v1/operations", "/v1/operations/{operation}"

	rest.Pages(s, rest.Route{ID: "listOperations", Path: path, Tag: tag, Order: "-createTime,-id", Paged: true,
		Summary: "List operations, the newest first"},
		func(_ context.Context, c *rest.Call, v rest.View, in *struct {
			Cluster string `query:"cluster" doc:"Only those of this cluster, by id or name"`
			Status  string `query:"status" doc:"Only these statuses, separated by commas"`
		}) (out listing.Source[*model.Operation, api.OperationDetails], err error) {
			wanted, err := statuses("query.status", in.Status, schema.OperationStatuses)
			if err != nil {
				return out, err
			}
			cluster := ""
			if in.Cluster != "" {
				cl, err := c.Cluster(v, in.Cluster)
				if err != nil {
					return out, err
				}
				cluster = cl.ID
			}
			listed := s.ClusterFilter(c)
			return listing.Source[*model.Operation, api.OperationDetails]{
				All: func(string) iter.Seq[*model.Operation] {
					return only(slices.Values(v.Operations(c.Who.Tenant, cluster)), func(op *model.Operation) bool {
						return (len(wanted) == 0 || slices.Contains(wanted, string(op.Status))) && listed(v, op.Cluster)
					})
				},
				Sorted: true,
				Show:   func(op *model.Operation) api.OperationDetails { return details(v, c.Who.Tenant, op) },
				Brief: func(op *model.Operation) api.OperationDetails {
					return api.OperationDetails{Operation: *op, ClusterName: v.ClusterName(op.Tenant, op.Cluster)}
				},
				Costly: []string{"progress"},
			}, nil
		})
	rest.Read(s, rest.Route{ID: "getOperation", Path: one, Tag: tag, Summary: "Get an operation and its progress"},
		func(_ context.Context, c *rest.Call, v rest.View, in *rest.ByOperation) (api.OperationDetails, error) {
			op, err := c.Operation(v, in.ID)
			if err != nil {
				return api.OperationDetails{}, err
			}
			return details(v, c.Who.Tenant, op), nil
		})
	rest.Pages(s, rest.Route{ID: "listOperationTasks", Path: one + "/tasks", Tag: tag, Order: "id", Paged: true,
		Summary: "List the tasks of an operation"},
		func(_ context.Context, c *rest.Call, v rest.View, in *struct {
			rest.ByOperation
			Status string `query:"status" enum:"blocked,ready,leased,running,succeeded,failed,cancelled,uncertain" doc:"Only tasks of this status"`
		}) (out listing.Source[uint32, model.Task], err error) {
			op, err := c.Operation(v, in.ID)
			if err != nil {
				return out, err
			}
			tasks, task := v.TasksFrom(c.Who.Tenant, op.ID, in.Status)
			return listing.Source[uint32, model.Task]{
				All: func(from string) iter.Seq[uint32] {
					_, index, err := model.TaskID(from).Split()
					if err != nil {
						index = 0 // from the beginning
					}
					return tasks(index)
				},
				Sorted: true,
				Show:   task,
			}, nil
		})
	for _, order := range []struct{ word, summary string }{
		{"pause", "Pause an operation: no further tasks start"},
		{"resume", "Resume a paused operation"},
		{"abort", "Abort an operation: no further tasks start"},
		{"rollback", "Abort an operation and return the cluster to its previous state"},
	} {
		rest.Write(
			s,
			rest.Route{
				ID:       order.word + "Operation",
				Method:   http.MethodPost,
				Path:     one + "/" + order.word,
				Tag:      tag,
				Optional: true,
				Summary:  order.summary,
			},
			func(ctx context.Context, c *rest.Call, in *struct {
				rest.ByOperation
				Body rest.Raw[api.OrderBody]
			}) (api.OperationDetails, api.Written, error) {
				body, err := in.Body.Value()
				if err != nil {
					return api.OperationDetails{}, api.Written{}, err
				}
				v, done, err := s.Before(ctx, c)
				if err != nil {
					return api.OperationDetails{}, api.Written{}, err
				}
				if done != nil {
					return ordered(*done)
				}
				if _, err := c.Operation(v, in.ID); err != nil {
					return api.OperationDetails{}, api.Written{}, err
				}
				w, err := s.Operations.Order(ctx, c.Who, in.ID, order.word, body.Reason)
				if err != nil {
					return api.OperationDetails{}, w, err
				}
				return ordered(w)
			},
		)
	}
}

// ordered returns the answer to an order about an operation.
func ordered(w api.Written) (api.OperationDetails, api.Written, error) {
	op, err := rest.Wrote(w, w.Effect.Operation)
	return detailsOf(op, w.Effect.Progress), w, err
}

func details(v rest.View, tenant string, op *model.Operation) api.OperationDetails {
	out := detailsOf(*op, v.Progress(tenant, op.ID))
	out.ClusterName = v.ClusterName(op.Tenant, op.Cluster)
	return out
}

func detailsOf(op model.Operation, p model.Progress) api.OperationDetails {
	if p.Counts == nil {
		p.Counts = map[string]int{}
	}
	return api.OperationDetails{Operation: op, Progress: p}
}
