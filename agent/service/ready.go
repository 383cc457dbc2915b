package service

import (
	"context"
	"time"

	"github.com/coopr/coopr/agent/member"
	"github.com/coopr/coopr/rpc/api"
)

// readyLag is the number of committed entries that the state of a ready voter may lack. A voter that is busy always
// lacks a few.
const readyLag = 1024

// electionTime is how long after the last contact a voter is ready without a leader: requests wait for the next one.
const electionTime = time.Second

// Ready reports whether this agent can serve requests. The agents of a mesh that is held can. Everybody may read the reasons why not, so
// they name nothing.
func (m *Mesh) Ready(ctx context.Context) api.Readiness {
	reasons := m.unready(ctx)
	r := m.Supervisor.Member()
	return api.Readiness{Ready: len(reasons) == 0, Held: r != nil && r.Machine.View().Hold() != nil, Reasons: reasons}
}

func (m *Mesh) unready(ctx context.Context) (reasons []string) {
	if m.Departure.Leaving() {
		reasons = append(reasons, "this agent is leaving the mesh")
	}
	r := m.Supervisor.Member()
	member := r != nil && r.Group.Member()
	switch {
	case !member && m.Worker.InTouch():
		return reasons // nobody need be asked
	case member && time.Since(r.Group.Stats().LastContact) < electionTime: // a new leader is being elected, or is there
	case m.Router.Locator.Group(ctx).LeaderID == "":
		reasons = append(reasons, "no leader can be reached")
	}
	if member {
		reasons = append(reasons, m.unreadyMember(r)...)
	}
	return reasons
}

// unreadyMember returns why a member of the Raft group cannot serve, even if it knows a leader.
func (m *Mesh) unreadyMember(r *member.Member) (reasons []string) {
	st := r.Group.Stats()
	if _, _, ok := m.Supervisor.Leader(); !ok && st.LeaderID == m.ID {
		reasons = append(reasons, "the duties of the leader do not run yet")
	}
	if st.CommitIndex == 0 || st.AppliedIndex+readyLag < st.CommitIndex {
		reasons = append(reasons, "the state has not caught up")
	}
	if !r.Trusted() {
		reasons = append(reasons, "the state was found to be wrong")
	}
	return reasons
}
