package api

import (
	"github.com/coopr/coopr/engine/model"
)

// Self is the caller that the token of a request belongs to.
type Self struct {
	Actor  string     `json:"actor" doc:"The name of the token's user in logs and records"`
	Tenant string     `json:"tenant" doc:"The tenant that the request acts in"`
	Role   model.Role `json:"role" enum:"superadmin,admin,user,read" doc:"The token's role"`
	Root   bool       `json:"root,omitempty" doc:"The token is the root token, which no policy restricts"`
}

// Permission is the answer to the question whether somebody may do something.
type Permission struct {
	Allowed  bool             `json:"allowed"`
	Actor    string           `json:"actor" doc:"Whose permission it is"`
	Rule     string           `json:"rule" doc:"The rule that decided: root, a permit, a forbid of the mesh or of the tenant, or that nothing allows it"`
	Policies []DecidingPolicy `json:"policies,omitempty" doc:"The policies that decided"`
	Reason   string           `json:"reason,omitempty" doc:"Why it is denied"`
}

// DecidingPolicy is a policy that decided.
type DecidingPolicy struct {
	Policy  string `json:"policy"`
	Mesh    bool   `json:"mesh,omitempty" doc:"The policy is one of the mesh, and not of the tenant"`
	Message string `json:"message,omitempty" doc:"The policy's annotation @message"`
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
