package api

import "github.com/coopr/coopr/engine/roster"

// NewJoinToken requests a token with which agents join the mesh.
type NewJoinToken struct {
	Kind  string   `json:"kind" doc:"What its agents may be: voter or worker"`
	TTL   string   `json:"ttl,omitempty" doc:"How long the token is good, such as 1h; 1h if absent"`
	Uses  *int     `json:"uses,omitempty" doc:"How many agents can join with it; 1 if absent"`
	Zone  string   `json:"zone,omitempty" doc:"The failure zone of its agents; their own configuration names it if absent"`
	API   bool     `json:"api,omitempty" doc:"A worker may serve the API to other machines, and then sees tokens and passwords of those who use it"`
	Names []string `json:"names,omitempty" doc:"Host names and addresses for the certificate of a worker's API; a voter has its own"`
}

// IssuedJoinToken is a new join token. No later answer shows its secret again.
type IssuedJoinToken struct {
	roster.JoinToken
	Secret string `json:"secret" doc:"The token itself: it is shown only in this answer and not stored"`
}
