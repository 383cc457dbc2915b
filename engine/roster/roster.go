// Package roster has the agents that a mesh has admitted, the tokens with which they join, and rotations of the keys of the mesh.
package roster

// The roles of agents in certificates. A voter may hold the replicated state and the mesh's keys; a worker never does.
const (
	Voter  = "voter"
	Worker = "worker"
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

// Identity is what the mesh has on record of an agent that it has admitted.
type Identity struct {
	Agent string   `json:"agent"`
	Role  string   `json:"role"`
	Zone  string   `json:"zone,omitempty"`
	Names []string `json:"names,omitempty"`
	API   bool     `json:"api,omitempty"`
	// Keys are the ids of the agent's two latest public keys, the newest last, and Issued is when the newest was certified, in Unix
	// milliseconds by the clock of the voter that signed. It is always later than for the key before, whatever the clocks say.
	Keys   []string `json:"keys"`
	Issued int64    `json:"issued"`
	// Token is the id of the join token that the agent used; the first agent used none.
	Token    string `json:"token,omitempty"`
	Admitted int64  `json:"admitted"`
	// Removed is when the agent was removed from the mesh, in Unix milliseconds; 0: it was not.
	Removed int64 `json:"removed,omitempty"`
}

// Newest returns the id of the newest key.
func (a *Identity) Newest() string {
	if len(a.Keys) == 0 {
		return ""
	}
	return a.Keys[len(a.Keys)-1]
}

// Renews reports whether the agent may replace a key, whose certificate was issued at a time, by another one. The newest key may be
// replaced. The one before may be replaced by the newest only: the answer to that was lost. A key that is not on record may be
// replaced if it is newer than the record, as a voter may sign while there is no leader. Everybody else has a copy of an old disk.
func (a *Identity) Renews(old string, issued int64, next string) bool {
	switch {
	case old == a.Newest():
		return true
	case len(a.Keys) > 1 && old == a.Keys[len(a.Keys)-2]:
		return next == a.Newest()
	}
	return issued > a.Issued
}

// WithKey returns the identity with a newer key.
func (a *Identity) WithKey(id string, issued int64) Identity {
	next := *a
	next.Keys, next.Issued = append(append([]string{}, a.Keys[max(0, len(a.Keys)-1):]...), id), issued
	return next
}
