package table

import (
	"github.com/hashicorp/go-memdb"

	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
)

// Trail returns the audit log. It is empty before the first record.
func Trail(txn *memdb.Txn) *audit.Trail {
	if row := Get[AuditRow](txn, Audit, "id", Audit); row != nil {
		return row.Trail
	}
	return &audit.Trail{}
}

// pieces calls message with each piece of the log. A snapshot holds the log as several records,
// because it may be too large for one.
func (r *AuditRow) pieces(message func(body []byte)) {
	_ = r.Trail.Encode(func(piece []byte) error {
		message(piece)
		return nil
	})
}

// unlinked returns a placeholder for a plan's names in the audit log, which finish replaces.
func unlinked(id string) *audit.Plan {
	if id == "" {
		return nil
	}
	return &audit.Plan{ID: id}
}

// auditReader reads the audit log of a snapshot, which may have none.
type auditReader struct {
	audit.Decoder
	begun bool
}

func (r *auditReader) piece(body []byte) error {
	r.begun = true
	return r.Add(body)
}

// finish inserts the row of the audit log, if the snapshot has one. It then makes each plan and the
// log share one set of names, which are those of the plan's graph.
func (r *auditReader) finish(txn *memdb.Txn) error {
	if r.begun {
		trail, err := r.Done()
		if err != nil {
			return err
		}
		if err := txn.Insert(Audit, &AuditRow{ID: Audit, Trail: trail}); err != nil {
			return err
		}
	}
	for _, row := range List[PlanRow](txn, Plans, "id") {
		op := Get[model.Operation](txn, Operations, "id", row.Operation)
		if row.Audit == nil || op == nil {
			continue
		}
		names := PlanNames(row.Audit.ID, op, row.State.Graph)
		if have, ok := r.Plan(row.Audit.ID); ok && len(have.Action) == len(names.Action) {
			*have = *names
			names = have
		}
		if err := txn.Insert(Plans, &PlanRow{Operation: row.Operation, State: row.State, Tree: row.Tree, Audit: names}); err != nil {
			return err
		}
	}
	return nil
}

// PlanNames returns the names of a plan's tasks for the audit log. It shares the graph's slices.
func PlanNames(id string, op *model.Operation, g *plan.Graph) *audit.Plan {
	return &audit.Plan{
		ID: id, Operation: op.ID, Tenant: op.Tenant, Cluster: op.Cluster,
		Nodes: g.Nodes, Services: g.Services, Node: g.Node, Service: g.Service, Action: g.Action,
	}
}
