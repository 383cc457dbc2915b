package api

import (
	"github.com/coopr/coopr/engine/model"
)

// NewResource says what an upload is.
type NewResource struct {
	model.ResourceKey
	SHA256 string // that the content must have; "": any
	Order  string // model.ActivateResource, model.StageResource or ""
}

// Synced is the answer to a sync.
type Synced struct {
	// Active are all versions that plans work with from now on.
	Active []model.ResourceVersion `json:"active"`
}
