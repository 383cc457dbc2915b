package api

import (
	"github.com/coopr/coopr/engine/profile"
)

// RunDetails is a run and what it has used.
type RunDetails struct {
	profile.Run
	NodeMinutes        int64 `json:"nodeMinutes"`
	ProvisioningMillis int64 `json:"provisioningMillis,omitempty"`
}

// StopBody is the body of an order to stop.
type StopBody struct {
	KeepAlive bool   `json:"keepalive,omitempty" doc:"Keep the nodes for as long as the profile allows, or until someone deletes them if it sets no limit"`
	Reason    string `json:"reason,omitempty"`
}

// ExtendBody is the time until which nodes are kept.
type ExtendBody struct {
	ExpireAt int64 `json:"expireAt" doc:"Unix milliseconds; 0: until someone deletes them"`
}

// ForceBody is an operator's statement about the state of a run's cluster.
type ForceBody struct {
	To     profile.ClusterStatus `json:"to" enum:"DEPROVISIONED,ORPHANED"`
	Reason string                `json:"reason" doc:"What the operator did; the audit log keeps it"`
}

// StartRun requests a run.
type StartRun struct {
	Program string           `json:"program,omitempty" doc:"The program's name; absent if inline is given"`
	Version int              `json:"version,omitempty" doc:"The program's version; 0 or absent: the latest"`
	Inline  *profile.Program `json:"inline,omitempty" doc:"A program that is not stored"`
	Profile string           `json:"profile,omitempty" doc:"SYSTEM:name or name; absent: the one that the preferences choose"`
	Nodes   int              `json:"nodes,omitempty" doc:"The number of nodes, if the profile lets the caller choose it"`
	// Runtime are the runtime arguments.
	Runtime   map[string]string `json:"runtime,omitempty" doc:"Runtime arguments: system.profile.name, system.profile.properties.NAME"`
	Arguments []string          `json:"arguments,omitempty" doc:"Arguments of the program's command line"`
}
