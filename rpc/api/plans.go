package api

import (
	"github.com/coopr/coopr/engine/plan/tree"
)

// Plan is one plan of a cluster: its name, and the operation that it is of; one
// that is neither of an operation nor custom has nothing to do yet.
type Plan struct {
	Name      string
	Operation string
	// Custom plans are the template's own, which operators start; without an
	// operation while none was. Over says that the operation has ended: who starts
	// the plan again begins another.
	Custom, Over bool
}

// Said is the answer to an order about a plan or a pod.
type Said struct {
	Message string `json:"message" doc:"How the order was taken"`
}

// PlanInfo, PlansAtAGlance and ClusterHealth are the tree's own, under names of
// which the document has no others.
type (
	PlanInfo       tree.Info
	PlansAtAGlance tree.Debug
	ClusterHealth  tree.Health
)
