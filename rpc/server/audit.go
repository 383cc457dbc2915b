package server

import (
	"context"
	"net/http"
	"strings"

	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
)

// AuditFilter says which records are wanted.
type AuditFilter struct {
	Cluster   string `query:"cluster" doc:"Only of this cluster, by id or name"`
	Operation string `query:"operation" doc:"Only of this operation and its tasks"`
	Node      string `query:"node" doc:"Only of this node's tasks, by the node's id"`
	Actor     string `query:"actor" doc:"Only what this actor did; coopr: what the mesh did by itself"`
	Type      string `query:"type" doc:"Only these types, separated by commas; task.* means all of tasks"`
	Since     int64  `query:"since" minimum:"0" doc:"Only records from this time on, Unix milliseconds"`
	Until     int64  `query:"until" minimum:"0" doc:"Only records up to this time, Unix milliseconds"`
}

// filter gives the log's own filter. A cluster may be gone from the state and
// still be in the log: then it is known by its id alone.
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
	read(s, route{id: "listAudit", path: path, tag: tag, rule: reads, summary: "What was changed, when, by whom: the newest first",
		description: "Superadmins may ask for tenant=* to see every tenant's records and those of the mesh itself."},
		func(_ context.Context, c *call, v View, in *struct {
			AuditFilter
			Order string `query:"order" enum:"newest,oldest" doc:"Which come first; the newest unless told"`
			From  string `query:"from" doc:"Go on behind this place: next of an earlier answer, or a record's number"`
			Limit int    `query:"limit" minimum:"1" maximum:"10000" doc:"At most so many; 1000 unless told"`
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
	read(s, route{id: "verifyAudit", path: path + "/verify", tag: tag, rule: reads, summary: "Compute the audit log's chain of hashes again and compare",
		description: "The whole log is looked at, whosever the records. With consistency=stale a voter looks at its own copy."},
		func(_ context.Context, _ *call, v View, _ *none) (audit.Verification, error) {
			return v.Audit().Verify(), nil
		})
	stream(s, route{id: "exportAudit", method: http.MethodGet, path: path + "/export", tag: tag, rule: reads, bare: true, summary: "The audit log as lines of JSON, the oldest first",
		description: "The first line tells where the chain begins and ends; each line after it is a record. Without a filter the lines can be verified by themselves (coopr audit verify FILE): records of other tenants stand there as digests."},
		"application/x-ndjson", "Lines of JSON",
		func(ctx context.Context, c *call, in *struct {
			AuditFilter
			After uint64 `query:"after" doc:"Only records behind the one with this number, such as the last one of an earlier export"`
		}, w http.ResponseWriter, _ *http.Request) error {
			v, err := s.view(ctx, c)
			if err != nil {
				return err
			}
			return v.Audit().Export(w, in.filter(c, v), in.After)
		})
}
