package mesh

import (
	"fmt"
	"slices"
)

// RaftState is what an agent knows of Raft, according to its answer to the peer RPC Status.
type RaftState struct {
	HasState bool     // the agent holds a log or a snapshot
	Peers    []string // ids of the servers that it knows
}

// Decision is the result of ShouldBootstrap.
type Decision struct {
	// Bootstrap is set if this agent has to start the Raft group, with Servers as its voters.
	Bootstrap bool
	// Servers has the voters of the first group, ordered by id. It is nil while the group cannot start. All agents with
	// the same view compute the same servers.
	Servers []Member
	// Ask has the eligible agents that have not answered yet. The caller asks each of them and decides again.
	Ask []Member
	// Why explains the decision to an operator.
	Why string
}

// ShouldBootstrap decides whether a mesh without a Raft group starts one now, and with which agents. It is pure: the caller
// watches the members, asks the agents in Ask over peer RPC, and calls again with their answers.
//
// A group starts when at least expect eligible agents with the same expectation are alive, and each of them has answered
// that it holds no Raft state and knows no group: an agent that does not answer may belong to a group that is down. The
// voters are the first expect agents by id. Only the first of them bootstraps; the others learn of the group when it asks
// for their votes. So two agents whose views differ for a moment cannot start the group with two configurations.
func ShouldBootstrap(self string, members []Member, expect int, answers map[string]RaftState) Decision {
	if expect <= 0 {
		return Decision{Why: "this agent does not bootstrap (bootstrap_expect is 0): it waits until a group adds it"}
	}
	var asked []Member // live agents that may know a group
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
	// Agents that are leaving or have no expectation do not start a group, but may know one.
	candidates := slices.DeleteFunc(slices.Clone(asked), func(m Member) bool {
		return m.BootstrapExpect != expect || m.Status == StatusLeaving
	})

	for _, m := range asked {
		if a, ok := answers[m.ID]; ok && (a.HasState || len(a.Peers) > 0) {
			return Decision{Why: fmt.Sprintf("agent %s (%s) already knows a Raft group; this agent waits until the group adds it", m.Name, m.ID)}
		}
	}
	if len(candidates) < expect {
		return Decision{Why: fmt.Sprintf("%d of %d eligible agents have joined the mesh", len(candidates), expect)}
	}
	var ask []Member
	for _, m := range asked {
		if _, ok := answers[m.ID]; !ok {
			ask = append(ask, m)
		}
	}
	if len(ask) > 0 {
		return Decision{Ask: ask, Why: fmt.Sprintf("%d of %d agents have not answered yet whether they know a Raft group", len(ask), len(asked))}
	}
	servers := candidates[:expect:expect]
	return Decision{
		Bootstrap: servers[0].ID == self,
		Servers:   servers,
		Why:       fmt.Sprintf("agent %s (%s) starts the Raft group with %d voters", servers[0].Name, servers[0].ID, expect),
	}
}
