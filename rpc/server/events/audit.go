package events

import (
	"context"
	"net/http"
	"strings"

	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/signing"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/listing"
	"github.com/coopr/coopr/rpc/server/rest"
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
func (f *AuditFilter) filter(c *rest.Call, v rest.View) audit.Filter {
	out := audit.Filter{
		Tenant:    c.Who.Tenant,
		Cluster:   f.Cluster,
		Operation: f.Operation,
		Node:      f.Node,
		Actor:     f.Actor,
		Since:     f.Since,
		Until:     f.Until,
	}
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

func auditRoutes(s *rest.Server) {
	const tag, path = "audit", "/v1/audit"
	reads := rest.Rule{AllTenants: true}
	rest.Read(
		s,
		rest.Route{ID: "listAudit", Path: path, Tag: tag, Rule: reads, Summary: "What was changed, when and by whom, the newest first",
			Description: "Superadmins may use tenant=* to see the records of every tenant and those of the mesh itself."},
		func(_ context.Context, c *rest.Call, v rest.View, in *struct {
			AuditFilter
			Order string `query:"order" enum:"newest,oldest" doc:"Which records come first; the newest if absent"`
			From  string `query:"from" doc:"Continue after this place: next of an earlier answer, or the number of a record"`
			Limit int    `query:"limit" minimum:"1" maximum:"10000" doc:"Maximum number of records; 1000 if absent"`
		}) (api.AuditPage, error) {
			from, err := audit.ParseCursor(in.From)
			if err != nil {
				return api.AuditPage{}, rest.Invalid(model.Faults{{Path: "query.from", Message: err.Error()}})
			}
			limit := in.Limit
			if limit == 0 {
				limit = listing.DefaultPage
			}
			out := api.AuditPage{Records: []audit.Record{}}
			f := in.filter(c, v)
			err = v.Audit().Each(&f, in.Order != "oldest", from, func(r audit.Record) bool {
				if len(out.Records) == limit {
					out.Next = audit.CursorOf(&out.Records[limit-1]).String()
					return false
				}
				r.ClusterName = v.ClusterName(r.Tenant, r.Cluster)
				out.Records = append(out.Records, r)
				return true
			})
			return out, err
		},
	)
	rest.AskList(
		s,
		rest.Route{ID: "listAuditSinks", Order: "name", Path: path + "/sinks", Tag: tag, Summary: "List the sinks of the audit log",
			Description: "The leader sends every record to each sink, in order, at least once (audit.sinks of the agents' configuration)."},
		func(ctx context.Context, _ *rest.Call, _ *rest.None) ([]model.AuditSink, error) {
			list, err := s.Mesh.AuditSinks(ctx)
			return append([]model.AuditSink{}, list...), err
		},
	)
	rest.Read(
		s,
		rest.Route{ID: "verifyAudit", Path: path + "/verify", Tag: tag, Rule: reads,
			Summary:     "Verify the audit log's chain of hashes and its signed heads",
			Description: "Verifies the whole log, of all tenants. With consistency=stale a voter verifies its own copy."},
		func(_ context.Context, _ *rest.Call, v rest.View, _ *rest.None) (audit.Verification, error) {
			return v.Audit().Verify(v.SigningKeys()), nil
		},
	)
	rest.Read(
		s,
		rest.Route{ID: "listSigningKeys", Path: path + "/keys", Tag: tag, Rule: reads, Summary: "List the public keys with which the mesh signs",
			Description: "With them, heads of an exported audit log and snapshots are verified. Each key but the first is signed by the one " +
				"before it."},
		func(_ context.Context, _ *rest.Call, v rest.View, _ *rest.None) (signing.Chain, error) {
			return append(signing.Chain{}, v.SigningKeys()...), nil
		},
	)
	rest.Stream(
		s,
		rest.Route{
			ID:      "exportAudit",
			Method:  http.MethodGet,
			Path:    path + "/export",
			Tag:     tag,
			Rule:    reads,
			Bare:    true,
			Summary: "Export the audit log as lines of JSON, the oldest record first",
			Description: "The first line has the ends of the chain; every other line is a record. " +
				"An export without a filter can be verified by itself (coopr audit verify FILE); " +
				"it has digests in place of the records of other tenants.",
		},
		"application/x-ndjson",
		"Lines of JSON",
		func(ctx context.Context, c *rest.Call, in *struct {
			AuditFilter
			After uint64 `query:"after" doc:"Only records after the one with this number, such as the last one of an earlier export"`
		}, w http.ResponseWriter, _ *http.Request) error {
			v, err := s.View(ctx, c)
			if err != nil {
				return err
			}
			return v.Audit().Export(w, in.filter(c, v), in.After)
		},
	)
}
