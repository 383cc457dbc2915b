package e2e

import (
	"testing"

	"github.com/coopr/coopr/engine/model"
)

// nodes is the size of the clusters that faults happen to.
const nodes = 30

// ledgerMesh is a mesh whose agents have the provider "ledger".
func ledgerMesh(t *testing.T, flags ...string) *mesh {
	t.Helper()
	return startMesh(t, append([]string{"--plugin-dir", testdata(t, "ledger/plugins")}, flags...)...)
}

// survives checks the end of a cluster's creation that something happened to,
// takes the cluster away and stops the mesh: nothing is left.
func (m *mesh) survives(op model.Operation) {
	m.t.Helper()
	m.succeeds(op.ID)
	m.audit(op.ID, nodes)
	m.remove(op.Cluster)
	m.stop()
}

// TestNoFault is how it goes when nothing happens.
func TestNoFault(t *testing.T) {
	m := ledgerMesh(t)
	op := m.create("c", nodes)
	m.survives(op)
}

// TestKillLeader: kill -9 of the leader in the middle of the work.
func TestKillLeader(t *testing.T) {
	m := ledgerMesh(t)
	op := m.create("c", nodes)
	m.half(op.ID, .3)
	leader := m.leader()
	leader.kill()
	m.succeeds(op.ID)
	leader.start()
	m.survives(op)
}
