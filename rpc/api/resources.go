package api

import (
	"github.com/coopr/coopr/engine/model"
)

// NewResource describes an upload.
type NewResource struct {
	model.ResourceKey
	SHA256 string // expected checksum of the content; "": not checked
	Order  string // model.ActivateResource, model.StageResource or ""
}

// Synced is the answer to a sync.
type Synced struct {
	// Active are all versions that new plans use from now on.
	Active []model.ResourceVersion `json:"active"`
}
