package view

import (
	"slices"
	"testing"

	"github.com/coopr/coopr/engine/model"
)

// TestDeployLeadsToTheTarget checks which operation's plan is shown as deploy after rollbacks.
func TestDeployLeadsToTheTarget(t *testing.T) {
	create := &model.Operation{ID: "1", Type: model.OpCreate, Status: model.OpSucceeded}
	upgrade := &model.Operation{ID: "2", Type: model.OpUpgrade, Status: model.OpRolledBack, Before: 2}
	undo := func(id string, before int, status model.OperationStatus) *model.Operation {
		return &model.Operation{ID: id, Type: model.OpRollback, Status: status, Before: before, To: 2, Follows: "2"}
	}
	done := undo("3", 3, model.OpSucceeded)
	later := &model.Operation{ID: "4", Type: model.OpConfigure, Status: model.OpRunning, Before: 4}
	for _, r := range []struct {
		name string
		ops  []*model.Operation // the newest first
		want []string
	}{
		{"new", []*model.Operation{create}, []string{"deploy 1"}},
		{"failed", []*model.Operation{upgrade, create}, []string{"deploy 2"}},
		{"on the way back", []*model.Operation{undo("3", 3, model.OpRunning), upgrade, create}, []string{"deploy 3", "rollback:2 3"}},
		{"stuck on the way back", []*model.Operation{undo("3", 3, model.OpFailed), upgrade, create}, []string{"deploy 3", "rollback:2 3"}},
		{"back", []*model.Operation{done, upgrade, create}, []string{"deploy 1", "rollback:2 3"}},
		{"back at the second try", []*model.Operation{undo("4", 4, model.OpSucceeded), undo("3", 3, model.OpFailed), upgrade, create},
			[]string{"deploy 1", "rollback:2 4"}},
		{"back long ago", []*model.Operation{done, upgrade}, []string{"deploy 3", "rollback:2 3"}},
		{"on", []*model.Operation{later, done, upgrade, create}, []string{"deploy 4"}},
	} {
		var got []string
		for _, p := range plansOf(r.ops, func(*model.Operation) bool { return false }) {
			got = append(got, p.Name+" "+p.Operation.ID)
		}
		if !slices.Equal(got, r.want) {
			t.Errorf("%s: %q, not %q", r.name, got, r.want)
		}
	}
}
