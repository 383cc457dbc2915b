package state

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-memdb"
	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
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
	// Refused are the tasks of a Lease or Report that were not accepted, or the positions of such
	// changes in a ReportHealth.
	Refused []uint32
	// Ready are the tasks of the operation that a Report made leasable.
	Ready []uint32
}

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
	audit    *auditor // used only while mu is held
	// nodes holds, by cluster, the index of the last batch that changed one of its nodes. It is not
	// part of the state: with it, readers can cache values that they derive from a cluster's nodes.
	nodes sync.Map
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
	m := &Machine{events: newEvents(c.Events), onHalt: c.OnHalt, audit: newAuditor()}
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
	// Restored reports that a snapshot replaced the state, so that everything may have changed.
	Restored bool
}

// Watch calls fn after every batch, in order, from the goroutine that applies entries. fn must not
// block. stop ends the watch.
func (m *Machine) Watch(fn func(Batch)) (stop func()) {
	m.wmu.Lock()
	defer m.wmu.Unlock()
	m.watchers = append(m.watchers, fn)
	at := len(m.watchers) - 1
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

// ApplyBatch applies entries in one transaction: readers see the whole batch or none of it. The
// response to an entry is a [][]Answer, or an error if the entry as a whole was not applied. The
// [][]Answer holds one list for each group of commands that arrived together, and the list holds
// one Answer for each command.
func (m *Machine) ApplyBatch(logs []*raft.Log) []any {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]any, len(logs))
	a := &applier{m: m, txn: m.db.Load().Txn(true), edits: map[string]*plan.Edit{}, trees: map[string]*tree.Tree{}, audit: m.audit,
		batch: Batch{Operations: map[string][]uint32{}}}
	m.audit.beginBatch(a)
	for i, l := range logs {
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
		a.audit.endEntry()
	}
	a.flush()
	a.audit.endBatch()
	a.txn.Commit()
	for _, c := range a.changed {
		m.nodes.Store(c, a.batch.Index)
	}
	m.events.publish(a.batch.Index, a.groups)
	m.tell(a.batch)
	return out
}

// applier applies the entries of one batch.
type applier struct {
	m      *Machine
	txn    *memdb.Txn
	index  uint64
	now    int64
	edits  map[string]*plan.Edit // open edits of plans, by operation
	trees  map[string]*tree.Tree // the trees of these plans
	groups []group
	batch  Batch
	audit  *auditor
	// changed are the clusters whose nodes changed.
	changed []string
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
	a.now = e.NowMs
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

func requestKey(c *pb.Command) string {
	return c.Tenant + "\x00" + c.Actor + "\x00" + c.RequestId
}

func (a *applier) command(c *pb.Command) Answer {
	if c.RequestId != "" {
		if r := table.Get[table.RequestRow](a.txn, table.Requests, "id", requestKey(c)); r != nil {
			return Answer{Index: r.Index, Subject: r.Subject, Repeated: true}
		}
	}
	at := a.audit.begin(c)
	ans := a.change(c)
	a.audit.end(c, ans, at)
	if c.RequestId != "" && ans.Err == nil && c.GetPart() == nil {
		a.put(table.Requests, &table.RequestRow{Key: requestKey(c), Index: a.index, Subject: ans.Subject, Time: a.now})
	}
	return ans
}

func (a *applier) change(c *pb.Command) Answer {
	switch ch := c.Change.(type) {
	case *pb.Command_Report:
		return a.report(ch.Report)
	case *pb.Command_Lease:
		return a.lease(ch.Lease)
	case *pb.Command_PutDefinitions:
		return a.putDefinitions(c, ch.PutDefinitions)
	case *pb.Command_PutTenant:
		return a.putTenant(c, ch.PutTenant)
	case *pb.Command_DeleteTenant:
		return a.deleteTenant(c, ch.DeleteTenant.Name)
	case *pb.Command_PutToken:
		return a.putToken(c, ch.PutToken)
	case *pb.Command_DeleteToken:
		return a.deleteToken(c, ch.DeleteToken.Id)
	case *pb.Command_OpenSession:
		return a.openSession(ch.OpenSession)
	case *pb.Command_EndSession:
		return a.endSession(ch.EndSession.Session, ch.EndSession.Reason)
	case *pb.Command_StartOperation:
		return a.startOperation(c, ch.StartOperation)
	case *pb.Command_ControlOperation:
		return a.control(c, ch.ControlOperation)
	case *pb.Command_ControlCluster:
		return a.controlCluster(c, ch.ControlCluster)
	case *pb.Command_OrderPlan:
		return a.orderPlan(c, ch.OrderPlan)
	case *pb.Command_ReportHealth:
		return a.reportHealth(ch.ReportHealth)
	case *pb.Command_QueueOperation:
		return a.queue(c, ch.QueueOperation)
	case *pb.Command_SaveValue:
		return a.saveValue(ch.SaveValue)
	case *pb.Command_Part:
		return a.part(ch.Part)
	case *pb.Command_RemoveAgent:
		return a.removeAgent(ch.RemoveAgent.Id)
	case *pb.Command_Prune:
		return a.prune(ch.Prune)
	case *pb.Command_RaiseFeatureLevel:
		return a.raise(ch.RaiseFeatureLevel.Level, ch.RaiseFeatureLevel.Mesh)
	case *pb.Command_DropResource:
		return a.dropResource(c, ch.DropResource)
	case *pb.Command_ChangeSite:
		return a.changeSite(c, ch.ChangeSite)
	case *pb.Command_ChangeRuns:
		return a.changeRuns(c, ch.ChangeRuns)
	case *pb.Command_ChangeResource:
		return a.changeResource(c, ch.ChangeResource)
	}
	return Answer{Err: problem.New(problem.Unsupported, "%T", c.Change)}
}

// put inserts a row. Every row has the keys of its table, so an error is a bug. The machine panics
// then, because the states of the voters would diverge if it went on.
func (a *applier) put(table string, row any) {
	a.audit.put(row)
	if err := a.txn.Insert(table, row); err != nil {
		panic(fmt.Sprintf("state: insert into %s: %v", table, err))
	}
	if n, ok := row.(*model.Node); ok {
		a.changed = append(a.changed, n.Cluster)
	}
}

func (a *applier) remove(table string, row any) {
	a.audit.remove(row)
	if err := a.txn.Delete(table, row); err != nil && !errors.Is(err, memdb.ErrNotFound) {
		panic(fmt.Sprintf("state: delete from %s: %v", table, err))
	}
}

// edit returns the edit of an operation's plan, or nil if there is no plan. The edit stays open
// until the batch ends.
func (a *applier) edit(operation string) *plan.Edit {
	if e, ok := a.edits[operation]; ok {
		return e
	}
	row := table.Get[table.PlanRow](a.txn, table.Plans, "id", operation)
	if row == nil {
		return nil
	}
	e := row.State.Edit()
	a.audit.watch(row, e)
	a.edits[operation], a.trees[operation] = e, row.Tree
	return e
}

// flush writes the plans that were edited.
func (a *applier) flush() {
	for op, e := range a.edits {
		a.batch.Operations[op] = e.Ready()
		if revoked := e.Revoked(); len(revoked) > 0 {
			if a.batch.Revoked == nil {
				a.batch.Revoked = map[string][]plan.Revoked{}
			}
			a.batch.Revoked[op] = revoked
		}
		a.put(table.Plans, &table.PlanRow{Operation: op, State: e.Done(), Tree: a.trees[op], Audit: a.audit.named(op)})
	}
	clear(a.edits)
	clear(a.trees)
}

// touch adds an operation to the batch when its record changed and its plan did not.
func (a *applier) touch(operation string) {
	if _, ok := a.batch.Operations[operation]; !ok {
		a.batch.Operations[operation] = nil
	}
}

func (a *applier) event(e model.Event) {
	e.Index, e.Time = a.index, a.now
	a.groups = append(a.groups, group{event: e})
}

// Halted returns the reason why this machine stopped applying entries, or nil.
func (m *Machine) Halted() error {
	if h := m.halted.Load(); h != nil {
		return h.err
	}
	return nil
}

var _ raft.BatchingFSM = (*Machine)(nil)
