package state

import (
	"errors"
	"fmt"

	"github.com/hashicorp/go-memdb"

	"github.com/coopr/coopr/consensus/state/auditor"
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/consensus/state/view"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/engine/problem"
)

// writer writes the changes of one batch of entries. Each kind of change has a type of its own,
// which adds its rules to the writer: see the methods below.
type writer struct {
	txn   *memdb.Txn
	index uint64
	now   int64
	// bounds is the version of the default limits of tenants that the entry has; see Bounds.
	bounds uint32
	counts *table.Page
	edits  map[string]*plan.Edit // open edits of plans, by operation
	trees  map[string]*tree.Tree // the trees of these plans
	groups []group
	batch  Batch
	audit  *auditor.Auditor
	// changed are the clusters whose nodes changed, gone those whose rows were removed.
	changed, gone []string
	counted       []clusterName // whose share of the census may have changed
}

func (w *writer) tenants() tenants       { return tenants{w} }
func (w *writer) users() users           { return users{w} }
func (w *writer) identities() identities { return identities{w} }
func (w *writer) operations() operations { return operations{w} }
func (w *writer) queue() queue           { return queue{w} }
func (w *writer) plans() plans           { return plans{w} }
func (w *writer) tasks() tasks           { return tasks{w} }
func (w *writer) endings() endings       { return endings{w} }
func (w *writer) agents() agents         { return agents{w} }
func (w *writer) health() health         { return health{w} }
func (w *writer) runs() runs             { return runs{w} }
func (w *writer) settings() runSettings  { return runSettings{w} }
func (w *writer) sites() sites           { return sites{w} }
func (w *writer) sealed() sealed         { return sealed{w} }
func (w *writer) resources() resources   { return resources{w} }

// put inserts a row. Every row has the keys of its table, so an error is a bug. The machine panics
// then, because the states of the voters would diverge if it went on.
func (w *writer) put(table string, row any) {
	w.audit.Put(row)
	n, isNode := row.(*model.Node)
	if !isNode { // who writes new nodes counts them
		w.counts.Put(w.txn, table, row)
	}
	if err := w.txn.Insert(table, row); err != nil {
		panic(fmt.Sprintf("state: insert into %s: %v", table, err))
	}
	if isNode {
		w.changed = append(w.changed, n.Cluster)
	}
	w.count(row)
}

// count notes the cluster of a row that the census counts.
func (w *writer) count(row any) {
	switch r := row.(type) {
	case *model.Cluster:
		w.counted = append(w.counted, clusterName{r.Tenant, r.ID})
	case *model.NodeHealth:
		w.counted = append(w.counted, clusterName{r.Tenant, r.Cluster})
	}
}

func (w *writer) remove(table string, row any) {
	w.audit.Remove(row)
	w.drop(table, row)
}

// removeAll removes the rows of a tenant from tables with an index that begins with the tenant.
func (w *writer) removeAll(tenant, index string, tables ...string) {
	for _, t := range tables {
		it, err := w.txn.Get(t, index, tenant)
		if err != nil {
			panic(err) // a wrong name, which tests reveal
		}
		var rows []any
		for raw := it.Next(); raw != nil; raw = it.Next() {
			rows = append(rows, raw)
		}
		for _, r := range rows {
			w.remove(t, r)
		}
	}
}

// drop removes a row without a record of its own in the audit log.
func (w *writer) drop(table string, row any) {
	w.counts.Remove(w.txn, table, row)
	w.count(row)
	if err := w.txn.Delete(table, row); err != nil && !errors.Is(err, memdb.ErrNotFound) {
		panic(fmt.Sprintf("state: delete from %s: %v", table, err))
	}
}

// edit returns the edit of an operation's plan, or nil if there is no plan. The edit stays open
// until the batch ends.
func (w *writer) edit(operation string) *plan.Edit {
	if e, ok := w.edits[operation]; ok {
		return e
	}
	row := table.Get[table.PlanRow](w.txn, table.Plans, "id", operation)
	if row == nil {
		return nil
	}
	e := row.State.Edit()
	w.audit.Watch(row, e)
	w.edits[operation], w.trees[operation] = e, row.Tree
	return e
}

// flush writes the plans that were edited.
func (w *writer) flush() {
	for op, e := range w.edits {
		w.batch.Operations[op] = e.Ready()
		if revoked := e.Revoked(); len(revoked) > 0 {
			if w.batch.Revoked == nil {
				w.batch.Revoked = map[string][]plan.Revoked{}
			}
			w.batch.Revoked[op] = revoked
		}
		w.put(table.Plans, &table.PlanRow{Operation: op, State: e.Done(), Tree: w.trees[op], Audit: w.audit.PlanNames(op)})
	}
	clear(w.edits)
	clear(w.trees)
}

// touch adds an operation to the batch when its record changed and its plan did not.
func (w *writer) touch(operation string) {
	if _, ok := w.batch.Operations[operation]; !ok {
		w.batch.Operations[operation] = nil
	}
}

func (w *writer) event(e model.Event) {
	e.Index, e.Time = w.index, w.now
	w.groups = append(w.groups, group{event: e})
}

// view returns the state as the batch has left it so far, but for plans: those are as they were before the batch, since
// their edits are written at its end. A rule that asks its view about a plan has another result after a restart, when
// batches are larger: it has to take the plan from w.plan.
func (w *writer) view() *view.View { return view.Of(w.txn, w.index) }

// tenant checks that a command's tenant exists. Writes of the mesh itself have no tenant.
func (w *writer) tenant(name string) error {
	if table.Get[model.Tenant](w.txn, table.Tenants, "id", name) == nil {
		return problem.New(problem.NotFound, "there is no tenant %q", name)
	}
	return nil
}

func (w *writer) operationEvent(op *model.Operation) {
	w.batch.Tally.operation(op, w.now)
	w.event(model.Event{Type: "operation.changed", Tenant: op.Tenant, Cluster: op.Cluster, Operation: op.ID, Subject: string(op.Type),
		Status: string(op.Status), Actor: op.Actor, Message: op.Message})
}

// taskEvent adds an event about the present status of one task.
func (w *writer) taskEvent(op *model.Operation, e *plan.Edit, v uint32) {
	s := e.State()
	ev := model.Event{Index: w.index, Time: w.now}
	describe(&ev, op, s.Graph, v, s.Status(v).String())
	if n := e.Note(v); n != nil && len(n.History) > 0 {
		last := n.History[len(n.History)-1]
		ev.Message = last.Outcome + ": " + last.Message
	}
	w.groups = append(w.groups, group{event: ev})
}

// taskEvents adds one group for many tasks that reached the same status. The group becomes an
// event for each task only when a reader needs them.
func (w *writer) taskEvents(op *model.Operation, e *plan.Edit, tasks []uint32, status model.TaskStatus) {
	if len(tasks) == 0 {
		return
	}
	w.groups = append(w.groups, group{
		event: model.Event{Index: w.index, Time: w.now, Tenant: op.Tenant, Status: status.String()},
		op:    op, graph: e.State().Graph, tasks: tasks,
	})
}

// plan returns the current state of an operation's plan, or nil.
func (w *writer) plan(operation string) *plan.State {
	if e, ok := w.edits[operation]; ok {
		return e.State()
	}
	if row := table.Get[table.PlanRow](w.txn, table.Plans, "id", operation); row != nil {
		return row.State
	}
	return nil
}
