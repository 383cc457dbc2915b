package api

import (
	"github.com/coopr/coopr/engine/model"
)

// OperationDetails is an operation and its progress.
type OperationDetails struct {
	model.Operation
	ClusterName string         `json:"clusterName,omitempty" doc:"The cluster's name, in lists and when the operation is read"`
	Progress    model.Progress `json:"progress"`
}

// OrderBody has the reason for an order.
type OrderBody struct {
	Reason string `json:"reason,omitempty" doc:"The reason, which the operation's record keeps"`
}
