package raftgroup

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/coopr/coopr/engine/problem"
)

// Outcomes. Every error of a Future and of the writing methods wraps one of the first three, or is the
// error of the caller's context.
var (
	// ErrNotLeader: nothing was done; ask the leader (see NotLeaderError).
	ErrNotLeader = problem.New(problem.NoLeader, "this agent is not the leader")
	// ErrUnknownOutcome: the entry may be committed, now or later, or never.
	// A retry is safe only if the FSM recognises it by its request id.
	ErrUnknownOutcome = problem.New(problem.UnknownOutcome,
		"leadership was lost before the log entry was committed, so its outcome is unknown")
	// ErrShutdown: the member is stopping or stopped.
	ErrShutdown = problem.New(problem.NoLeader, "this agent's Raft member is shut down")
	// ErrTransferring: nothing was done; the leader is transferring its leadership. It is also an
	// ErrNotLeader.
	ErrTransferring = problem.New(problem.NoLeader, "%w: it is transferring its leadership", ErrNotLeader)

	// ErrTransferStuck: the member refuses all entries because a transfer of
	// leadership never ended (raft issue 696). Config.OnSick receives it; only a
	// restart of the member helps.
	ErrTransferStuck = errors.New("a transfer of leadership never ended")
	// ErrUnusable: New cannot use the data in the stores, or cannot write to them. If the disk is
	// healthy, the member's data is broken: the other members replace this one, and the agent joins
	// again with an empty directory.
	ErrUnusable = errors.New("the Raft member's store cannot be used")
	// ErrNoPeer: there is no voter that could take the leadership.
	ErrNoPeer = problem.New(problem.Conflict, "no other voter can take the leadership")
	// ErrNotHandedOver: no other voter took the leadership in time; the caller may try again.
	ErrNotHandedOver = problem.New(problem.Conflict, "the leadership was not transferred in time")
	// ErrChanged: the group's configuration is no longer the one that the change was decided on.
	ErrChanged = errors.New("the group's configuration has changed meanwhile")
)

// NotLeaderError is an ErrNotLeader that names the leader if it is known.
type NotLeaderError struct {
	// LeaderID and LeaderAddr are empty when there is no leader at the moment.
	LeaderID, LeaderAddr string
}

func (e *NotLeaderError) Error() string {
	if e.LeaderID == "" {
		return ErrNotLeader.Error() + "; there is no leader at the moment"
	}
	return fmt.Sprintf("%v; the leader is %s at %s", ErrNotLeader, e.LeaderID, e.LeaderAddr)
}

// Is reports whether target is ErrNotLeader or its code.
func (e *NotLeaderError) Is(target error) bool {
	return target == ErrNotLeader || target == problem.NoLeader
}

// ProblemCode returns problem.NoLeader.
func (e *NotLeaderError) ProblemCode() problem.Code { return problem.NoLeader }

// outcome translates the library's error for an entry into one of this package.
func (g *Group) outcome(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrNotVoter):
		return g.notLeader()
	case errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return ErrTransferring
	case errors.Is(err, raft.ErrLeadershipLost), errors.Is(err, raft.ErrAbortedByRestore):
		return fmt.Errorf("%w (%w)", ErrUnknownOutcome, err)
	case errors.Is(err, ErrShutdown):
		return err
	case errors.Is(err, raft.ErrRaftShutdown):
		return fmt.Errorf("%w: %w", ErrUnknownOutcome, ErrShutdown)
	case errors.Is(err, raft.ErrEnqueueTimeout):
		return fmt.Errorf("%w: it took no entry in time", ErrNotLeader)
	}
	// The local store reported an error. It may have written the entry all the same; then the member
	// finds the entry after a restart and sends it to the others.
	return fmt.Errorf("%w (%w)", ErrUnknownOutcome, err)
}

func (g *Group) notLeader() error {
	id, addr := g.Leader()
	if id == g.cfg.ID {
		id, addr = "", "" // stale: the library has just answered that this member does not lead
	}
	return &NotLeaderError{LeaderID: id, LeaderAddr: addr}
}
