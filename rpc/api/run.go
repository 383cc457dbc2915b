package api

import (
	"github.com/coopr/coopr/engine/profile"
)

// RunDetails is a run, and what it used.
type RunDetails struct {
	profile.Run
	NodeMinutes        int64 `json:"nodeMinutes"`
	ProvisioningMillis int64 `json:"provisioningMillis,omitempty"`
}

// StopBody is the body of an order to stop.
type StopBody struct {
	KeepAlive bool   `json:"keepalive,omitempty" doc:"Keep the nodes, for as long as the profile says; without that until somebody ends them"`
	Reason    string `json:"reason,omitempty"`
}

// ExtendBody says until when nodes are kept.
type ExtendBody struct {
	ExpireAt int64 `json:"expireAt" doc:"Unix milliseconds; 0: until somebody ends them"`
}

// ForceBody is a person's word for what became of a cluster.
type ForceBody struct {
	To     profile.ClusterStatus `json:"to" enum:"DEPROVISIONED,ORPHANED"`
	Reason string                `json:"reason" doc:"What was done; it is kept in the audit log"`
}
