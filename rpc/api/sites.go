package api

import (
	"net/http"

	"github.com/coopr/coopr/engine/change/site"
)

// SiteApplied is the answer to a document.
type SiteApplied struct {
	site.ChangePreview
	// Unchanged says that the document is in force already: nothing was done.
	Unchanged bool `json:"unchanged,omitempty"`
}

func (s SiteApplied) HTTPStatus() int {
	if s.Unchanged {
		return http.StatusOK
	}
	return http.StatusAccepted
}

// RevertBody says where to go back to.
type RevertBody struct {
	Generation uint64 `json:"generation,omitempty" doc:"The generation whose content shall be in force again; absent: the one before"`
}

// ReleaseBody says which object holds nothing, and why somebody is sure of it.
type ReleaseBody struct {
	Object string `json:"object"`
	Reason string `json:"reason"`
}
