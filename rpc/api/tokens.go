package api

import (
	"github.com/coopr/coopr/engine/model"
)

// Self is the caller that the token of a request belongs to.
type Self struct {
	Actor  string     `json:"actor" doc:"The name of the token's user in logs and records"`
	Tenant string     `json:"tenant" doc:"The tenant that the request acts in"`
	Role   model.Role `json:"role" enum:"superadmin,admin,user,read" doc:"The token's role"`
}

// NewToken requests a token.
type NewToken struct {
	Actor string     `json:"actor" doc:"The name of the token's user in logs and records"`
	Role  model.Role `json:"role,omitempty" enum:"superadmin,admin,user,read" doc:"The token's role; user if absent"`
}

// IssuedToken is a new token. No later answer shows its secret again.
type IssuedToken struct {
	model.Token
	Secret string `json:"secret" doc:"The token itself: it is shown only in this answer and not stored"`
}
