package model

// ChangeObject is a change object that a service carries: one of it is kept on
// every node that the service runs on (docs/changes.md).
type ChangeObject struct {
	Name string `json:"name"`
	// Type is "script", "service", "filetree" or "ha-resource".
	Type      string `json:"type"`
	Preferred string `json:"preferred,omitempty"`
	// Content may have macros, as configuration may.
	Content  map[string]any            `json:"content,omitempty"`
	Actions  map[string]map[string]any `json:"actions,omitempty"`
	Requires []ChangeRequirement       `json:"requires,omitempty"`
	Holds    []ChangeHolding           `json:"holds,omitempty"`
	// CheckInterval is how often the cluster's objects are looked at for drift; the
	// shortest of all that are given counts for all, 30 s where none is.
	CheckInterval Millis `json:"check_interval,omitempty"`
}

// ChangeRequirement is what a transition needs of another object: "NAME" of the
// same service and node, or "SERVICE/NAME" of another: on the same node, or else
// on every node that has the service.
type ChangeRequirement struct {
	To     string `json:"to,omitempty"`
	From   string `json:"from,omitempty"`
	Object string `json:"object"`
	State  string `json:"state,omitempty"`
}

// ChangeHolding is what must be held to be held; Object is as in ChangeRequirement.
type ChangeHolding struct {
	State  string `json:"state,omitempty"`
	Object string `json:"object"`
	In     string `json:"in,omitempty"`
}
