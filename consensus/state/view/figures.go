package view

import (
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan/tree"
)

// Figures count the operations that have not ended, over all tenants.
type Figures struct {
	Operations map[OperationKey]int
	Tasks      [model.TaskStatuses]int
	Waiting    int // plans that wait for a person
}

// OperationKey groups operations.
type OperationKey struct {
	Type   model.OperationType
	Status model.OperationStatus
}

// Figures counts the operations that have not ended. now is in Unix milliseconds.
func (v *View) Figures(now int64) Figures {
	out := Figures{Operations: map[OperationKey]int{}}
	table.Each(v.txn, table.Operations, "active", func(op *model.Operation) bool {
		out.Operations[OperationKey{op.Type, op.Status}]++
		s, ok := v.Plan(op.ID)
		if !ok {
			return true
		}
		for status := range out.Tasks {
			out.Tasks[status] += s.Count(model.TaskStatus(status))
		}
		waits := op.Status == model.OpPaused
		if op.Status == model.OpRunning && s.Gated() { // only gates make a plan that runs wait
			t, ok := v.PlanTree(op.Tenant, op.ID, now)
			waits = ok && t.Status() == tree.Waiting
		}
		if waits {
			out.Waiting++
		}
		return true
	}, "active")
	return out
}
