package agent

import (
	"context"
	"errors"
	"time"
)

var (
	// errMoved says that somebody else leads by now.
	errMoved = errors.New("another agent leads by now")
	// errNotReached says that nothing was sent, for there is no connection.
	errNotReached = errors.New("there is no connection")
)

// lookEvery is how often an agent without a Raft member looks at what gossip
// says of the leader it talks to; one with a member is told of changes.
const lookEvery = 500 * time.Millisecond

// whileLeads gives a context that ends, with errMoved as its cause, when agent
// id does not lead any more as far as this agent can tell. A leader that is
// frozen closes no connection: whoever waits for its answer would wait for as
// long as it sleeps.
func (a *Agent) whileLeads(ctx context.Context, id string) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		timer := time.NewTimer(lookEvery)
		defer timer.Stop()
		for {
			var changed <-chan struct{}
			again := lookEvery
			if m := a.member.Load(); m != nil {
				changed = m.Group.LeaderChanged()
				if m.Group.Member() {
					again *= 10 // it may cease to be one
				}
			}
			timer.Reset(again)
			if a.overthrown(id) {
				cancel(errMoved)
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-changed:
			case <-timer.C:
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}

// overthrown says whether this agent knows of another leader than id or, where
// it has no part in the Raft group, that id is not alive.
func (a *Agent) overthrown(id string) bool {
	if m := a.member.Load(); m != nil && m.Group.Member() {
		now, _ := m.Group.Leader()
		return now != "" && now != id
	}
	m, ok := a.mesh.Member(id)
	return ok && !m.Alive()
}
