package api

import (
	"github.com/coopr/coopr/engine/model"
)

// Deleted is the answer to a deletion.
type Deleted struct {
	Kind    model.Kind `json:"kind,omitempty"`
	Name    string     `json:"name"`
	Version int        `json:"version,omitempty" doc:"0 or absent: all versions"`
}
