package api

import "github.com/coopr/coopr/engine/roster"

// TransferBody names the next leader.
type TransferBody struct {
	To string `json:"to,omitempty" doc:"The id or name of a voter; absent: any voter"`
}

// Done is the answer of a request that has no other result.
type Done struct {
	Done bool `json:"done"`
}

// NewRotation asks for the rotation of a key of the mesh.
type NewRotation struct {
	Kind string `json:"kind" enum:"keyring,root" doc:"The mesh key, or the root token"`
	Full bool   `json:"full,omitempty" doc:"Of the mesh key: replace data keys too, and encrypt all values again"`
}

// BegunRotation is a rotation that was asked for. No later answer shows its secret again.
type BegunRotation struct {
	roster.Rotation
	Secret string `json:"secret,omitempty" doc:"The new root token: it is shown only in this answer and not stored"`
}
