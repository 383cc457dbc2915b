// Package view reads the replicated state at one moment. Each noun has a small type of its own.
package view

import (
	"io"
	"slices"

	"github.com/hashicorp/go-memdb"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/engine/effect"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/roster"
)

// View is the state at one moment. Its rows are shared: callers must not change them.
type View struct {
	TenantView
	DefinitionView
	ClusterView
	OperationView
	PlanView
	AgentView
	RunView
	SiteView
	ResourceView
	UseView
	LimitView
	SealedView
	txn   *memdb.Txn
	index uint64
}

// Of returns the view of a transaction that is sure to hold the entries up to an index.
func Of(txn *memdb.Txn, index uint64) *View {
	return &View{
		TenantView: TenantView{txn}, DefinitionView: DefinitionView{txn}, ClusterView: ClusterView{txn}, OperationView: OperationView{txn},
		PlanView: PlanView{txn}, AgentView: AgentView{txn}, RunView: RunView{txn}, SiteView: SiteView{txn}, ResourceView: ResourceView{txn},
		UseView: UseView{txn}, LimitView: LimitView{txn: txn}, SealedView: SealedView{txn},
		txn: txn, index: index,
	}
}

// Index returns the index of the last entry that the view is sure to hold.
func (v *View) Index() uint64 { return v.index }

// FeatureLevel returns the feature level of the mesh.
func (v *View) FeatureLevel() uint32 { return table.Mesh(v.txn).FeatureLevel }

// Understands reports whether all voters understand entries of a feature level. A mesh of level 0 is new, and has no older agents.
func (v *View) Understands(level uint32) bool { return understands(v.txn, level) }

// NumbersStarts reports whether the number of a service's start is kept when its operation ends. Older voters would drop it.
func (v *View) NumbersStarts() bool { return understands(v.txn, logformat.OrdersLevel) }

func understands(txn *memdb.Txn, level uint32) bool {
	is := table.Mesh(txn).FeatureLevel
	return is == 0 || is >= level
}

// Hold returns why the mesh begins no work, or nil if it does.
func (v *View) Hold() *roster.Hold { return table.Mesh(v.txn).Hold }

// Differs reports whether an agent's copy of the state was not that of a majority of the voters when they were last compared.
func (v *View) Differs(agent string) bool {
	return slices.Contains(table.Mesh(v.txn).Differing, agent)
}

// Write writes a snapshot of the view.
func (v *View) Write(out io.Writer) error { return table.Write(v.txn, v.index, out) }

// Sums returns the digests of the view's state.
func (v *View) Sums() (table.Sums, error) { return table.Digest(v.txn) }

// Parts returns how many parts have arrived of each large command that is not complete, by id.
func (v *View) Parts() map[string]int {
	out := map[string]int{}
	table.Each(v.txn, table.Parts, "id", func(r *table.PartRow) bool { out[r.ID]++; return true })
	return out
}

// Rows returns how many rows each table has. It reads all of them.
func (v *View) Rows() map[string]int {
	out := map[string]int{}
	for name := range table.Schema().Tables {
		rows, err := v.txn.Get(name, "id")
		if err != nil {
			panic(err) // every table has this index
		}
		for out[name] = 0; rows.Next() != nil; {
			out[name]++
		}
	}
	return out
}

// Request finds the object that a request with the caller's request id made.
func (v *View) Request(who model.Caller) (subject string, ok bool) {
	r := v.request(who)
	if r == nil {
		return "", false
	}
	return r.Subject, true
}

// Answered returns the record of a request that was carried out with the caller's request id.
func (v *View) Answered(who model.Caller) (table.RequestRow, bool) {
	r := v.request(who)
	if r == nil {
		return table.RequestRow{}, false
	}
	out := *r
	out.Effect = v.Effect(r)
	return out, true
}

// request returns the record of the caller's request if it was carried out.
func (v *View) request(who model.Caller) *table.RequestRow {
	if who.Request == "" {
		return nil
	}
	r := table.Get[table.RequestRow](v.txn, table.Requests, "id", table.RequestKey(who.Tenant, who.Actor, who.Request))
	if r != nil && r.Refusal != "" {
		return nil
	}
	return r
}

// Effect returns what a request wrote, or nil if that is not remembered. The program of a run, which
// never changes, is read from the run, as long as that is kept.
func (v *View) Effect(r *table.RequestRow) *effect.Rows {
	if r.Effect == nil || r.Effect.Run == nil {
		return r.Effect
	}
	out, run := *r.Effect, *r.Effect.Run
	if have, ok := v.Run(run.Tenant, run.ID); ok {
		run.Program = have.Program
	}
	out.Run = &run
	return &out
}

// RequestsBefore returns the number of remembered request ids that are older than a time.
func (v *View) RequestsBefore(time int64) int {
	n := 0
	table.Each(v.txn, table.Requests, "time", func(r *table.RequestRow) bool {
		if r.Time >= time {
			return false
		}
		n++
		return true
	})
	return n
}

// Orphans returns the latest search for machines that belong to no node.
func (v *View) Orphans() model.OrphanSearch { return table.Mesh(v.txn).Orphans }

// Sinks returns the number of the last record of the audit log that each sink has taken, by its name. A sink that has taken none may
// be missing.
func (v *View) Sinks() map[string]uint64 {
	out := map[string]uint64{}
	table.Each(v.txn, table.Sinks, "id", func(r *table.SinkRow) bool { out[r.Name] = r.Number; return true })
	return out
}

// LastCluster returns the highest number that a cluster has or had.
func (v *View) LastCluster() int {
	last := table.Mesh(v.txn).LastCluster
	table.Each(v.txn, table.Clusters, "id", func(c *model.Cluster) bool {
		if n, ok := model.ClusterID(c.ID).Number(); ok {
			last = max(last, n)
		}
		return true
	})
	return last
}

// Audit returns the audit log.
func (v *View) Audit() *audit.Trail { return table.Trail(v.txn) }

func values[T any](in []*T) []T {
	out := make([]T, len(in))
	for i, p := range in {
		out[i] = *p
	}
	return out
}
