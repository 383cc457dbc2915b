package api

import (
	"errors"

	"github.com/coopr/coopr/engine/model"
)

// Errors of Resources beside those of Backend.
var (
	// ErrTooLarge: a content is larger than allowed.
	ErrTooLarge = errors.New("too large")
	// ErrNoMajority: a content could not be put on a majority of the voters; nothing was changed.
	ErrNoMajority = errors.New("no majority of the voters")
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
