package mesh_test

import (
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/testing/mesh"
)

// Everything that an agent starts ends with it: synctest waits for all goroutines of a bubble, and
// goleak checks those outside.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
