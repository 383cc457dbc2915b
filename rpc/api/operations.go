package api

import (
	"github.com/coopr/coopr/engine/model"
)

// OperationDetails is an operation and how far it is.
type OperationDetails struct {
	model.Operation
	Progress model.Progress `json:"progress"`
}

// OrderBody says why an order is given.
type OrderBody struct {
	Reason string `json:"reason,omitempty" doc:"Why, for those who read the operation later"`
}
