package api

import "github.com/coopr/coopr/engine/model"

// TenantUse is a tenant with the use of its limits.
type TenantUse struct {
	model.Tenant
	// Use is ignored in a request.
	Use []model.Use `json:"use,omitempty" doc:"How much of each limit is used; a request may have it, and it is ignored"`
}
