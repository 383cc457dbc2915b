package state

import (
	"github.com/hashicorp/go-memdb"

	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
)

// Audit gives the audit log.
func (v *View) Audit() *audit.Trail { return trailOf(v.txn) }

func trailOf(txn *memdb.Txn) *audit.Trail {
	if row := get[auditRow](txn, tAudit, "id", tAudit); row != nil {
		return row.Trail
	}
	return &audit.Trail{}
}

// pieces gives the log as it stands in a snapshot: several records, for it may
// be too large for one.
func (r *auditRow) pieces(message func(body []byte)) {
	_ = r.Trail.Encode(func(piece []byte) error {
		message(piece)
		return nil
	})
}

// unlinked stands in a plan's row for its names in the audit log, until link.
func unlinked(id string) *audit.Plan {
	if id == "" {
		return nil
	}
	return &audit.Plan{ID: id}
}

// auditReader takes the log out of a snapshot. Older ones have none.
type auditReader struct {
	audit.Decoder
	begun bool
}

func (r *auditReader) piece(body []byte) error {
	r.begun = true
	return r.Add(body)
}

// finish writes the row, and ties the plans to the log again: names that the
// log has and those of the graph are the same, and kept once.
func (r *auditReader) finish(txn *memdb.Txn) error {
	if r.begun {
		trail, err := r.Done()
		if err != nil {
			return err
		}
		if err := txn.Insert(tAudit, &auditRow{ID: tAudit, Trail: trail}); err != nil {
			return err
		}
	}
	for _, row := range list[planRow](txn, tPlans, "id") {
		op := get[model.Operation](txn, tOperations, "id", row.Operation)
		if row.Audit == nil || op == nil {
			continue
		}
		names := namesOf(row.Audit.ID, op, row.State.Graph)
		if have, ok := r.Plan(row.Audit.ID); ok && len(have.Action) == len(names.Action) {
			*have = *names
			names = have
		}
		if err := txn.Insert(tPlans, &planRow{Operation: row.Operation, State: row.State, Tree: row.Tree, Audit: names}); err != nil {
			return err
		}
	}
	return nil
}

// namesOf gives the names of a plan's tasks; the slices are the graph's.
func namesOf(id string, op *model.Operation, g *plan.Graph) *audit.Plan {
	return &audit.Plan{ID: id, Operation: op.ID, Tenant: op.Tenant, Cluster: op.Cluster, Nodes: g.Nodes, Services: g.Services, Node: g.Node,
		Service: g.Service, Action: g.Action}
}
