// Package auditor makes the records of the audit log while entries are applied.
package auditor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/go-memdb"

	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	pb "github.com/coopr/coopr/rpc/proto"
)

// mesh is the actor of commands that no caller requested.
const mesh = "coopr"

// Auditor makes the audit log's records while entries are applied. It collects records until their
// entry ends, and no longer: voters that apply the entries in other batches must build the same
// chain.
type Auditor struct {
	txn     *memdb.Txn // of the batch
	index   uint64     // of the entry that is applied now
	now     int64      // the time of that entry
	trail   *audit.Trail
	writer  *audit.Writer // of trail
	wrote   bool          // this batch has new records
	who     caller        // of the command that is applied now
	pending []any         // *audit.Change or *audit.Tasks, in order
	plans   map[string]*planAudit
	// unresolved are the plans whose latest changes lack their attempts.
	unresolved []*planAudit
	// round increases whenever changes of tasks must begin a new record.
	round  int
	agents map[string]string // names of agents by id, for one entry
	// lastID and lastName are the id and the name of the agent looked up last.
	lastID, lastName string
	// spare are records to use again: a task's result should not allocate memory that its record
	// does not keep.
	spare []*audit.Tasks
}

// New returns an auditor without records.
func New() *Auditor {
	return &Auditor{plans: map[string]*planAudit{}, agents: map[string]string{}}
}

// BeginBatch prepares the auditor for a batch, which reads and writes the state with txn.
func (u *Auditor) BeginBatch(txn *memdb.Txn) {
	u.txn, u.wrote = txn, false
	clear(u.plans)
	if trail := table.Trail(txn); u.writer == nil || trail != u.trail {
		u.trail, u.writer = trail, trail.Write()
	}
}

// BeginEntry prepares the auditor for the commands of an entry, with the entry's index and time.
func (u *Auditor) BeginEntry(index uint64, now int64) { u.index, u.now = index, now }

// EndEntry appends the entry's records to the chain.
func (u *Auditor) EndEntry() {
	u.wrote = u.wrote || len(u.pending) > 0
	for i, r := range u.pending {
		switch r := r.(type) {
		case *audit.Change:
			u.writer.Change(r)
		case *audit.Tasks:
			u.writer.Tasks(r)
			if len(u.spare) < 4 && cap(r.Items) <= 1<<14 {
				clear(r.Items)
				*r = audit.Tasks{Items: r.Items[:0]}
				u.spare = append(u.spare, r)
			}
		}
		u.pending[i] = nil
	}
	u.pending = u.pending[:0]
	clear(u.agents)
	u.lastID, u.lastName = "", ""
	u.who = caller{}
	u.round++
}

// EndBatch returns the new row of the audit log, or nil if the batch has no records.
func (u *Auditor) EndBatch() *table.AuditRow {
	u.txn = nil
	if !u.wrote {
		return nil
	}
	u.trail = u.writer.Done()
	return &table.AuditRow{ID: table.Audit, Trail: u.trail}
}

// caller is the actor of a command, and the id of the request, with where it came from.
type caller struct{ actor, request, source, agent string }

// Begin sets the caller for the records that follow. It returns the number of records so far, for
// End. Commands of an entry do not nest, with one exception: the last part of a large command
// applies that command, and does nothing after it.
func (u *Auditor) Begin(c *pb.Command) int {
	who := caller{c.Actor, c.RequestId, c.Source, c.Agent}
	if who.actor == "" {
		who.actor = mesh
	}
	if u.who != who {
		u.round++
	}
	u.who = who
	return len(u.pending)
}

// End ends the records of a command, which begin at position at. The record of an order comes before
// those of its effects. A command that failed has no record of its own.
func (u *Auditor) End(c *pb.Command, failed bool, at int) {
	u.resolve()
	if failed {
		return
	}
	if order := u.order(c); order != nil {
		u.pending = slices.Insert(u.pending, at, any(u.complete(order)))
		u.round++
	}
}

// complete fills in the fields that every record has.
func (u *Auditor) complete(c *audit.Change) *audit.Change {
	c.Index, c.Time = u.index, u.now
	c.Actor, c.Request, c.Source, c.Agent = u.who.actor, u.who.request, u.who.source, u.who.agent
	c.Message = clip(c.Message)
	return c
}

func (u *Auditor) record(c *audit.Change, before, after audit.Document) {
	c.Before, c.After = audit.Diff(before, after)
	if c.Before == nil && c.After == nil {
		return
	}
	u.resolve()
	u.pending = append(u.pending, u.complete(c))
	u.round++ // later changes of tasks come after it
}

// Released records that a person released an object of a site.
func (u *Auditor) Released(tenant, site, object, reason string) {
	u.record(&audit.Change{Type: "site.released", Tenant: tenant, Subject: site + "/" + object, Message: reason},
		audit.Document{}, u.document(map[string]any{"object": object, "reason": reason}))
}

// Pruned records that the retention of a terminated cluster is over, and the number of its
// operations.
func (u *Auditor) Pruned(cl *model.Cluster, operations int) {
	u.record(&audit.Change{Type: "cluster.pruned", Tenant: cl.Tenant, Cluster: cl.ID, Subject: cl.Name, Message: "its retention is over"},
		u.document(map[string]any{"status": cl.Status, "operations": operations}), audit.Document{})
}

// Incident records a request that changed nothing, or several of a kind.
func (u *Auditor) Incident(i *pb.Incident) {
	doc := map[string]any{}
	if i.Count > 0 {
		doc["count"], doc["first"], doc["last"] = i.Count, i.FirstMs, i.LastMs
	}
	if i.Object != "" {
		doc["object"] = clip(i.Object)
	}
	c := &audit.Change{Type: i.Type, Tenant: i.Tenant, Subject: i.Action}
	u.record(c, audit.Document{}, u.document(doc))
	c.Actor, c.Request, c.Source, c.Agent = i.Actor, i.Request, i.Source, i.Agent
}

// longestMessage bounds the part of a message that a record keeps, in bytes.
const longestMessage = 500

func clip(s string) string {
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	if len(s) <= longestMessage {
		return s
	}
	return strings.ToValidUTF8(s[:longestMessage], "") + "…"
}

// planAudit collects the changes of one plan's tasks.
type planAudit struct {
	u        *Auditor
	edit     *plan.Edit
	plan     *audit.Plan
	tasks    *audit.Tasks
	round    int
	resolved int // the number of items in tasks that have their attempts
}

// names returns the names of an operation's new plan.
func (u *Auditor) names(op *model.Operation, g *plan.Graph) *audit.Plan {
	return table.PlanNames(fmt.Sprintf("%s@%d", op.ID, u.index), op, g)
}

// Watch records the changes that an edit makes from now on.
func (u *Auditor) Watch(row *table.PlanRow, e *plan.Edit) {
	p := &planAudit{u: u, edit: e, plan: row.Audit, round: -1}
	if p.plan == nil {
		op := table.Get[model.Operation](u.txn, table.Operations, "id", row.Operation)
		if op == nil {
			return // every plan has its operation
		}
		p.plan = u.names(op, row.State.Graph)
	}
	u.plans[row.Operation] = p
	e.Watch(p.step)
}

// begun records that a new plan's first tasks wait for workers.
func (u *Auditor) begun(row *table.PlanRow) {
	op := table.Get[model.Operation](u.txn, table.Operations, "id", row.Operation)
	if op == nil {
		return
	}
	row.Audit = u.names(op, row.State.Graph)
	tasks := u.tasks(row.Audit)
	for _, v := range row.State.Leasable() {
		tasks.Items = append(tasks.Items, audit.TaskChange{Vertex: v, From: model.TaskBlocked, To: row.State.Status(v)})
	}
	u.round++
}

// PlanNames returns the names of an operation's plan in this batch, or nil.
func (u *Auditor) PlanNames(operation string) *audit.Plan {
	if p := u.plans[operation]; p != nil {
		return p.plan
	}
	return nil
}

// tasks begins a record of changes of tasks.
func (u *Auditor) tasks(p *audit.Plan) *audit.Tasks {
	t := &audit.Tasks{}
	if n := len(u.spare); n > 0 {
		t, u.spare = u.spare[n-1], u.spare[:n-1]
	}
	t.Plan, t.Index, t.Time, t.Actor, t.Request = p, u.index, u.now, u.who.actor, u.who.request
	u.pending = append(u.pending, t)
	return t
}

func (p *planAudit) step(v uint32, from, to model.TaskStatus) {
	u := p.u
	if p.round != u.round {
		p.round = u.round
		p.tasks, p.resolved = u.tasks(p.plan), 0
	}
	if p.resolved == len(p.tasks.Items) {
		u.unresolved = append(u.unresolved, p)
	}
	p.tasks.Items = append(p.tasks.Items, audit.TaskChange{Vertex: v, From: from, To: to})
}

// resolve fills in the attempts of the latest changes. The plan's edit has the complete attempts by
// then.
func (u *Auditor) resolve() {
	for _, p := range u.unresolved {
		items := p.tasks.Items
		s := p.edit.State()
		for i := p.resolved; i < len(items); i++ {
			it := &items[i]
			if !it.From.Held() && !it.To.Held() {
				continue
			}
			t := s.Task(it.Vertex)
			it.Attempt, it.Fence, it.Agent = uint8(t.Attempt), t.Fence, u.agent(t.Holder.Agent)
			if it.From.Held() && !it.To.Held() {
				it.End = endOf(it, &t)
			}
		}
		p.resolved = len(items)
	}
	u.unresolved = u.unresolved[:0]
}

// endOf returns the end of an attempt, or nil if it simply succeeded.
func endOf(it *audit.TaskChange, t *plan.Task) *audit.End {
	n := t.Note
	switch {
	case n == nil:
		return nil
	case it.To == model.TaskSucceeded && n.Adopted:
		return &audit.End{Outcome: "adopted"}
	case it.To == model.TaskSucceeded || len(n.History) == 0:
		return nil
	}
	last := n.History[len(n.History)-1]
	if last.Fence != t.Fence || last.Outcome == "" && last.Message == "" {
		return nil
	}
	return &audit.End{Outcome: last.Outcome, Message: clip(last.Message)}
}

func (u *Auditor) agent(id string) string {
	if id == u.lastID {
		return u.lastName
	}
	name, ok := u.agents[id]
	if !ok {
		name = id
		if n := table.Get[model.Agent](u.txn, table.Agents, "id", id); n != nil && n.Name != "" {
			name = n.Name
		}
		u.agents[id] = name
	}
	u.lastID, u.lastName = id, name
	return name
}

// Signed records a signed head, unless the log does not have it.
func (u *Auditor) Signed(h audit.SignedHead) error {
	if err := u.writer.Done().Has(h.Place); err != nil {
		return err
	}
	doc, err := audit.NewDocument(h, func(m map[string]any) map[string]any { return m })
	if err != nil {
		return err
	}
	u.record(&audit.Change{Type: audit.TypeSigned, Message: fmt.Sprintf("signed up to record %d", h.Seq)}, audit.Document{}, doc)
	return nil
}

// Head returns the number of the last record of the entries before this one.
func (u *Auditor) Head() uint64 { return u.writer.Head() }

// Prune drops records beyond limits, and adds a record of that. taken has the last record that each sink has taken: what sinks
// lose is on record, too.
func (u *Auditor) Prune(l audit.Limits, taken map[string]uint64) {
	if l.Before == 0 && l.Keep == 0 && len(l.Tenants) == 0 {
		return
	}
	lost := map[string]uint64{}
	dropped := u.writer.Prune(l, func(at audit.Place, records uint64) {
		for sink, number := range taken {
			if at.Seq > number {
				lost[sink] += records
			}
		}
	})
	if dropped == 0 {
		return
	}
	u.wrote = true
	stats := u.writer.Done().Stats()
	doc := map[string]any{"records": dropped, "anchor": stats.Anchor}
	if stats.Dropped > 0 {
		doc["dropped"] = stats.Dropped
	}
	message := fmt.Sprintf("the retention of %d records is over", dropped)
	if len(l.Tenants) > 0 {
		doc["tenants"] = slices.Sorted(maps.Keys(l.Tenants))
	}
	if len(lost) > 0 {
		doc["lost"] = lost
		message += "; sinks had not taken all of them: " + strings.Join(slices.Sorted(maps.Keys(lost)), ", ")
	}
	u.record(&audit.Change{Type: audit.TypePruned, Message: message}, audit.Document{}, u.document(doc))
}
