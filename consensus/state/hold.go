package state

import (
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/roster"
	pb "github.com/coopr/coopr/rpc/proto"
)

// ErrNotHeld means that a mesh is not held, so that it cannot be resumed.
var ErrNotHeld = problem.New(problem.Conflict, "the mesh is not held: there is nothing to resume")

// hold holds a mesh after a restore, and resumes it.
type hold struct{ *writer }

// set holds the mesh, or ends a hold that came with a snapshot if why is nil.
func (a hold) set(why *roster.Hold) {
	m := table.Mesh(a.txn)
	m.ID, m.Hold = table.TheMeta, why
	a.put(table.Meta, &m)
}

// forgetOrphans forgets for how long machines have been orphans, so that their grace begins anew.
func (a hold) forgetOrphans() {
	if m := table.Mesh(a.txn); m.Orphans.At > 0 {
		m.Orphans = model.OrphanSearch{}
		a.put(table.Meta, &m)
	}
}

// resume ends the hold. Machines may have been found to be orphans meanwhile, as a person may search: by what the snapshot says, of which
// that person has corrected some.
func (a hold) resume(c *pb.Command) Answer {
	why := table.Mesh(a.txn).Hold
	if why == nil {
		return Answer{Err: ErrNotHeld}
	}
	a.set(nil)
	a.forgetOrphans()
	a.batch.Resumed = true
	a.event(model.Event{Type: "mesh.resumed", Actor: c.Actor, Message: "it was " + why.Why()})
	return Answer{}
}

// refuses returns the answer to a command that begins work while the mesh is held. It reports false for everything else. What is
// under way cannot go on either: all of it needs leases.
func (a hold) refuses(c *pb.Command) (Answer, bool) {
	switch ch := c.Change.(type) {
	case *pb.Command_Lease, *pb.Command_StartOperation, *pb.Command_QueueOperation, *pb.Command_DropResource:
	case *pb.Command_ChangeRuns:
		if ch.ChangeRuns.GetStart() == nil {
			return Answer{}, false
		}
	default:
		return Answer{}, false
	}
	why := table.Mesh(a.txn).Hold
	if why == nil {
		return Answer{}, false
	}
	return refuse(problem.Conflict, "the mesh is held, as it was %s: it begins no work until a person has checked what is on "+
		"record and runs coopr operator resume", why.Why()), true
}
