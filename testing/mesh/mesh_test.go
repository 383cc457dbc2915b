package mesh_test

import (
	"testing"
	"testing/synctest"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/testing/mesh"
)

func TestCreateAndDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mesh.New(t, mesh.Options{Agents: 3, Seed: 1, Verbose: testing.Verbose()})
		m.Define()
		cluster, op := m.Create("one", 4, "")
		if st := m.AwaitEnd(op); st != model.OpSucceeded {
			t.Fatalf("the create ended %s", st)
		}
		m.CheckAll()
		op = m.Delete(cluster)
		if st := m.AwaitEnd(op); st != model.OpSucceeded {
			t.Fatalf("the delete ended %s", st)
		}
		m.CheckAll()
		if n := m.World.Machines(); n != 0 {
			t.Errorf("%d machines are left", n)
		}
	})
}
