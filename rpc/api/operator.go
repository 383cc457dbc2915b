package api

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
	Kind     string `json:"kind" enum:"keyring,root,gossip,ca,jwks" doc:"The mesh key, the root token, the key of gossip, the CA, or the key for tokens of tasks"`
	Full     bool   `json:"full,omitempty" doc:"Of the mesh key: replace data keys too, and encrypt all values again. Of jwks: end all former keys at once"`
	NoBridge bool   `json:"noBridge,omitempty" doc:"Of the CA: refuse agents that were away and clients that know only the old one"`
	// RootHash stands for the new root token, which is random and which only the caller knows.
	RootHash string `json:"rootHash,omitempty" doc:"Of the root token: the SHA-256 of the new one, in hexadecimal digits"`
}

// RestoreOptions are the choices of whoever restores a snapshot.
type RestoreOptions struct {
	// Unsigned takes a snapshot that nothing proves.
	Unsigned bool
	// Resume has the mesh begin work at once. Otherwise it is held until a person resumes it.
	Resume bool
	// File is the name of the snapshot's file, by which people recognize it.
	File string
}

// Keyring is what is known of the keyring, the other half of a backup.
type Keyring struct {
	Key      uint32 `json:"key" doc:"The number of the mesh key that is in use; 0: there is none yet"`
	Exported int64  `json:"exported,omitempty" doc:"When the keyring was last exported with this key, in Unix milliseconds; absent: it never was"`
}
