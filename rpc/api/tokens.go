package api

import (
	"github.com/coopr/coopr/engine/model"
)

// NewToken asks for a token.
type NewToken struct {
	Actor string     `json:"actor" doc:"Who will act with it, as logs and records name them"`
	Role  model.Role `json:"role,omitempty" enum:"superadmin,admin,user,read" doc:"What it may do; user unless told"`
}

// IssuedToken is a new token. Secret is shown this once.
type IssuedToken struct {
	model.Token
	Secret string `json:"secret" doc:"The token itself: it is shown this once and stored nowhere"`
}
