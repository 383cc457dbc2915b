package member

import (
	"context"
	"fmt"
	"time"

	"github.com/coopr/coopr/agent/mesh"
	"github.com/coopr/coopr/consensus/raftgroup/voters"
	"github.com/coopr/coopr/engine/roster"
)

// newVoters returns the duty that chooses the voters. It serves all terms of the member.
func (m *Member) newVoters() (*voters.Controller, error) {
	return voters.NewController(voters.Config{
		Group: m.Group,
		Candidates: func() []voters.Candidate {
			return m.known(candidates(m.cfg.Mesh.Members(), m.lead.Load().Dispatcher.Live()))
		},
		Policy: func() voters.Policy { return voters.Policy{MinFeatureLevel: int(m.Machine.View().FeatureLevel())} },
		Admit:  m.admit, Logger: m.cfg.Logger,
	})
}

// candidates returns the agents among which the voters are chosen. live has the
// agents with a session, by id.
func candidates(members []mesh.Member, live map[string]int) []voters.Candidate {
	var out []voters.Candidate
	for _, m := range members {
		_, session := live[m.ID]
		out = append(out, candidate(m, session))
	}
	return out
}

// known returns candidates that are eligible only if the mesh has them on record as voters: whoever has the key of gossip can
// announce anything.
func (m *Member) known(list []voters.Candidate) []voters.Candidate {
	v := m.Machine.View()
	if v.MeshIdentity() == nil {
		return list
	}
	for i := range list {
		who, ok := v.Identity(list[i].ID)
		list[i].Eligible = list[i].Eligible && ok && who.Removed == 0 && who.Role == roster.Voter
	}
	return list
}

// candidate returns an agent as a candidate; session reports whether it has a
// session with this leader. A record of the registry is not a sign of life: after an
// operator has recovered a lost quorum, the registry still lists dead agents as
// they were.
func candidate(m mesh.Member, session bool) voters.Candidate {
	return voters.Candidate{
		ID: m.ID, Addr: m.RPCAddr, Zone: m.Zone, Eligible: m.Eligible, Alive: m.Alive() && (m.Gossip.Alive() || session), Leaving: m.Leaving,
		FeatureLevel: int(m.FeatureLevel), JoinedAt: m.Since,
	}
}

// admit sends the mesh's keys to an agent that is about to become a member. It
// returns an error for an agent that holds the state of another Raft group: a new
// member replaces its log by its leader's, and would lose that state. An agent that
// belonged to this group before is admitted.
func (m *Member) admit(ctx context.Context, c voters.Candidate) error {
	v := m.Machine.View()
	st, err := askStatus(ctx, m.cfg.Peers, c.Addr, v.Mesh())
	if err != nil {
		return fmt.Errorf("ask agent %s whether it holds any state: %w", c.ID, err)
	}
	ours := st.Mesh == v.Mesh()
	if st.Mesh == "" {
		// The agent holds no state, or it restarted and has not applied its log
		// yet. In that case its Raft configuration identifies the group.
		ours = !st.HasState
		for _, s := range st.Servers {
			if _, known := v.Agent(s.Id); known && s.Id != c.ID {
				ours = true
			}
		}
	}
	if ours {
		return m.lead.Load().Keys.Admit(ctx, c.ID, keyStatus(st))
	}
	return fmt.Errorf("agent %s is not admitted to the Raft group: %w. Its data is left as it is, and the meshes stay separate. "+
		"To discard its state, stop it, delete its data_dir and start it with a join token", c.ID, voters.ErrForeign)
}

// Silence returns for how long the leader has not heard from another member of the group, as of a second ago at most.
// It is 0 for one that the leader has not looked for yet.
func (m *Member) Silence(id string) time.Duration {
	if m.voters == nil {
		return 0
	}
	for _, x := range m.voters.Health().Members {
		if x.ID == id {
			return x.Silence
		}
	}
	return 0
}
