package server

import (
	"context"
	"net/http"
	"strings"

	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
)

// AuditFilter selects records.
type AuditFilter struct {
	Cluster   string `query:"cluster" doc:"Only of this cluster, by id or name"`
	Operation string `query:"operation" doc:"Only of this operation and its tasks"`
	Node      string `query:"node" doc:"Only of this node's tasks, by the node's id"`
	Actor     string `query:"actor" doc:"Only changes by this actor; coopr: the mesh itself"`
	Type      string `query:"type" doc:"Only these types, separated by commas; task.* means all types of tasks"`
	Since     int64  `query:"since" minimum:"0" doc:"Only records since this time, Unix milliseconds"`
	Until     int64  `query:"until" minimum:"0" doc:"Only records until this time, Unix milliseconds"`
}

// filter returns the filter of the audit log. The log may have records of a cluster that is gone
// from the state. Such a cluster can be named by its id only.
func (f *AuditFilter) filter(c *call, v View) audit.Filter {
	out := audit.Filter{Tenant: c.who.Tenant, Cluster: f.Cluster, Operation: f.Operation, Node: f.Node, Actor: f.Actor, Since: f.Since, Until: f.Until}
	if out.Tenant == api.AllTenants {
		out.Tenant = ""
	} else if cl, ok := v.Cluster(out.Tenant, f.Cluster); ok && f.Cluster != "" {
		out.Cluster = cl.ID
	}
	if f.Type != "" {
		out.Types = strings.Split(f.Type, ",")
	}
	return out
}

func (s *server) auditRoutes() {
	const tag, path = "audit", "/v1/audit"
	reads := rule{need: model.RoleAdmin, allTenants: true}
	read(s, route{id: "listAudit", path: path, tag: tag, rule: reads, summary: "What was changed, when and by whom, the newest first",
		description: "Superadmins may use tenant=* to see the records of every tenant and those of the mesh itself."},
		func(_ context.Context, c *call, v View, in *struct {
			AuditFilter
			Order string `query:"order" enum:"newest,oldest" doc:"Which records come first; the newest if absent"`
			From  string `query:"from" doc:"Continue after this place: next of an earlier answer, or the number of a record"`
			Limit int    `query:"limit" minimum:"1" maximum:"10000" doc:"Maximum number of records; 1000 if absent"`
		}) (api.AuditPage, error) {
			from, err := audit.ParseCursor(in.From)
			if err != nil {
				return api.AuditPage{}, invalid(model.Faults{{Path: "query.from", Message: err.Error()}})
			}
			limit := in.Limit
			if limit == 0 {
				limit = defaultPage
			}
			out := api.AuditPage{Records: []audit.Record{}}
			f := in.filter(c, v)
			err = v.Audit().Each(&f, in.Order != "oldest", from, func(r audit.Record) bool {
				if len(out.Records) == limit {
					out.Next = audit.CursorOf(&out.Records[limit-1]).String()
					return false
				}
				out.Records = append(out.Records, r)
				return true
			})
			return out, err
		})
	read(s, route{id: "verifyAudit", path: path + "/verify", tag: tag, rule: reads, summary: "Verify the audit log's chain of hashes",
		description: "Verifies the whole log, of all tenants. With consistency=stale a voter verifies its own copy."},
		func(_ context.Context, _ *call, v View, _ *none) (audit.Verification, error) {
			return v.Audit().Verify(), nil
		})
	stream(s, route{id: "exportAudit", method: http.MethodGet, path: path + "/export", tag: tag, rule: reads, bare: true, summary: "Export the audit log as lines of JSON, the oldest record first",
		description: "The first line has the ends of the chain; every other line is a record. An export without a filter can be verified by itself (coopr audit verify FILE); it has digests in place of the records of other tenants."},
		"application/x-ndjson", "Lines of JSON",
		func(ctx context.Context, c *call, in *struct {
			AuditFilter
			After uint64 `query:"after" doc:"Only records after the one with this number, such as the last one of an earlier export"`
		}, w http.ResponseWriter, _ *http.Request) error {
			v, err := s.view(ctx, c)
			if err != nil {
				return err
			}
			return v.Audit().Export(w, in.filter(c, v), in.After)
		})
}
