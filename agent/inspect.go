package agent

import "github.com/coopr/coopr/consensus/replica"

// Replica gives the agent's part in the replicated state, or nil while it has
// none. It is for simulations, which compare the states of all voters.
func (a *Agent) Replica() *replica.Replica {
	if m := a.supervisor.Member(); m != nil {
		return m.Replica
	}
	return nil
}

// Leads says whether this agent leads and its duties run.
func (a *Agent) Leads() bool {
	_, _, ok := a.supervisor.Leader()
	return ok
}
