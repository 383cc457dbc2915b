package api

import (
	"encoding/json"

	"github.com/coopr/coopr/engine/effect"
	"github.com/coopr/coopr/engine/model"
)

// Consistency is how fresh the answer to a read must be.
type Consistency string

// Default reads the leader's state, which its lease guarantees to be current. Consistent confirms
// the leadership with the voters first. Stale reads what the contacted agent has.
const (
	Default    Consistency = "default"
	Consistent Consistency = "consistent"
	Stale      Consistency = "stale"
)

// Written is the result of a write.
type Written struct {
	Index uint64
	// Repeated is true if a write with the same request id was carried out before.
	Repeated bool
	// Warnings did not stop the write.
	Warnings model.Faults
	// Effect is what the write made. The answer is made from it, and not from a later state.
	Effect effect.Rows
}

// Operate requests an operation on a cluster.
type Operate struct {
	Type     model.OperationType `json:"type"`
	Services []string            `json:"services,omitempty"`
	// Config and Restart are for configure.
	Config     map[string]any `json:"config,omitempty"`
	ConfigMode string         `json:"configMode,omitempty"`
	Restart    *bool          `json:"restart,omitempty"`
	// Graceful is for delete: it stops and removes the services first.
	Graceful bool `json:"graceful,omitempty"`
	// ProviderFields are the user fields that the provider needs for the operation.
	ProviderFields map[string]any `json:"providerFields,omitempty"`
	// Change has the other parameters of operations that change the layout or the definitions, and
	// of rollback. Its services and provider fields are those above.
	Change model.ChangeCluster `json:"change,omitzero"`
	DryRun bool                `json:"dryRun,omitempty"`
	// Rollout limits how many nodes change at a time.
	model.Rollout
	// NodeChoice limits a start, stop or restart to some nodes.
	model.NodeChoice
}

// Started is a new operation, or the preview of one.
type Started struct {
	Operation model.Operation
	Cluster   model.Cluster
	Preview   Preview
	Written   Written
}

// Preview is what an operation is going to do.
type Preview struct {
	Layout model.Layout `json:"layout,omitempty"`
	// Nodes are the node records after the operation.
	Nodes []model.Node `json:"nodes,omitempty"`
	// Cost is the cost of the whole cluster per hour, if the costs of all hardware types are
	// known.
	Cost  *float64 `json:"cost,omitempty"`
	Tasks int      `json:"tasks"`
	// Changes lists new nodes, and the nodes that the operation changes.
	Changes []NodeChange `json:"changes,omitempty"`
	// Stages are the stages of the plan. Each counts its tasks by action and service: {"INSTALL
	// nginx": 4}.
	Stages []map[string]int `json:"stages,omitempty"`
	// Tight lists the constraints that allow no other layout.
	Tight    []string        `json:"tight,omitempty"`
	Warnings []string        `json:"warnings,omitempty"`
	Extra    json.RawMessage `json:"extra,omitempty"`
}

// NodeChange is what an operation does to one node.
type NodeChange struct {
	Node string `json:"node"`
	// One of "new", "removed", "replaced", "changed", and "skipped", which means that the machine is
	// gone.
	What   string   `json:"what" enum:"new,removed,replaced,changed,skipped"`
	Add    []string `json:"add,omitempty" doc:"Services that are added"`
	Remove []string `json:"remove,omitempty" doc:"Services that are removed"`
}
