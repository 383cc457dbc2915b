package sinks

import (
	"testing"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/engine/model"
)

// A number with many changes of tasks is delivered in parts, and counts once all of them were delivered.
func TestParts(t *testing.T) {
	const tasks = 2500
	plan := &audit.Plan{ID: "p", Operation: "00000001-001", Tenant: "t", Cluster: "00000001", Nodes: []string{"00000001-1000"}}
	batch := &audit.Tasks{Plan: plan, Index: 2}
	for i := range tasks {
		plan.Node, plan.Service, plan.Action = append(plan.Node, 0), append(plan.Service, -1), append(plan.Action, model.Create)
		batch.Items = append(batch.Items, audit.TaskChange{Vertex: uint32(i), To: model.TaskReady})
	}
	w := (&audit.Trail{}).Write()
	w.Change(&audit.Change{Type: "a"})
	w.Tasks(batch)
	w.Change(&audit.Change{Type: "b"})
	m, err := state.New(state.Config{})
	if err != nil {
		t.Fatal(err)
	}
	trail, p := w.Done(), &progress{}
	var numbers []uint64
	got := 0
	for {
		_, next, _, err := take(m.View(), trail, p.at, &p.target)
		if err != nil {
			t.Fatal(err)
		}
		if len(next) == 0 {
			break
		}
		got += len(next)
		p.took(next)
		numbers = append(numbers, p.number())
	}
	if got != tasks+2 || len(numbers) != 3 || numbers[0] != 1 || numbers[1] != 1 || numbers[2] != 3 || p.lost != 0 {
		t.Errorf("%d records, after each delivery up to %v; lost %d", got, numbers, p.lost)
	}
}
