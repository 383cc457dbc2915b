package mesh

import (
	"fmt"
	"slices"
)

// RaftState is an agent's answer to the question what it knows of Raft (peer RPC Status).
type RaftState struct {
	HasState bool     // it holds a log or a snapshot
	Peers    []string // ids of the servers it knows of
}

// Decision is the outcome of ShouldBootstrap.
type Decision struct {
	// Bootstrap: this agent is to start the Raft group, with Servers as its voters.
	Bootstrap bool
	// Servers are the voters of the first group, in the order of their ids; nil while it is not time. All agents with
	// the same view get the same servers.
	Servers []Member
	// Ask has the eligible agents that have not answered yet: ask each what it knows of Raft, then decide again.
	Ask []Member
	// Why tells an operator what is waited for, or who bootstraps.
	Why string
}

// ShouldBootstrap decides whether a mesh without a Raft group starts one now, and with whom. It is pure: the caller
// watches the members, asks the agents in Ask over peer RPC, and calls again with their answers.
//
// A group starts when at least expect eligible agents with the same expectation are alive, and every one of them has
// answered that it holds no Raft state and knows of no group: one that cannot be asked may belong to a group that only
// sleeps. The voters are the first expect agents by id. Only the first of them bootstraps; the others learn the group
// from it when it asks for their votes. So two agents whose views differ for a moment cannot start the group with two
// configurations.
func ShouldBootstrap(self string, members []Member, expect int, answers map[string]RaftState) Decision {
	if expect <= 0 {
		return Decision{Why: "this agent does not bootstrap (bootstrap_expect is 0): it waits to be found by a group"}
	}
	var asked []Member // whoever is alive and may know a group
	for _, m := range members {
		switch {
		case !m.Eligible || !m.Alive():
		case m.BootstrapExpect != 0 && m.BootstrapExpect != expect:
			return Decision{Why: fmt.Sprintf("agent %s (%s) has bootstrap_expect %d, this agent has %d: make them equal",
				m.Name, m.ID, m.BootstrapExpect, expect)}
		default:
			asked = append(asked, m)
		}
	}
	slices.SortFunc(asked, byID)
	// Agents that leave or have no expectation do not start a group, but may know one.
	candidates := slices.DeleteFunc(slices.Clone(asked), func(m Member) bool {
		return m.BootstrapExpect != expect || m.Status == StatusLeaving
	})

	for _, m := range asked {
		if a, ok := answers[m.ID]; ok && (a.HasState || len(a.Peers) > 0) {
			return Decision{Why: fmt.Sprintf("agent %s (%s) knows a Raft group already: this agent waits to be added to it", m.Name, m.ID)}
		}
	}
	if len(candidates) < expect {
		return Decision{Why: fmt.Sprintf("%d of %d eligible agents are here", len(candidates), expect)}
	}
	var ask []Member
	for _, m := range asked {
		if _, ok := answers[m.ID]; !ok {
			ask = append(ask, m)
		}
	}
	if len(ask) > 0 {
		return Decision{Ask: ask, Why: fmt.Sprintf("%d of %d agents have not said yet whether they know a Raft group", len(ask), len(asked))}
	}
	servers := candidates[:expect:expect]
	return Decision{
		Bootstrap: servers[0].ID == self,
		Servers:   servers,
		Why:       fmt.Sprintf("agent %s (%s) starts the Raft group with %d voters", servers[0].Name, servers[0].ID, expect),
	}
}
