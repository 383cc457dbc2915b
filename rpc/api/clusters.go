package api

import (
	"net/http"

	"github.com/coopr/coopr/engine/model"
)

// ClusterSummary is a cluster in a list (docs/spec/coopr.md 3.7).
type ClusterSummary struct {
	ID              string              `json:"id"`
	Name            string              `json:"name"`
	Description     string              `json:"description,omitempty"`
	Status          model.ClusterStatus `json:"status"`
	Message         string              `json:"message,omitempty"`
	OwnerID         string              `json:"ownerId"`
	CreatedAt       int64               `json:"createTime" doc:"Unix milliseconds"`
	ExpiresAt       int64               `json:"expireTime" doc:"Unix milliseconds; 0 means never"`
	ClusterTemplate Labelled            `json:"clusterTemplate"`
	Provider        Labelled            `json:"provider"`
	Labels          map[string]string   `json:"labels,omitempty"`
	NumNodes        int                 `json:"numNodes"`
	Health          string              `json:"health,omitempty" enum:"healthy,unhealthy,paused" doc:"The worst of its nodes; absent: nothing was checked, or the answer is that of a write"`
	Services        []string            `json:"services"`
	Operation       string              `json:"operation,omitempty" doc:"The latest operation"`
	Progress        ClusterProgress     `json:"progress"`
}

// Labels are changes of a cluster's labels.
type Labels struct {
	Set    map[string]string `json:"set,omitempty" doc:"Labels to set"`
	Remove []string          `json:"remove,omitempty" doc:"Keys of labels to remove"`
}

// Lease is a change of the lease of a cluster: it has either of the fields.
type Lease struct {
	Add       model.Millis `json:"add,omitempty" doc:"The time to add to the lease: milliseconds, or a whole number with s, m, h or d, such as 2h"`
	ExpiresAt int64        `json:"expireTime,omitempty" doc:"When the lease ends, in Unix milliseconds. Ending it earlier needs the right to delete the cluster, too"`
}

// Labelled is a definition as lists show it.
type Labelled struct {
	Name  string `json:"name"`
	Label string `json:"label,omitempty"`
	Icon  string `json:"icon,omitempty"`
}

// ClusterProgress is the progress of a cluster's latest operation.
type ClusterProgress struct {
	Action         model.OperationType   `json:"action,omitempty"`
	ActionStatus   model.OperationStatus `json:"actionstatus,omitempty"`
	StepsTotal     int                   `json:"stepstotal"`
	StepsCompleted int                   `json:"stepscompleted"`
	Counts         map[string]int        `json:"counts,omitempty" doc:"Tasks by status"`
}

// ClusterDetails is everything about one cluster.
type ClusterDetails struct {
	model.Cluster
	Nodes    []model.Node    `json:"nodes"`
	Links    []model.Link    `json:"links" doc:"Links whose macros can be expanded already"`
	Progress ClusterProgress `json:"progress"`
}

// StartedBody is the answer to a request that starts an operation, or that previews it with
// dryRun.
type StartedBody struct {
	// ID is the cluster's id, at the place where the original's answer has it. A preview has no id, no
	// cluster and no operation.
	ID        string           `json:"id,omitempty"`
	DryRun    bool             `json:"dryRun,omitempty"`
	Cluster   *model.Cluster   `json:"cluster,omitempty"`
	Operation *model.Operation `json:"operation,omitempty"`
	Preview   Preview          `json:"preview"`
	Warnings  model.Faults     `json:"warnings,omitempty"`
}

// HTTPStatus is 200 for a preview, and 202 for an operation that was accepted.
func (b StartedBody) HTTPStatus() int {
	if b.Operation == nil {
		return http.StatusOK
	}
	return http.StatusAccepted
}
