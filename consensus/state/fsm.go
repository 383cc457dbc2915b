package state

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-memdb"
	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state/auditor"
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/consensus/state/view"
	"github.com/coopr/coopr/engine/effect"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

// FeatureLevel is the highest feature level of log entries that this build applies. Format is their
// format.
const (
	FeatureLevel = logformat.FeatureLevel
	Format       = logformat.Format
)

// Answer is the result of applying one command.
type Answer struct {
	Err   error
	Index uint64
	// Subject is the id of the object that the command made or changed.
	Subject string
	// Repeated reports that the request id was known and the command was not applied again.
	Repeated bool
	// Effect is what the command wrote, as it was right after it. It is nil for commands that no
	// user gives, after an error, and if the effect of a repeated request was not kept.
	Effect *effect.Rows
	// Refused are the tasks of a Lease or Report that were not accepted, or the positions of such
	// changes in a ReportHealth.
	Refused []uint32
	// Ready are the tasks of the operation that a Report made leasable.
	Ready []uint32
}

// View is the state at one moment; see package view.
type View = view.View

// Opener decrypts values of a view; see package view.
type Opener = view.Opener

// Machine applies log entries. It implements raft.BatchingFSM. Readers use View, which never waits
// for Apply.
type Machine struct {
	mu     sync.Mutex // serializes Apply, Restore
	db     atomic.Pointer[memdb.MemDB]
	events *Events
	// watchers are called after each batch; see Watch.
	wmu      sync.Mutex
	watchers []func(Batch)
	halted   atomic.Pointer[haltError]
	onHalt   func(error)
	audit    *auditor.Auditor // used only while mu is held
	// nodes holds, by cluster, the index of the last batch that changed one of its nodes. It is not
	// part of the state: with it, readers can cache values that they derive from a cluster's nodes.
	nodes       sync.Map
	counts      table.Ledger
	census      census
	terms       terms
	checkpoints checkpoints
}

// NodesVersion returns a number that changes whenever a node of the cluster changes.
func (m *Machine) NodesVersion(cluster string) uint64 {
	if v, ok := m.nodes.Load(cluster); ok {
		return v.(uint64)
	}
	return 0
}

type haltError struct{ err error }

// Config holds the settings of a Machine.
type Config struct {
	// Events bounds the buffer of events; 0 means 16,384 groups.
	Events int
	// OnHalt is called once, when this build does not understand an entry that it must understand.
	// The build is then too old for the mesh, and the machine has stopped applying entries.
	OnHalt func(error)
}

// New returns an empty machine.
func New(c Config) (*Machine, error) {
	db, err := memdb.NewMemDB(table.Schema())
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	if c.Events == 0 {
		c.Events = 1 << 14
	}
	m := &Machine{events: newEvents(c.Events), onHalt: c.OnHalt, audit: auditor.New()}
	m.db.Store(db)
	return m, nil
}

// Batch holds the changes that one batch of entries made.
type Batch struct {
	// Index is the index of the last entry.
	Index uint64
	// Operations are the operations that changed, with the tasks that the batch made leasable.
	Operations map[string][]uint32
	// Revoked are the leases that the batch took from live workers, by operation. The workers must
	// cancel the work under these leases.
	Revoked map[string][]plan.Revoked
	// Leases are the leases that the batch granted, in order. A later entry of the batch may have
	// ended one again.
	Leases []Leases
	// Ended are the attempts that workers reported as ended or gave back, in order, without their
	// sessions. The state may have refused a report: the attempt has ended all the same.
	Ended []Attempts
	// Health are the clusters in which the health or the recovery of nodes changed. A cluster may
	// appear more than once.
	Health []string
	// Sites are the sites whose records changed. A site may appear more than once.
	Sites []SiteKey
	// Runs are the runs whose records changed. A run may appear more than once.
	Runs []RunKey
	// Schedules reports that a schedule changed, or that a run ended and its schedule may start
	// another.
	Schedules bool
	// Resources reports that plugin resources changed.
	Resources bool
	// Agents reports that the agent registry changed.
	Agents bool
	// Resealed reports that values in the clear were replaced by encrypted ones.
	Resealed bool
	// Rotations reports that the rotation of a key began or came to its next phase, or that one is due as an agent was removed.
	Rotations bool
	// Restored reports that a snapshot replaced the state, so that everything may have changed.
	Restored bool
	// Resumed reports that the hold of the mesh ended, so that everything that was due may begin.
	Resumed bool
	Tally   Tally
}

// Anew reports whether a duty has to look at everything again, and not only at what the batch names.
func (b *Batch) Anew() bool { return b.Restored || b.Resumed }

// Leases names leases of tasks that one entry granted, all under one fence. The plan has their
// sessions.
type Leases struct {
	Operation string
	Vertices  []uint32
	Fence     uint64
}

// Attempts names attempts of tasks, each by its vertex and its fence.
type Attempts struct {
	Operation string
	Vertices  []uint32
	Fences    []uint64 // as many as Vertices
}

// Watch calls fn after every batch, in order, from the goroutine that applies entries. fn must not
// block. stop ends the watch.
func (m *Machine) Watch(fn func(Batch)) (stop func()) {
	m.wmu.Lock()
	defer m.wmu.Unlock()
	at := slices.IndexFunc(m.watchers, func(w func(Batch)) bool { return w == nil })
	if at < 0 {
		at = len(m.watchers)
		m.watchers = append(m.watchers, nil)
	}
	m.watchers[at] = fn
	return func() {
		m.wmu.Lock()
		defer m.wmu.Unlock()
		m.watchers[at] = nil
	}
}

func (m *Machine) tell(b Batch) {
	m.wmu.Lock()
	defer m.wmu.Unlock()
	for _, fn := range m.watchers {
		if fn != nil {
			fn(b)
		}
	}
}

// Apply applies one log entry.
func (m *Machine) Apply(l *raft.Log) any { return m.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch applies entries in one transaction, which ends early at a checkpoint. The
// response to an entry is a [][]Answer, or an error if the entry as a whole was not applied. The
// [][]Answer holds one list for each group of commands that arrived together, and the list holds
// one Answer for each command.
func (m *Machine) ApplyBatch(logs []*raft.Log) []any {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]any, len(logs))
	for done := 0; done < len(logs); {
		done += m.applySome(logs[done:], out[done:])
	}
	return out
}

// applySome applies entries up to the end or to the first checkpoint, and returns their number.
// Readers see the state at a checkpoint without the entries that follow it.
func (m *Machine) applySome(logs []*raft.Log, out []any) (done int) {
	a := m.begin()
	for i, l := range logs {
		done = i + 1
		m.terms.note(l)
		if l.Type != raft.LogCommand {
			continue
		}
		if h := m.halted.Load(); h != nil {
			out[i] = h.err
			continue
		}
		a.index = l.Index
		a.batch.Index = l.Index
		out[i] = a.entry(l.Data)
		a.audit.EndEntry()
		if a.checkpoint {
			break
		}
	}
	a.commit()
	for _, c := range a.changed {
		m.nodes.Store(c, a.batch.Index)
	}
	for _, c := range a.gone {
		m.nodes.Delete(c)
	}
	m.census.note(a.counted)
	if a.checkpoint {
		m.checkpoints.add(a.index, m.db.Load().Txn(false))
	}
	m.events.publish(a.batch.Index, a.groups)
	m.tell(a.batch)
	return done
}

// Try returns the answer that a command would have if it were applied next, at a time. It changes
// nothing.
func (m *Machine) Try(c *pb.Command, now int64) Answer {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h := m.halted.Load(); h != nil {
		return Answer{Err: h.err}
	}
	txn := m.db.Load().Snapshot().Txn(true)
	defer txn.Abort()
	index, _ := m.events.wait()
	a := &applier{m: m, trial: true, writer: &writer{txn: txn, index: index + 1, now: now, bounds: Bounds,
		edits: map[string]*plan.Edit{}, trees: map[string]*tree.Tree{}, audit: auditor.New(), batch: Batch{Operations: map[string][]uint32{}}}}
	m.open(a.writer)
	a.audit.BeginBatch(txn)
	a.audit.BeginEntry(a.index, now)
	return a.command(c) // the records of the auditor are not written
}

// applier applies the entries of one batch.
type applier struct {
	*writer
	m          *Machine
	checkpoint bool // the current entry is a checkpoint
	trial      bool // nothing is kept, and a mesh that is held shows what it would do
}

// begin begins a batch.
func (m *Machine) begin() *applier {
	a := &applier{m: m, writer: &writer{txn: m.db.Load().Txn(true),
		edits: map[string]*plan.Edit{}, trees: map[string]*tree.Tree{}, audit: m.audit, batch: Batch{Operations: map[string][]uint32{}}}}
	m.open(a.writer)
	m.audit.BeginBatch(a.txn)
	return a
}

// open opens the page on which a writer counts.
func (m *Machine) open(w *writer) { w.counts = &table.Page{Ledger: &m.counts, Grown: w.grown} }

// commit ends the batch. Readers see its changes then.
func (a *applier) commit() {
	a.flush()
	if row := a.audit.EndBatch(); row != nil {
		a.put(table.Audit, row)
	}
	a.txn.Commit()
	a.counts.Keep()
}

func (a *applier) entry(data []byte) any {
	var e pb.Entry
	if err := proto.Unmarshal(data, &e); err != nil {
		return a.halt(problem.New(problem.Unsupported, "log entry %d is damaged: %w", a.index, err))
	}
	if (e.Format != Format || e.FeatureLevel > FeatureLevel) && e.MustUnderstand {
		return a.halt(problem.New(problem.Unsupported, "log entry %d has format %d and feature level %d, this build reads format %d and level "+
			"%d: upgrade this agent", a.index, e.Format, e.FeatureLevel, Format, FeatureLevel))
	}
	if e.MustUnderstand && slices.ContainsFunc(e.Commands, func(c *pb.Command) bool { return c.Change == nil }) {
		return a.halt(problem.New(problem.Unsupported, "log entry %d has a command that this build does not know: upgrade this agent", a.index))
	}
	a.now, a.bounds = e.NowMs, e.Bounds
	a.audit.BeginEntry(a.index, a.now)
	flat := make([]Answer, len(e.Commands))
	for i, c := range e.Commands {
		if c.Change == nil {
			flat[i] = Answer{Index: a.index, Err: problem.New(problem.Unsupported, "command skipped")}
			continue
		}
		flat[i] = a.command(c)
		if flat[i].Index == 0 {
			flat[i].Index = a.index
		}
	}
	if len(e.Groups) == 0 {
		out := make([][]Answer, len(flat))
		for i := range flat {
			out[i] = flat[i : i+1]
		}
		return out
	}
	out := make([][]Answer, len(e.Groups))
	for i, n := range e.Groups {
		if int(n) > len(flat) {
			break
		}
		out[i], flat = flat[:n:n], flat[n:]
	}
	return out
}

func (a *applier) halt(err error) error {
	if a.m.halted.CompareAndSwap(nil, &haltError{err}) && a.m.onHalt != nil {
		go a.m.onHalt(err)
	}
	return err
}

func (a *applier) command(c *pb.Command) Answer {
	key := ""
	if c.RequestId != "" {
		key = table.RequestKey(c.Tenant, c.Actor, c.RequestId)
		switch r := table.Get[table.RequestRow](a.txn, table.Requests, "id", key); {
		case r == nil:
		case r.Refusal == "":
			return Answer{Index: r.Index, Subject: r.Subject, Repeated: true, Effect: a.view().Effect(r)}
		case c.GetRefuseCopies() == nil:
			return Answer{Index: r.Index, Err: problem.New(r.Refusal, "a request with this id was refused before: send another id")}
		}
	}
	at := a.audit.Begin(c)
	ans, held := hold{a.writer}.refuses(c)
	if !held || a.trial {
		ans = a.change(c)
	}
	a.audit.End(c, ans.Err != nil, at)
	if ans.Err != nil || c.GetPart() != nil {
		return ans
	}
	ans.Effect = a.effect(c, ans.Subject)
	if key != "" {
		r := &table.RequestRow{Key: key, Index: a.index, Subject: ans.Subject, Time: a.now, Refusal: problem.Code(c.GetRefuseCopies().GetCode())}
		if c.KeepAnswer && ans.Effect != nil {
			r.Effect = ans.Effect.Kept()
		}
		a.put(table.Requests, r)
		a.forgetRequest(c.Tenant)
	}
	return ans
}

func (a *applier) change(c *pb.Command) Answer {
	switch ch := c.Change.(type) {
	case *pb.Command_Report:
		return a.tasks().report(ch.Report)
	case *pb.Command_Lease:
		return a.tasks().lease(ch.Lease)
	case *pb.Command_PutDefinitions:
		return a.tenants().putDefinitions(c, ch.PutDefinitions)
	case *pb.Command_PutTenant:
		return a.tenants().putTenant(c, ch.PutTenant)
	case *pb.Command_DeleteTenant:
		return a.tenants().deleteTenant(c, ch.DeleteTenant.Name)
	case *pb.Command_PutToken:
		return a.users().putToken(c, ch.PutToken)
	case *pb.Command_RenewToken:
		return a.users().renewToken(c, ch.RenewToken)
	case *pb.Command_DeleteToken:
		return a.users().deleteToken(c, ch.DeleteToken.Id)
	case *pb.Command_TouchTokens:
		return a.users().touchTokens(ch.TouchTokens)
	case *pb.Command_PutUser:
		return a.users().putUser(c, ch.PutUser)
	case *pb.Command_PutGrant:
		return a.users().putGrant(c, ch.PutGrant)
	case *pb.Command_DeleteGrant:
		return a.users().deleteGrant(c, ch.DeleteGrant.Id)
	case *pb.Command_DeleteUser:
		return a.users().deleteUser(c, ch.DeleteUser.Name)
	case *pb.Command_FoundMesh:
		return a.identities().found(ch.FoundMesh)
	case *pb.Command_PutJoinToken:
		return a.identities().putJoinToken(c, ch.PutJoinToken)
	case *pb.Command_DeleteJoinToken:
		return a.identities().deleteJoinToken(c, ch.DeleteJoinToken.Id)
	case *pb.Command_AdmitAgent:
		return a.identities().admit(ch.AdmitAgent)
	case *pb.Command_RecordKeys:
		return a.identities().recordKeys(ch.RecordKeys)
	case *pb.Command_OpenSession:
		return a.agents().openSession(ch.OpenSession)
	case *pb.Command_EndSession:
		return a.agents().endSession(ch.EndSession.Session, ch.EndSession.Reason)
	case *pb.Command_StartOperation:
		return a.operations().startOperation(c, ch.StartOperation)
	case *pb.Command_ControlOperation:
		return a.operations().control(c, ch.ControlOperation)
	case *pb.Command_ControlCluster:
		return a.operations().controlCluster(c, ch.ControlCluster)
	case *pb.Command_OrderPlan:
		return a.plans().orderPlan(c, ch.OrderPlan)
	case *pb.Command_ReportHealth:
		return a.health().reportHealth(ch.ReportHealth)
	case *pb.Command_QueueOperation:
		return a.queue().add(c, ch.QueueOperation)
	case *pb.Command_SaveValue:
		return a.tasks().saveValue(ch.SaveValue)
	case *pb.Command_Part:
		return a.part(ch.Part)
	case *pb.Command_RemoveAgent:
		return a.agents().removeAgent(ch.RemoveAgent)
	case *pb.Command_Prune:
		return a.prune(ch.Prune)
	case *pb.Command_PruneAudit:
		return a.pruneAudit(ch.PruneAudit)
	case *pb.Command_NoteIncidents:
		for _, i := range ch.NoteIncidents.Incidents {
			a.audit.Incident(i)
		}
		return Answer{}
	case *pb.Command_RefuseCopies:
		return Answer{} // command remembers the request
	case *pb.Command_MoveCursors:
		return a.moveCursors(ch.MoveCursors)
	case *pb.Command_RaiseFeatureLevel:
		return a.raise(ch.RaiseFeatureLevel.Level, ch.RaiseFeatureLevel.Mesh)
	case *pb.Command_DropResource:
		return a.operations().dropResource(c, ch.DropResource)
	case *pb.Command_NoteOrphans:
		return a.noteOrphans(ch.NoteOrphans)
	case *pb.Command_ChangeSite:
		return a.sites().changeSite(c, ch.ChangeSite)
	case *pb.Command_ChangeRuns:
		return a.runs().changeRuns(c, ch.ChangeRuns)
	case *pb.Command_ChangeResource:
		return a.resources().changeResource(c, ch.ChangeResource)
	case *pb.Command_PutDataKey:
		return a.sealed().putDataKey(ch.PutDataKey)
	case *pb.Command_PutSealed:
		return a.sealed().putSealed(ch.PutSealed)
	case *pb.Command_Rotate:
		return rotations{a.writer}.rotate(c, ch.Rotate)
	case *pb.Command_ResumeMesh:
		return hold{a.writer}.resume(c)
	case *pb.Command_NoteExport:
		return a.sealed().noteExport(ch.NoteExport)
	case *pb.Command_Reseal:
		return a.sealed().reseal(ch.Reseal)
	case *pb.Command_DropSealed:
		return a.sealed().dropSealed(ch.DropSealed)
	case *pb.Command_PutSigningKey:
		return a.sealed().putSigningKey(ch.PutSigningKey)
	case *pb.Command_PutTaskKey:
		return a.sealed().putTaskKey(ch.PutTaskKey)
	case *pb.Command_SignHead:
		return a.sealed().signHead(ch.SignHead)
	case *pb.Command_Checkpoint:
		a.checkpoint = true
		return Answer{}
	case *pb.Command_ReportDivergence:
		return a.agents().diverged(ch.ReportDivergence)
	}
	return Answer{Err: problem.New(problem.Unsupported, "%T", c.Change)}
}

// Halted returns the reason why this machine stopped applying entries, or nil.
func (m *Machine) Halted() error {
	if h := m.halted.Load(); h != nil {
		return h.err
	}
	return nil
}

var _ raft.BatchingFSM = (*Machine)(nil)

// part stores a piece of a large command. The last piece completes the command and applies it.
func (a *applier) part(p *pb.Part) Answer {
	a.put(table.Parts, &table.PartRow{ID: p.Id, Number: p.Number, Data: p.Data})
	rows := table.List[table.PartRow](a.txn, table.Parts, "id_prefix", p.Id)
	if p.Number+1 < p.Total {
		return Answer{}
	}
	var data []byte
	for _, r := range rows {
		data = append(data, r.Data...)
		a.remove(table.Parts, r)
	}
	if len(rows) != int(p.Total) {
		return refuse(problem.Stale, "a part of a large command is missing: send it again")
	}
	var c pb.Command
	if err := proto.Unmarshal(data, &c); err != nil || c.Change == nil {
		return refuse(problem.Unsupported, "a large command is damaged: %v", err)
	}
	return a.command(&c)
}

func (a *applier) raise(level uint32, mesh string) Answer {
	m := table.Mesh(a.txn)
	if level > FeatureLevel {
		return Answer{Err: a.halt(problem.New(problem.Unsupported, "the mesh's feature level is %d, this build's %d: upgrade this agent", level,
			FeatureLevel))}
	}
	m.FeatureLevel = max(m.FeatureLevel, level)
	m.ID, m.Mesh = table.TheMeta, cmp.Or(m.Mesh, mesh)
	a.put(table.Meta, &m)
	return Answer{}
}

// refuse returns the answer to a command that is not carried out.
func refuse(code problem.Code, format string, args ...any) Answer {
	return Answer{Err: problem.New(code, format, args...)}
}
