package api

import (
	"github.com/coopr/coopr/engine/model"
)

// Self is the caller that the token of a request belongs to.
type Self struct {
	Actor  string     `json:"actor" doc:"The name of the token's user in logs and records"`
	Tenant string     `json:"tenant" doc:"The tenant that the request acts in"`
	Role   model.Role `json:"role" enum:"superadmin,admin,user,read" doc:"The role"`
	Groups []string   `json:"groups,omitempty" doc:"The groups, as policies name them"`
	// Session and Expires are of the token.
	Session bool  `json:"session,omitempty" doc:"The token is a session, which a login opened"`
	Expires int64 `json:"expires,omitempty" doc:"When the token ends, in Unix milliseconds; absent: never"`
	Account bool  `json:"account,omitempty" doc:"The caller is a service account"`
	Root    bool  `json:"root,omitempty" doc:"The token is the root token, which no policy restricts"`
	// Sources are of the token, and an agent that has asked the leader about it keeps to them.
	Sources []string `json:"sources,omitempty" doc:"The IP networks from which the token can be used; absent: from anywhere"`
}

// Permission is the answer to the question whether somebody may do something.
type Permission struct {
	Allowed  bool             `json:"allowed"`
	Actor    string           `json:"actor" doc:"Whose permission it is"`
	Rule     string           `json:"rule" doc:"The rule that decided: root, a permit, a forbid of the mesh or of the tenant, or that nothing allows it"`
	Policies []DecidingPolicy `json:"policies,omitempty" doc:"The policies that decided"`
	Grants   []string         `json:"grants,omitempty" doc:"The ids of the grants that decided"`
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
	// TTL and Description are of the token.
	TTL         string `json:"ttl,omitempty" doc:"How long the token is valid, such as 12h or 30d; without end if absent"`
	Description string `json:"description,omitempty" doc:"What the token is for"`
	// Sources are checked for each request with the token.
	Sources []string `json:"sources,omitempty" doc:"IP networks and addresses from which alone the token can be used, such as 10.0.0.0/8; at most 32"`
}

// IssuedToken is a new token. No later answer shows its secret again.
type IssuedToken struct {
	model.Token
	Secret string `json:"secret" doc:"The token itself: it is shown only in this answer and not stored"`
}
