package site

import (
	"github.com/coopr/coopr/engine/model"
)

// Document is a site as users write it, in YAML or JSON.
type Document struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	// CheckInterval is how often everything is checked for drift and repaired,
	// such as "30s"; never where it is absent.
	CheckInterval model.Millis `json:"check_interval,omitempty"`
	Objects       []Object     `json:"objects"`
}

// Object is one change object of a document.
type Object struct {
	Name string `json:"name"`
	// Host is where it acts: "agent:NAME" or "node:CLUSTER/NODE".
	Host string `json:"host"`
	// Type is "script", "service", "filetree" or "ha-resource".
	Type string `json:"type"`
	// Preferred is the state that it is kept in; the type's where it is absent.
	Preferred string `json:"preferred,omitempty"`
	// Content is what the type makes of the object; a changed one makes the
	// object be checked anew.
	Content map[string]any `json:"content,omitempty"`
	// Actions is what single actions are told, by their names and "check".
	Actions  map[string]map[string]any `json:"actions,omitempty"`
	Requires []Requirement             `json:"requires,omitempty"`
	Holds    []Holding                 `json:"holds,omitempty"`
}

// Requirement is a transition dependency (rule 7): to go From one state To another
// the object must hold Object locked in State.
type Requirement struct {
	To     string `json:"to,omitempty"`   // default: the preferred state; "*" for any
	From   string `json:"from,omitempty"` // default: any
	Object string `json:"object"`
	State  string `json:"state,omitempty"` // default: that object's preferred state
}

// Holding is a lock dependency (rule 8): to be locked in State the object must
// hold Object locked In a state.
type Holding struct {
	State  string `json:"state,omitempty"` // default: the preferred state
	Object string `json:"object"`
	In     string `json:"in,omitempty"` // default: that object's preferred state
}

// Parse reads a document from YAML or JSON. The error is model.Faults: all that
// is wrong with its shape, with paths and lines; Compile says what is wrong
// with what it says.
func Parse(data []byte) (*Document, error) {
	var d Document
	if err := model.DecodeStrict(data, &d); err != nil {
		return nil, err
	}
	return &d, nil
}
