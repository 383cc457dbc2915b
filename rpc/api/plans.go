package api

import (
	"github.com/coopr/coopr/engine/plan/tree"
)

// Plan is one plan of a cluster, and the operation that it belongs to. A plan without an operation
// that is not custom has nothing to do.
type Plan struct {
	Name      string
	Operation string
	// Custom plans are the template's own. Operators start them; Operation is "" until the first
	// start. Over is true if the operation has ended: starting the plan again creates another
	// operation.
	Custom, Over bool
}

// Said is the answer to an order about a plan or a pod.
type Said struct {
	Message string `json:"message" doc:"The result in words"`
}

// PlanInfo, PlansAtAGlance and ClusterHealth are types of package tree, with names that are unique
// in the OpenAPI document.
type (
	PlanInfo       tree.Info
	PlansAtAGlance tree.Debug
	ClusterHealth  tree.Health
)
