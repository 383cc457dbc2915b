package service

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/coopr/coopr/consensus/raftgroup"
	"github.com/coopr/coopr/engine/problem"
)

// releaseTimeout is how long a leaving agent waits until another agent takes over its vote.
const releaseTimeout = 15 * time.Second

// Departure takes this agent out of the mesh for good.
type Departure struct {
	supervisor interface {
		Supervisor
		HandOver()
	}
	announce func() error
	leaving  atomic.Bool
	done     chan struct{}
}

// NewDeparture returns the Departure of an agent. announce publishes the agent's state in
// gossip again after the result of Leaving has changed.
func NewDeparture(supervisor interface {
	Supervisor
	HandOver()
}, announce func() error) *Departure {
	return &Departure{supervisor: supervisor, announce: announce, done: make(chan struct{})}
}

// Leaving reports whether the agent is leaving.
func (d *Departure) Leaving() bool { return d.leaving.Load() }

// Done returns a channel that is closed when the agent has left and can stop.
func (d *Departure) Done() <-chan struct{} { return d.done }

// Leave announces the departure and waits until the agent has no vote. If no other agent
// takes over the vote in time, the agent keeps it and stays in the mesh.
func (d *Departure) Leave(ctx context.Context) error {
	if d.leaving.Swap(true) {
		return nil
	}
	if err := d.announce(); err != nil {
		d.leaving.Store(false)
		return err
	}
	if m := d.supervisor.Member(); m != nil && m.Group.Member() {
		wait, cancel := context.WithTimeout(ctx, releaseTimeout)
		defer cancel()
		d.supervisor.HandOver()
		if err := m.Group.WaitNoVote(wait); err != nil && !errors.Is(err, raftgroup.ErrShutdown) {
			d.leaving.Store(false)
			if ctx.Err() != nil {
				return errors.Join(err, d.announce())
			}
			err = problem.New(problem.Conflict, "this agent's vote is still needed, and no other agent took it over within %v, so it stays: "+
				"add another agent first, or stop this one with SIGTERM", releaseTimeout)
			return errors.Join(err, d.announce())
		}
	}
	close(d.done)
	return nil
}
