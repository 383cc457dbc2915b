package api

import (
	"encoding/json"

	"github.com/coopr/coopr/engine/model"
)

// Consistency says how fresh a read must be.
type Consistency string

// The consistencies: the leader's state, checked by its lease; the same after
// a round of the voters; or whatever the agent at hand has.
const (
	Default    Consistency = "default"
	Consistent Consistency = "consistent"
	Stale      Consistency = "stale"
)

// Written tells at which index a write is done.
type Written struct {
	Index uint64
	// Repeated says that the request id was known: the write was done before.
	Repeated bool
	// Warnings do not stop a write.
	Warnings model.Faults
}

// Operate asks for an operation on a cluster.
type Operate struct {
	Type     model.OperationType `json:"type"`
	Services []string            `json:"services,omitempty"`
	// Config and Restart are for configure.
	Config     map[string]any `json:"config,omitempty"`
	ConfigMode string         `json:"configMode,omitempty"`
	Restart    *bool          `json:"restart,omitempty"`
	// Graceful is for delete: stop and remove services first.
	Graceful bool `json:"graceful,omitempty"`
	// ProviderFields are user fields that the provider needs for it.
	ProviderFields map[string]any `json:"providerFields,omitempty"`
	// Change is for what changes the layout or the definitions, and for rollback;
	// its services and provider fields are those above.
	Change model.ChangeCluster `json:"change,omitzero"`
	DryRun bool                `json:"dryRun,omitempty"`
	// Rollout is how nodes take turns.
	model.Rollout
}

// Started is a new operation, or the preview of one.
type Started struct {
	Operation model.Operation
	Cluster   model.Cluster
	Preview   Preview
	Written   Written
}

// Preview says what an operation will do, before it does it.
type Preview struct {
	Layout model.Layout `json:"layout,omitempty"`
	// Nodes are the node records as they will be.
	Nodes []model.Node `json:"nodes,omitempty"`
	// Cost per hour of the whole cluster, where every hardware type has one.
	Cost  *float64 `json:"cost,omitempty"`
	Tasks int      `json:"tasks"`
	// Changes are what becomes of nodes that exist, and the new ones.
	Changes []NodeChange `json:"changes,omitempty"`
	// Stages are the plan's levels, each with its counts per action and
	// service: {"INSTALL nginx": 4}.
	Stages []map[string]int `json:"stages,omitempty"`
	// Tight names the constraints that leave no room.
	Tight    []string        `json:"tight,omitempty"`
	Warnings []string        `json:"warnings,omitempty"`
	Extra    json.RawMessage `json:"extra,omitempty"`
}

// NodeChange is what an operation does to one node.
type NodeChange struct {
	Node string `json:"node"`
	// What is "new", "removed", "replaced" or "changed".
	What   string   `json:"what" enum:"new,removed,replaced,changed"`
	Add    []string `json:"add,omitempty" doc:"Services that it gets"`
	Remove []string `json:"remove,omitempty" doc:"Services that it loses"`
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
	// Busy counts its tasks at work; only the leader knows it of all.
	Busy *int `json:"busy,omitempty"`
}

// AgentStatus tells how an agent and its mesh are.
type AgentStatus struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Build       string `json:"build"`
	Mesh        string `json:"mesh,omitempty" doc:"The mesh's own name, which is in the names and tags of machines; on voters"`
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
}

// RaftPeer is one member of the Raft group.
type RaftPeer struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Addr    string `json:"addr"`
	Voter   bool   `json:"voter"`
	Leader  bool   `json:"leader"`
	Healthy bool   `json:"healthy"`
}
