package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coopr/coopr/consensus/raftgroup"
	"github.com/coopr/coopr/consensus/raftgroup/voters"
	"github.com/coopr/coopr/consensus/term"
)

// voterDuty keeps the right agents voting while this one leads.
func (a *Agent) voterDuty(m *member) (term.Duty, error) {
	return voters.NewKeeper(voters.Config{Group: m.Group, Candidates: a.candidates, Logger: a.log})
}

// leaveMesh takes this agent out for good: it gives up its vote, then Run
// ends. A vote that cannot be given up in time (the last voter's) is kept, and
// the agent stays.
func (a *Agent) leaveMesh(ctx context.Context) error {
	if a.leaving.Swap(true) {
		return nil
	}
	self := a.self()
	self.Eligible = false
	if err := a.mesh.SetSelf(self); err != nil {
		a.leaving.Store(false)
		return err
	}
	if m := a.member.Load(); m != nil && m.Group.Member() {
		wait, cancel := context.WithTimeout(ctx, 15*time.Second)
		defer cancel()
		a.handOver()
		if err := m.Group.WaitNoVote(wait); err != nil && !errors.Is(err, raftgroup.ErrShutdown) {
			a.leaving.Store(false)
			self.Eligible = a.cfg.Eligible
			return errors.Join(fmt.Errorf("this agent's vote is still needed, so it stays: add another agent first, or stop this one with SIGTERM: %w", err), a.mesh.SetSelf(self))
		}
	}
	close(a.quit)
	return nil
}

// goodbye tells the others that this agent stops on purpose. Its vote stays,
// for it may be back in a moment; where a spare is at hand it takes the seat.
func (a *Agent) goodbye() {
	a.handOver()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := a.mesh.Leave(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		a.log.Debug("goodbye", "error", err)
	}
}
