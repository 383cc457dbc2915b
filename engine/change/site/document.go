package site

import (
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/model/decode"
)

// Document is a site as users write it, in YAML or JSON.
type Document struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	// CheckInterval is how often all objects are checked for drift and repaired, such as
	// "30s". If it is absent, they are never checked.
	CheckInterval model.Millis `json:"check_interval,omitempty"`
	Objects       []Object     `json:"objects"`
}

// Object is one change object of a document.
type Object struct {
	Name string `json:"name"`
	// Host is where the object acts: "agent:NAME" or "node:CLUSTER/NODE".
	Host string `json:"host"`
	// Type is "script", "service", "filetree", "ha-resource" or "automator:NAME".
	Type string `json:"type"`
	// Preferred is the state in which the object is kept; default: that of the type.
	Preferred string `json:"preferred,omitempty"`
	// Content is the type's part of the definition. A change of it makes the object be checked
	// again.
	Content map[string]any `json:"content,omitempty"`
	// Actions are extra fields for single actions, by the name of the action, and for "check".
	Actions  map[string]map[string]any `json:"actions,omitempty"`
	Requires []Requirement             `json:"requires,omitempty"`
	Holds    []Holding                 `json:"holds,omitempty"`
}

// Requirement is a transition dependency (rule 7): to go from state From to state To, this
// object must hold Object locked in State.
type Requirement struct {
	To     string `json:"to,omitempty"`   // default: the preferred state; "*" for any
	From   string `json:"from,omitempty"` // default: any
	Object string `json:"object"`
	State  string `json:"state,omitempty"` // default: that object's preferred state
}

// Holding is a lock dependency (rule 8): while another object relies on this one being in
// State, this one keeps Object locked in state In.
type Holding struct {
	State  string `json:"state,omitempty"` // default: the preferred state
	Object string `json:"object"`
	In     string `json:"in,omitempty"` // default: that object's preferred state
}

// Parse reads a document from YAML or JSON. The error is model.Faults with every fault of the
// document's shape, each with its path and line. The compiler reports the other faults.
func Parse(data []byte) (*Document, error) {
	var d Document
	if err := decode.Strict(data, &d); err != nil {
		return nil, err
	}
	return &d, nil
}
