package mesh

import (
	"cmp"
	"strings"

	"github.com/coopr/coopr/engine/model"
)

// DefineWatched is Define with services that can be checked.
func (m *Mesh) DefineWatched() {
	m.T.Helper()
	m.AwaitLeader()
	m.Must("POST", "/v1/import", strings.ReplaceAll(definitions, `"start": {"type": "sim"}`,
		`"check": {"type": "sim"}, "start": {"type": "sim"}`), nil)
}

// Nodes returns a cluster's nodes, from any agent that answers.
func (m *Mesh) Nodes(cluster string) []model.Node {
	m.T.Helper()
	var d struct{ Nodes []model.Node }
	m.Must("GET", "/v1/clusters/"+cluster, nil, &d)
	return d.Nodes
}

// Operations returns a cluster's operations.
func (m *Mesh) Operations(cluster string) (ops []model.Operation) {
	m.T.Helper()
	m.Must("GET", "/v1/operations?cluster="+cluster, nil, &ops)
	return ops
}

// Index returns the last index of the log that any agent has applied.
func (m *Mesh) Index() (index uint64) {
	for _, a := range m.Up() {
		if r := a.agent.Replica(); r != nil {
			index = max(index, r.Machine.View().Index())
		}
	}
	return index
}

// Well describes what is wrong with a cluster, or returns "": services that do not run, nodes that
// are not known to be healthy, operations in progress.
func (m *Mesh) Well(cluster string) string {
	m.T.Helper()
	for _, n := range m.Nodes(cluster) {
		for _, s := range n.Services {
			if !m.World.Runs(n.ID, s) {
				return s + " does not run on " + n.ID
			}
		}
		if st := n.Health.Status(); st != string(model.Healthy) {
			return n.ID + " is " + cmp.Or(st, "unknown")
		}
	}
	for _, op := range m.Operations(cluster) {
		if !op.Status.Ended() {
			return op.ID + " is " + string(op.Status)
		}
	}
	return ""
}

// Checks counts the checks of machines and services so far.
func (w *World) Checks() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.checks
}

// DefineUnrecovered is like Mesh.DefineWatched, but leaves recovery to people.
func DefineUnrecovered(m *Mesh) {
	m.T.Helper()
	m.DefineWatched()
	var tpl map[string]any
	m.Must("GET", "/v1/clustertemplates/trio", nil, &tpl)
	tpl["recovery"] = map[string]any{"off": true}
	m.Must("PUT", "/v1/clustertemplates/trio", tpl, nil)
}

// Cluster returns a cluster.
func Cluster(m *Mesh, cluster string) (cl model.Cluster) {
	m.T.Helper()
	m.Must("GET", "/v1/clusters/"+cluster, nil, &cl)
	return cl
}

// Operate asks for an operation on a cluster and returns its id.
func Operate(m *Mesh, cluster string, op model.OperationType, body any) (operation string) {
	m.T.Helper()
	var s started
	m.Must("POST", "/v1/clusters/"+cluster+"/"+string(op), body, &s)
	return s.Operation.ID
}
