package agent

import (
	"context"
	"fmt"

	"github.com/coopr/coopr/consensus/raftgroup/voters"
)

// admit keeps agents out of the Raft group that hold the state of another one:
// a member takes its leader's log for its own, and would forget what it has.
// An agent that was in this group before may come back.
func (a *Agent) admit(m *member) func(context.Context, voters.Candidate) error {
	return func(ctx context.Context, c voters.Candidate) error {
		v := m.Machine.View()
		st, err := a.askState(ctx, c.Addr, v.Mesh())
		if err != nil {
			return fmt.Errorf("ask agent %s whether it holds any state: %w", c.ID, err)
		}
		ours := st.Mesh == v.Mesh()
		if st.Mesh == "" {
			// It has begun again and has not seen its own state yet, or knows nothing: its group tells.
			ours = !st.HasState
			for _, s := range st.Servers {
				if _, known := v.Agent(s.Id); known && s.Id != c.ID {
					ours = true
				}
			}
		}
		if ours {
			return nil
		}
		return fmt.Errorf("agent %s is not taken into the Raft group: %w. Nothing of it is touched, they stay two meshes. "+
			"To give its state up, stop it, wipe its data_dir and start it with join and without bootstrap_expect", c.ID, voters.ErrForeign)
	}
}
