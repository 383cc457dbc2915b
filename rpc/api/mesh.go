package api

import "github.com/coopr/coopr/engine/model"

// JoinBody names agents of the mesh to join.
type JoinBody struct {
	Addresses []string `json:"addresses" doc:"Gossip addresses, host or host:port"`
}

// Joined is the number of agents that were reached.
type Joined struct {
	Reached int `json:"reached"`
}

// LeaveBody names the agent that leaves the mesh.
type LeaveBody struct {
	Agent string `json:"agent,omitempty" doc:"Another agent, which is dead, by id or name; absent: the agent that receives the request"`
	Force bool   `json:"force,omitempty" doc:"The other agent is removed even if it answers: its certificates end at once, and what it did is given to others when its session ends"`
	// Compromised implies Force.
	Compromised bool `json:"compromised,omitempty" doc:"As force, for a voter that somebody else may have: join tokens end, and the CA (without a bridge) and the mesh key (with all data keys) are replaced"`
}

// Left names the agent that leaves.
type Left struct {
	Agent   string    `json:"agent,omitempty"`
	Exposed []Exposed `json:"exposed,omitempty" doc:"Of a compromised voter: what has secrets that it could decrypt, and that are therefore to be changed where they are used"`
}

// Exposed names something of a tenant that has a secret in it.
type Exposed struct {
	Tenant string `json:"tenant"`
	Kind   string `json:"kind" doc:"As in the API's paths: secrets, a kind of definitions, resources, sites, clusters with secrets of their own, or users whose identity provider has given the mesh a refresh token"`
	Name   string `json:"name"`
}

// Member is one agent as this agent sees it.
type Member struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	Status   string `json:"status"`
	PeerAddr string `json:"peerAddr"`
	APIAddr  string `json:"apiAddr"`
	Build    string `json:"build"`
	Zone     string `json:"zone,omitempty"`
	Voter    bool   `json:"voter"`
	Leader   bool   `json:"leader"`
	Eligible bool   `json:"eligible"`
	Slots    int    `json:"slots,omitempty"`
	// Busy is the number of tasks that run. Only the leader knows it for other agents.
	Busy *int `json:"busy,omitempty"`
}

// AgentStatus is the status of an agent and of its mesh.
type AgentStatus struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Build       string `json:"build"`
	Mesh        string `json:"mesh,omitempty" doc:"The mesh's own name, which is in the names and tags of machines; on voters only"`
	Leader      string `json:"leader,omitempty"`
	LeaderReady bool   `json:"leaderReady"`
	IsLeader    bool   `json:"isLeader"`
	Voter       bool   `json:"voter"`
	Applied     uint64 `json:"applied"`
	Term        uint64 `json:"term,omitempty"`
	Members     int    `json:"members"`
	Alive       int    `json:"alive"`
	Session     string `json:"session,omitempty"`
	Slots       int    `json:"slots"`
	Busy        int    `json:"busy"`

	Quorum  Quorum         `json:"quorum"`
	Missing []MissingAgent `json:"missing,omitempty" doc:"Agents without a vote that do not answer"`

	Clocks []ClockOffset `json:"clocks,omitempty" doc:"Agents whose clocks differ from the others by more than 15 minutes"`

	Retention Retention  `json:"retention"`
	Isolation *Isolation `json:"isolation,omitempty" doc:"What keeps this agent's plugins away from it; absent in simulations"`
}

// ClockOffset is how far an agent's clock differs from those of the other agents.
type ClockOffset struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Ahead int64  `json:"ahead" doc:"In milliseconds; negative: it is behind"`
}

// Isolation is what keeps the plugins of an agent away from it.
type Isolation struct {
	Grade    string         `json:"grade" enum:"separate,shared,none" doc:"separate: a user of their own; shared: the agent's user; none: the kernel has no Landlock"`
	User     string         `json:"user,omitempty" doc:"The user of plugins; absent: the agent's"`
	Warnings []string       `json:"warnings,omitempty"`
	Killed   []KilledPlugin `json:"killed,omitempty" doc:"Plugins that exceeded a limit since the agent started"`
}

// KilledPlugin is a plugin that exceeded a limit.
type KilledPlugin struct {
	Plugin string `json:"plugin" doc:"Name of its file"`
	Reason string `json:"reason"`
	At     int64  `json:"at" doc:"When it was killed last, in milliseconds since 1970"`
	Count  int    `json:"count" doc:"How often it was killed"`
}

// Retention is how long an agent keeps records of what has ended, and what it removed last.
type Retention struct {
	model.Retention
	LogSweep   model.LogSweep `json:"logSweep" doc:"The last sweep over the output of tasks on this agent"`
	StateSweep *model.Sweep   `json:"stateSweep,omitempty" doc:"The last sweep over the state; on the leader only"`
}

// RaftPeer is one member of the Raft group.
type RaftPeer struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Addr    string `json:"addr"`
	Voter   bool   `json:"voter"`
	Leader  bool   `json:"leader"`
	Healthy bool   `json:"healthy"`
	// State and Checkpoint are the result of the last comparison of the members' states.
	State      string `json:"state,omitempty" enum:"same,differs,unknown" doc:"Whether the state was that of a majority of the voters"`
	Checkpoint uint64 `json:"checkpoint,omitempty" doc:"The index of the log entry at which the states were compared last"`
}
