package solver

import "github.com/coopr/coopr/engine/model"

// Answer is the preferred layout and what an operator wants to know of it
// before saying yes (docs/spec/solver.md rules 8 and 11).
type Answer struct {
	// Layout is the whole cluster after the operation, most preferred group
	// first; new nodes are numbered in this order.
	Layout model.Layout `json:"layout"`
	// Services are all services of the cluster after the operation, sorted.
	Services []string `json:"services"`
	// Comparator is the one that decided.
	Comparator string `json:"comparator"`
	// Cost of the whole layout; nil where a hardware type in it has none.
	Cost *Cost `json:"cost,omitempty"`
	// Groups tell more about each group of Layout, in the same order.
	Groups []Group `json:"groups"`
	// Tight are the constraints that are at their limit.
	Tight []Constraint `json:"tight,omitempty"`

	// New are the nodes to be made; for a new cluster the same as Layout.
	New model.Layout `json:"new,omitempty"`
	// Changed are the existing nodes that gain or lose services, by number.
	Changed []NodeChange `json:"changed,omitempty"`
	// Removed are the ids of nodes to be deleted, newest first.
	Removed []string `json:"removed,omitempty"`
	// Placement tells each node's zone and host where a spread asks for it:
	// one entry a group and place.
	Placement []Placement `json:"placement,omitempty"`
}

// Group is what a preview shows of one group of equal nodes.
type Group struct {
	// Nodes in the group after the operation.
	Nodes int `json:"nodes"`
	// Existing of them were there before.
	Existing int `json:"existing,omitempty"`
	// Cost of the group; nil where its hardware type has none.
	Cost *Cost `json:"cost,omitempty"`
}

// Cost is a decimal amount per hour in the unit of the hardware types' "cost".
type Cost struct {
	PerHour string `json:"perHour"`
}

// NodeChange is what becomes of one existing node.
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
