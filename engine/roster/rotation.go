package roster

// The kinds of keys that are rotated, and the phases of a rotation in their order. The rotations of the root token and of the key for
// tokens of tasks are done at once.
const (
	KindKeyring = "keyring"
	KindRoot    = "root"
	KindGossip  = "gossip"
	KindCA      = "ca"
	KindJWKS    = "jwks" // for tokens of tasks

	RotationBegun  = "begun"  // the leader makes a new key
	RotationSpread = "spread" // the new key is on record, and goes to all members of the Raft group, or to all agents
	RotationActive = "active" // the new key is in use, and replaces the old one
	RotationRetire = "retire" // nothing needs the old key, and it is erased
	RotationDone   = "done"
)

// Rotation is the latest rotation of a kind of key.
type Rotation struct {
	Kind   string `json:"kind" enum:"keyring,root,gossip,ca,jwks"`
	Number uint32 `json:"number" doc:"How many rotations of this kind there were, with this one"`
	Phase  string `json:"phase" enum:"begun,spread,active,retire,done"`
	Full   bool   `json:"full,omitempty" doc:"Data keys are replaced too, and all values are encrypted again"`
	Actor  string `json:"actor" doc:"Who began it"`
	Begun  int64  `json:"begun" doc:"When it began, in Unix milliseconds"`
	Since  int64  `json:"since" doc:"When its phase began, in Unix milliseconds"`
	// MeshKey is the number of the new mesh key, and Print its fingerprint, which is nil until it is on record.
	MeshKey uint32 `json:"meshKey,omitempty" doc:"The number of the new mesh key"`
	Print   []byte `json:"-"`
	// Index is that of the entry with which the phase began.
	Index  uint64   `json:"-"`
	Behind []string `json:"behind,omitempty" doc:"Members of the Raft group that have not followed, by id; of the key of gossip and of the CA: agents"`
	// NoBridge leaves out the certificates that lead from the old CA to the new one.
	NoBridge bool `json:"noBridge,omitempty" doc:"Agents and clients that know only the old CA are refused"`
}

// InUse reports whether the new mesh key is the one that is in use.
func (r *Rotation) InUse() bool {
	return r.Phase == RotationActive || r.Phase == RotationRetire || r.Phase == RotationDone
}
