package solver

import "github.com/coopr/coopr/engine/model"

// Answer is the preferred layout with the facts that an operator needs to approve it
// (docs/spec/solver.md rules 8 and 11).
type Answer struct {
	// Layout is the whole cluster after the operation, most preferred group
	// first; new nodes are numbered in this order.
	Layout model.Layout `json:"layout"`
	// Services are all services of the cluster after the operation, sorted.
	Services []string `json:"services"`
	// Comparator is the name of the comparator that decided.
	Comparator string `json:"comparator"`
	// Cost is the cost of the whole layout; nil if a hardware type in it has no cost.
	Cost *Cost `json:"cost,omitempty"`
	// Groups describe each group of Layout, in the same order.
	Groups []Group `json:"groups"`
	// Tight are the constraints that are at their limit.
	Tight []Constraint `json:"tight,omitempty"`

	// New are the nodes to be created; for a new cluster the same as Layout.
	New model.Layout `json:"new,omitempty"`
	// Changed are the existing nodes that gain or lose services, by number.
	Changed []NodeChange `json:"changed,omitempty"`
	// Removed are the ids of nodes to be deleted, newest first.
	Removed []string `json:"removed,omitempty"`
	// Placement holds the zone and host of new nodes if a spread applies to them: one entry for
	// each group and place.
	Placement []Placement `json:"placement,omitempty"`
}

// Group is the summary of one group of equal nodes in a preview.
type Group struct {
	// Nodes is the size of the group after the operation.
	Nodes int `json:"nodes"`
	// Existing is the number of these nodes that were there before.
	Existing int `json:"existing,omitempty"`
	// Cost is the cost of the group; nil if its hardware type has no cost.
	Cost *Cost `json:"cost,omitempty"`
}

// Cost is a decimal amount per hour in the unit of the hardware types' "cost".
type Cost struct {
	PerHour string `json:"perHour"`
}

// NodeChange is the change of one existing node.
type NodeChange struct {
	ID     string   `json:"id"`
	Number int      `json:"nodenum"`
	Add    []string `json:"add,omitempty"`
	Remove []string `json:"remove,omitempty"`
}

// Placement puts Count nodes of the group Layout[Group] into one place.
type Placement struct {
	Group int    `json:"group"`
	Zone  string `json:"zone,omitempty"`
	Host  string `json:"host,omitempty"`
	Count int    `json:"count"`
}
