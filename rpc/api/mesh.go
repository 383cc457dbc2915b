package api

// Health says that an agent answers.
type Health struct {
	Status string `json:"status" example:"ok"`
}

// JoinBody names agents of the mesh to join.
type JoinBody struct {
	Addresses []string `json:"addresses" doc:"Gossip addresses, host or host:port"`
}

// Joined counts the agents that were reached.
type Joined struct {
	Reached int `json:"reached"`
}

// LeaveBody says who leaves the mesh.
type LeaveBody struct {
	Agent string `json:"agent,omitempty" doc:"Another agent, dead for good, by id or name; absent: the agent that is asked"`
}

// Left says who leaves.
type Left struct {
	Agent string `json:"agent,omitempty"`
}
