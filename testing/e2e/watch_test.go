package e2e

import (
	"fmt"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"
)

// create starts a cluster of the template "ledger" and returns its operation.
func (m *mesh) create(name string, nodes int) model.Operation {
	m.t.Helper()
	m.must("import", testdata(m.t, "ledger/definitions"))
	return m.begin(model.CreateCluster{Name: name, ClusterTemplate: "ledger", NumMachines: model.Int(nodes)})
}

// begin starts a cluster.
func (m *mesh) begin(req model.CreateCluster) model.Operation {
	m.t.Helper()
	st, _, err := m.api().CreateCluster(m.context(), req, false)
	if err != nil {
		m.t.Fatalf("create cluster %s: %v", req.Name, err)
	}
	return *st.Operation
}

// until reads ever newer versions of an operation until ok returns true.
func (m *mesh) until(op, what string, ok func(api.OperationDetails) bool, ask ...*agent) api.OperationDetails {
	m.t.Helper()
	ctx := m.context()
	read := client.Read{Wait: 5 * time.Second}
	for {
		d, meta, err := m.api(ask...).Operation(ctx, op, read)
		if err != nil {
			m.t.Fatalf("waited for operation %s to be %s: %v", op, what, err)
		}
		if ok(d) {
			return d
		}
		if d.Status.Ended() {
			m.t.Fatalf("operation %s is %s (%s) before it was %s", op, d.Status, d.Message, what)
		}
		if ctx.Err() != nil {
			m.t.Fatalf("operation %s is %s (%s, %v) and was never %s", op, d.Status, d.Message, d.Progress, what)
		}
		read.After = meta.Index
	}
}

// half waits until a share of an operation's tasks is done.
func (m *mesh) half(op string, share float64) {
	m.t.Helper()
	m.until(op, fmt.Sprintf("done to %g", share), func(d api.OperationDetails) bool {
		return d.Progress.Total > 0 && float64(d.Progress.Done) >= share*float64(d.Progress.Total)
	})
}

// succeeds waits until an operation succeeds.
func (m *mesh) succeeds(op string, ask ...*agent) api.OperationDetails {
	m.t.Helper()
	return m.ends(op, model.OpSucceeded, ask...)
}

func (m *mesh) ends(op string, how model.OperationStatus, ask ...*agent) api.OperationDetails {
	m.t.Helper()
	return m.until(op, string(how), func(d api.OperationDetails) bool { return d.Status == how }, ask...)
}

// tasks returns all tasks of an operation.
func (m *mesh) tasks(op string) []model.Task {
	m.t.Helper()
	list, _, err := m.api().Tasks(m.context(), op, "", client.Page{Limit: 10000}, client.Read{})
	if err != nil {
		m.t.Fatalf("tasks of operation %s: %v", op, err)
	}
	return list
}

// remove deletes a cluster and waits for the end.
func (m *mesh) remove(cluster string) {
	m.t.Helper()
	st, _, err := m.api().Operate(m.context(), cluster, api.Operate{Type: model.OpDelete})
	if err != nil {
		m.t.Fatalf("delete cluster %s: %v", cluster, err)
	}
	m.succeeds(st.Operation.ID)
	nodes, _, err := m.api().Nodes(m.context(), st.Operation.Cluster, client.Page{}, client.Read{})
	if err != nil || len(nodes) > 0 {
		m.t.Errorf("records of nodes are left: %v, %v", nodes, err)
	}
}
