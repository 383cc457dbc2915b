package api

import (
	"github.com/coopr/coopr/engine/plan/tree"
)

// Plan is one plan of a cluster, with the id of its operation. Operation is "" if the plan has
// nothing to do, or if it is a custom plan that was never started.
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
	Message string   `json:"message" doc:"The result in words"`
	Waits   []string `json:"waits,omitempty" doc:"Phases whose canaries still wait: an order to continue the whole plan releases none"`
	Skipped []string `json:"skipped,omitempty" doc:"Tasks that an order to repeat steps leaves out, as NODE:ACTION: an initialize whose action does not have repeat: true"`
}

// PlanInfo is a plan's tree. Like the types below it has a name here that is unique in the OpenAPI
// document.
type PlanInfo tree.Info

// PlansAtAGlance is the summary of a cluster's plans.
type PlansAtAGlance tree.Debug

// ClusterHealth is the health that a cluster's plans make up.
type ClusterHealth tree.Health
