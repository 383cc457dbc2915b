package model

// Orphan is a machine that a provider has for this mesh and that belongs to no node.
type Orphan struct {
	Tenant   string `json:"tenant"`
	Provider string `json:"provider"` // name of the definition
	// ID is the provider's own name for the machine.
	ID      string `json:"id"`
	Cluster string `json:"cluster"`
	Node    string `json:"node"`
	// Fence is the fence of the attempt that made it.
	Fence uint64 `json:"fence"`
	// Why is the reason why it belongs to no node.
	Why OrphanReason `json:"why"`
	// Since is when the current leader first saw it. DeleteAt is when the policy removes it
	// (0: never). Both are Unix milliseconds.
	Since    int64 `json:"since"`
	DeleteAt int64 `json:"deleteAt,omitempty"`
	// Fault is the reason why it could not be removed.
	Fault string `json:"fault,omitempty"`
}

// OrphanReason is the reason why a machine belongs to no node.
type OrphanReason string

// The reasons.
const (
	// OrphanUnknown: the cluster is unknown. It was lost, for example by restoring an older
	// snapshot. The policy keeps the machine; a user has to decide.
	OrphanUnknown OrphanReason = "unknown-cluster"
	// OrphanNoNode: the cluster is known and has no such node.
	OrphanNoNode OrphanReason = "no-such-node"
	// OrphanNotMade: the node is known, but has not been made or has been deleted.
	OrphanNotMade OrphanReason = "node-not-made"
	// OrphanSecond: the node has another machine.
	OrphanSecond OrphanReason = "second-machine"
)

// Orphaned reports whether a machine with the tags of a cluster and a node belongs to no node,
// and why. The argument n is the node with that id, or nil. clusterKnown reports whether the
// cluster is known, and busy whether it has an operation that has not ended and may be making
// or removing the machine.
func Orphaned(n *Node, clusterKnown, busy bool, id string) (OrphanReason, bool) {
	switch {
	case !clusterKnown:
		return OrphanUnknown, true
	case busy:
		return "", false
	case n == nil:
		return OrphanNoNode, true
	case n.Broken:
		return "", false // unknown: the next operation finds out
	case !n.Created:
		return OrphanNotMade, true
	}
	mine, _ := n.Results["providerid"].(string)
	if mine != "" && mine != id && n.Confirmed {
		return OrphanSecond, true
	}
	return "", false
}

// MissingMachine is a node whose machine its provider does not list.
type MissingMachine struct {
	Tenant   string `json:"tenant"`
	Provider string `json:"provider"`
	Cluster  string `json:"cluster"`
	Node     string `json:"node"`
	ID       string `json:"id"` // the machine's id, according to the records
}

// ProviderListing is the answer of one provider to a request for its machines.
type ProviderListing struct {
	Tenant   string `json:"tenant"`
	Provider string `json:"provider"`
	Type     string `json:"providertype"`
	Machines int    `json:"machines"`
	// Fault is the reason why the list is incomplete. Then none of its machines counts as
	// missing.
	Fault string `json:"fault,omitempty"`
}

// FoundOrphan records when an orphan was found first.
type FoundOrphan struct {
	Tenant, ProviderType, ID string
	Since                    int64
}

// OrphanSearch is the record of the latest search for orphans.
type OrphanSearch struct {
	At    int64
	Found []FoundOrphan
}

// OrphanReport is a comparison of the providers' lists of machines with the records.
type OrphanReport struct {
	// At is when the providers were asked, in Unix milliseconds; 0: not yet.
	At        int64             `json:"at"`
	Providers []ProviderListing `json:"providers"`
	Orphans   []Orphan          `json:"orphans"`
	Missing   []MissingMachine  `json:"missing"`
}
