package api

import (
	"github.com/coopr/coopr/engine/audit"
)

// AuditPage is a part of the audit log.
type AuditPage struct {
	Records []audit.Record `json:"records"`
	Next    string         `json:"next,omitempty" doc:"Continue here: the parameter from of the next request; absent at the end"`
}
