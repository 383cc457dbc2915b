package member

import (
	"context"
	"errors"
	"time"

	"github.com/coopr/coopr/consensus/logstore"
	pb "github.com/coopr/coopr/rpc/proto"
)

// putAside puts the damaged stores of this agent aside, so that the leader sends the state again. It does so
// only if another agent leads a group that has a majority without this one. Otherwise the damaged stores
// may hold the only copy of an entry, and a person has to decide.
func (s *Supervisor) putAside(ctx context.Context, reason error) {
	if s.cfg.Stores.PutAside == nil {
		return
	}
	if !s.othersLead(ctx) {
		s.cfg.Logger.Warn("the damaged Raft log stays as it is, because no majority of other voters has a leader")
		return
	}
	to, err := s.cfg.Stores.PutAside(reason)
	if err != nil {
		s.cfg.Logger.Error("the damaged Raft log cannot be put aside", "error", err)
		return
	}
	s.cfg.Logger.Warn("the damaged Raft log was put aside; the leader sends the state again", "to", to)
}

// othersLead reports whether another agent answers that it leads a group that has a majority without this agent.
func (s *Supervisor) othersLead(ctx context.Context) bool {
	answers := map[string]*pb.StatusResponse{} // by agent
	for _, m := range s.cfg.Mesh.Members() {
		if m.ID == s.cfg.ID || !m.Alive() || !m.Eligible {
			continue
		}
		if st, err := askStatus(ctx, s.cfg.Peers, m.RPCAddr, ""); err == nil {
			answers[m.ID] = st
		}
	}
	for id, leader := range answers {
		follows := func(voter string) bool {
			st := answers[voter]
			return st != nil && st.LeaderId == id && st.AppliedIndex+maxBehind >= leader.AppliedIndex
		}
		if leader.LeaderReady && leader.LeaderId == id && dispensable(s.cfg.ID, leader.Servers, follows) {
			return true
		}
	}
	return false
}

// maxBehind is how many entries a voter may be behind the leader to count as well.
const maxBehind = 4096

// dispensable reports whether an agent belongs to a group of whose voters a majority are other agents that
// follow the leader. A voter that is configured but down does not count: the group would stand still.
func dispensable(id string, servers []*pb.Server, follows func(voter string) bool) bool {
	belongs, voters, others := false, 0, 0
	for _, s := range servers {
		belongs = belongs || s.Id == id
		if s.Voter {
			voters++
			if s.Id != id && follows(s.Id) {
				others++
			}
		}
	}
	return belongs && others > voters/2
}

const (
	// scrubEvery is how often the log is verified.
	scrubEvery = 5 * time.Minute
	// snapshotRounds is after how many verifications of the log the snapshots are verified, too.
	snapshotRounds = 12
)

// scrub verifies what a member has on its disk until ctx ends, as damage may otherwise stay unnoticed
// until the entry or the snapshot is needed.
func (s *Supervisor) scrub(ctx context.Context, stores *logstore.Stores, m *Member) {
	for round := 1; ; round++ {
		select {
		case <-ctx.Done():
			return
		case <-time.After(scrubEvery):
		}
		err := stores.ScrubLog(ctx)
		if err == nil && round%snapshotRounds == 0 {
			err = stores.ScrubSnapshots(ctx)
		}
		switch {
		case errors.Is(err, logstore.ErrDamaged):
			m.fault(err)
		case err != nil && ctx.Err() == nil:
			s.cfg.Logger.Warn("the Raft log could not be verified", "error", err)
		}
	}
}
