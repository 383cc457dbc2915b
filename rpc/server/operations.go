package server

import (
	"context"
	"net/http"
	"slices"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
)

// ByOperation names an operation in the path.
type ByOperation struct {
	ID string `path:"operation" doc:"The operation's id"`
}

const (
	defaultPage = 1000
	maxPage     = 10000
)

var operationStatuses = []string{
	string(model.OpAccepted), string(model.OpRunning), string(model.OpPaused), string(model.OpAborting), string(model.OpRollingBack),
	string(model.OpSucceeded), string(model.OpFailed), string(model.OpAborted), string(model.OpRolledBack),
}

func (s *server) operationRoutes() {
	const tag, path, one = "operations", "/v1/operations", "/v1/operations/{operation}"
	reads, writes := rule{need: model.RoleRead}, rule{need: model.RoleUser}

	list(s, route{id: "listOperations", path: path, tag: tag, rule: reads, summary: "List operations, the newest first"},
		func(_ context.Context, c *call, v View, in *struct {
			Cluster string `query:"cluster" doc:"Only those of this cluster, by id or name"`
			Status  string `query:"status" doc:"Only these statuses, separated by commas"`
			Offset  int    `query:"offset" minimum:"0" doc:"Number of results to skip"`
			Limit   int    `query:"limit" minimum:"1" maximum:"10000" doc:"Maximum number of results; 1000 if absent"`
		}) ([]api.OperationDetails, int, error) {
			wanted, err := statuses("query.status", in.Status, operationStatuses)
			if err != nil {
				return nil, 0, err
			}
			cluster := ""
			if in.Cluster != "" {
				cl, err := c.cluster(v, in.Cluster)
				if err != nil {
					return nil, 0, err
				}
				cluster = cl.ID
			}
			var all []*model.Operation
			for _, op := range v.Operations(c.who.Tenant, cluster) {
				if (len(wanted) == 0 || slices.Contains(wanted, string(op.Status))) && c.seesID(v, op.Cluster) {
					all = append(all, op)
				}
			}
			out := []api.OperationDetails{}
			for _, op := range page(all, in.Offset, in.Limit) {
				out = append(out, details(v, c.who.Tenant, op))
			}
			return out, len(all), nil
		})
	read(s, route{id: "getOperation", path: one, tag: tag, rule: reads, summary: "Get an operation and its progress"},
		func(_ context.Context, c *call, v View, in *ByOperation) (api.OperationDetails, error) {
			op, err := c.operation(v, in.ID)
			if err != nil {
				return api.OperationDetails{}, err
			}
			return details(v, c.who.Tenant, op), nil
		})
	list(s, route{id: "listOperationTasks", path: one + "/tasks", tag: tag, rule: reads, summary: "List the tasks of an operation"},
		func(_ context.Context, c *call, v View, in *struct {
			ByOperation
			Status string `query:"status" enum:"blocked,ready,leased,running,succeeded,failed,cancelled,uncertain" doc:"Only tasks of this status"`
			Offset int    `query:"offset" minimum:"0" doc:"Number of results to skip"`
			Limit  int    `query:"limit" minimum:"1" maximum:"10000" doc:"Maximum number of results; 1000 if absent"`
		}) ([]model.Task, int, error) {
			op, err := c.operation(v, in.ID)
			if err != nil {
				return nil, 0, err
			}
			limit := in.Limit
			if limit == 0 {
				limit = defaultPage
			}
			tasks, total := v.Tasks(c.who.Tenant, op.ID, in.Status, in.Offset, limit)
			return tasks, total, nil
		})
	for _, order := range []struct{ word, summary string }{
		{"pause", "Pause an operation: no further tasks start"},
		{"resume", "Resume a paused operation"},
		{"abort", "Abort an operation: no further tasks start"},
		{"rollback", "Abort an operation and return the cluster to its previous state"},
	} {
		write(s, route{id: order.word + "Operation", method: http.MethodPost, path: one + "/" + order.word, tag: tag, rule: writes, optional: true, summary: order.summary},
			func(ctx context.Context, c *call, in *struct {
				ByOperation
				Body raw[api.OrderBody]
			}) (api.OperationDetails, api.Written, error) {
				body, err := in.Body.value()
				if err != nil {
					return api.OperationDetails{}, api.Written{}, err
				}
				v, err := s.now(ctx)
				if err != nil {
					return api.OperationDetails{}, api.Written{}, err
				}
				if _, err := c.operation(v, in.ID); err != nil {
					return api.OperationDetails{}, api.Written{}, err
				}
				w, err := s.Operations.Order(ctx, c.who, in.ID, order.word, body.Reason)
				if err != nil {
					return api.OperationDetails{}, w, err
				}
				if v, err = s.now(ctx); err != nil {
					return api.OperationDetails{}, w, err
				}
				op, err := c.operation(v, in.ID)
				if err != nil {
					return api.OperationDetails{}, w, err
				}
				return details(v, c.who.Tenant, op), w, nil
			})
	}
}

func details(v View, tenant string, op *model.Operation) api.OperationDetails {
	p := v.Progress(tenant, op.ID)
	if p.Counts == nil {
		p.Counts = map[string]int{}
	}
	return api.OperationDetails{Operation: *op, Progress: p}
}

// page returns a part of a list; a limit of 0 means the default.
func page[T any](all []T, offset, limit int) []T {
	if limit == 0 {
		limit = defaultPage
	}
	limit = min(limit, maxPage)
	if offset >= len(all) {
		return nil
	}
	return all[offset:min(len(all), offset+limit)]
}
