package model

// ChangeObject is a change object of a service. It exists on every node on which the service
// runs (docs/changes.md).
type ChangeObject struct {
	Name string `json:"name"`
	// Type is "script", "service", "filetree" or "ha-resource".
	Type      string `json:"type"`
	Preferred string `json:"preferred,omitempty"`
	// Content may contain macros, as configuration may.
	Content  map[string]any            `json:"content,omitempty"`
	Actions  map[string]map[string]any `json:"actions,omitempty"`
	Requires []ChangeRequirement       `json:"requires,omitempty"`
	Holds    []ChangeHolding           `json:"holds,omitempty"`
	// CheckInterval is how often the cluster's objects are checked for drift. The shortest
	// given interval applies to all objects; the default is 30 s.
	CheckInterval Millis `json:"check_interval,omitempty"`
}

// ChangeRequirement is what a transition needs of another object. Object is "NAME" for an
// object of the same service and node, or "SERVICE/NAME" for one of another service: on the
// same node, or else on every node that has the service.
type ChangeRequirement struct {
	To     string `json:"to,omitempty"`
	From   string `json:"from,omitempty"`
	Object string `json:"object"`
	State  string `json:"state,omitempty"`
}

// ChangeHolding is what an object must hold in order to be held. Object is as in
// ChangeRequirement.
type ChangeHolding struct {
	State  string `json:"state,omitempty"`
	Object string `json:"object"`
	In     string `json:"in,omitempty"`
}
