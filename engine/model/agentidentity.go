package model

// The roles of agents in certificates. A voter may hold the replicated state and the mesh's keys; a worker never does.
const (
	RoleVoter  = "voter"
	RoleWorker = "worker"
)

// JoinToken lets agents join the mesh.
type JoinToken struct {
	ID      string   `json:"id"`
	Hash    []byte   `json:"-"` // SHA-256 of its secret
	Role    string   `json:"kind" doc:"What its agents may be: voter or worker"`
	Zone    string   `json:"zone,omitempty" doc:"Their failure zone"`
	Names   []string `json:"names,omitempty" doc:"Host names and addresses of their API"`
	API     bool     `json:"api,omitempty" doc:"They may serve the API to other machines"`
	Uses    int      `json:"uses" doc:"How many more agents can join with it"`
	Expires int64    `json:"expires" doc:"When it ends, in Unix milliseconds"`
	Created int64    `json:"created"`
	Creator string   `json:"creator"`
}

// AgentIdentity is what the mesh has on record of an agent that it has admitted.
type AgentIdentity struct {
	Agent string   `json:"agent"`
	Role  string   `json:"role"`
	Zone  string   `json:"zone,omitempty"`
	Names []string `json:"names,omitempty"`
	API   bool     `json:"api,omitempty"`
	// Keys are the ids of the agent's latest public keys, the newest last. A certificate of an older key is a copy's.
	Keys []string `json:"keys"`
	// Token is the id of the join token that the agent used; the first agent used none.
	Token    string `json:"token,omitempty"`
	Admitted int64  `json:"admitted"`
	// Removed is when the agent was removed from the mesh, in Unix milliseconds; 0: it was not.
	Removed int64 `json:"removed,omitempty"`
}

// HasKey reports whether an agent may renew its certificate with one of its latest keys.
func (a *AgentIdentity) HasKey(id string) bool {
	for _, k := range a.Keys {
		if k == id {
			return true
		}
	}
	return false
}

// WithKey returns the identity with a newer key. The two latest are kept: the answer to a renewal may be lost.
func (a *AgentIdentity) WithKey(id string) AgentIdentity {
	next := *a
	next.Keys = append(append([]string{}, a.Keys[max(0, len(a.Keys)-1):]...), id)
	return next
}
