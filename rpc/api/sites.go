package api

import (
	"net/http"

	"github.com/coopr/coopr/engine/change/site"
)

// SiteApplied is the answer to a request that applies a document.
type SiteApplied struct {
	site.ChangePreview
	// Unchanged is true if the document is in force already, so that nothing was done.
	Unchanged bool `json:"unchanged,omitempty"`
}

// HTTPStatus is 200 if nothing was done, and 202 otherwise.
func (s SiteApplied) HTTPStatus() int {
	if s.Unchanged {
		return http.StatusOK
	}
	return http.StatusAccepted
}

// RevertBody names the generation to go back to.
type RevertBody struct {
	Generation uint64 `json:"generation,omitempty" doc:"The generation whose content shall be in force again; absent: the previous one"`
}

// ReleaseBody names an object that holds nothing, and the reason to be sure of it.
type ReleaseBody struct {
	Object string `json:"object"`
	Reason string `json:"reason"`
}
