package state

import (
	"io"
	"math"
	"time"

	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/roster"
	pb "github.com/coopr/coopr/rpc/proto"
)

// restoredMessage is the message of an operation that was running in the archive from which the state
// was restored.
const restoredMessage = "restored from an archive: check what was done since it was written, then resume or abort this operation"

// Restored reads the snapshot of an archive and returns the state that a mesh restores from it. The
// world has gone on since the archive was written. So the state has no sessions, and only the agents
// for which present returns true. Operations that were running are paused. The tasks of every operation
// that had not ended are observed before they are done. Verdicts about the health of services are
// forgotten, and so is for how long machines have been orphans. The mesh begins no work until it is
// resumed, for the reason why; nil means that it begins at once. The identities of agents, the join
// tokens and the CA are those of own, the present state of the mesh, if that is not nil: an archive
// brings data, and never identity.
func Restored(in io.Reader, present func(agent string) bool, now time.Time, own *View, why *roster.Hold) (*View, error) {
	m, err := New(Config{})
	if err != nil {
		return nil, err
	}
	if err := m.Restore(io.NopCloser(in)); err != nil {
		return nil, err
	}
	a := m.begin()
	a.index, a.now = m.View().Index(), now.UnixMilli()
	a.audit.BeginEntry(a.index, a.now)
	c := &pb.Command{}
	if why != nil {
		c.Actor = why.Actor
	}
	at := a.audit.Begin(c)
	a.restored(present)
	hold{a.writer}.set(why)
	a.sealed().dropTaskKeys(math.MaxUint32) // another mesh may sign with them
	if own != nil {
		a.identities().replace(own)
		rotations{a.writer}.restored(own)
	}
	a.audit.End(c, true, at) // it is no order about a record
	a.audit.EndEntry()
	a.commit()
	return m.View(), nil
}

func (a *applier) restored(present func(agent string) bool) {
	for _, s := range table.List[table.SessionRow](a.txn, table.Sessions, "id") {
		a.agents().endSession(s.ID, "the state was restored from an archive")
	}
	for _, n := range table.List[model.Agent](a.txn, table.Agents, "id") {
		if !present(n.ID) {
			a.agents().removeRecord(&pb.RemoveAgent{Id: n.ID, WithTypes: true})
		}
	}
	for _, have := range table.List[model.Operation](a.txn, table.Operations, "active", "active") {
		op := *have
		op.Restored, op.Version = true, a.index
		if op.Status == model.OpRunning {
			op.Status, op.Message = model.OpPaused, restoredMessage
		}
		a.put(table.Operations, &op)
		if e := a.edit(op.ID); e != nil { // an operation that waits for its turn has no plan yet
			e.Observe()
			if op.Status == model.OpPaused { // nothing goes on, not even steps that have begun
				_ = e.Release(plan.Whole(), plan.GateInterrupt) // every plan has this part
			}
		}
	}
	for _, have := range table.List[model.NodeHealth](a.txn, table.Health, "id") {
		if len(have.Services) == 0 && have.Machine == "" {
			continue
		}
		h := *have
		h.Services, h.Machine, h.GoneSince = map[string]model.ServiceHealth{}, "", 0
		a.put(table.Health, &h)
	}
	hold{a.writer}.forgetOrphans()
}

// newPlan returns the plan of a new operation. It notes in the operation whether that was restored, or
// follows one that was.
func (a operations) newPlan(op *model.Operation, g *plan.Graph) *plan.State {
	waited := table.Get[model.Operation](a.txn, table.Operations, "id", op.ID)
	before := table.Get[model.Operation](a.txn, table.Operations, "id", op.Follows)
	op.Restored = waited != nil && waited.Restored || before != nil && before.Restored
	s := plan.NewState(g)
	if !op.Restored {
		return s
	}
	e := s.Edit()
	e.Observe()
	return e.Done()
}
