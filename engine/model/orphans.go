package model

// Orphan is a machine that a provider has for this mesh and that is no node's.
type Orphan struct {
	Tenant   string `json:"tenant"`
	Provider string `json:"provider"` // name of the definition
	// ID is the provider's own name for the machine.
	ID      string `json:"id"`
	Cluster string `json:"cluster"`
	Node    string `json:"node"`
	// Fence is that of the attempt which made it.
	Fence uint64 `json:"fence"`
	// Why says what is wrong with it.
	Why OrphanReason `json:"why"`
	// Since is when it was seen first by the agent that leads now, DeleteAt when
	// the policy has it removed (0: never), both in Unix milliseconds.
	Since    int64 `json:"since"`
	DeleteAt int64 `json:"deleteAt,omitempty"`
	// Fault says why it could not be removed.
	Fault string `json:"fault,omitempty"`
}

// OrphanReason says why a machine is no node's.
type OrphanReason string

// The reasons.
const (
	// OrphanUnknown: nobody knows the cluster. It was forgotten, as by a restored
	// snapshot; the policy leaves it to people.
	OrphanUnknown OrphanReason = "unknown-cluster"
	// OrphanNoNode: the cluster is known and has no such node.
	OrphanNoNode OrphanReason = "no-such-node"
	// OrphanNotMade: the node is known, and was never made or is gone again.
	OrphanNotMade OrphanReason = "node-not-made"
	// OrphanSecond: another machine is the node's.
	OrphanSecond OrphanReason = "second-machine"
)

// Orphaned reports whether a machine that carries the tags of a cluster and a node is no
// node's. n is the node of that id, or nil; clusterKnown and busy say of the cluster whether
// it is known, and has an operation that has not ended: that one may be making or removing the
// machine just now.
func Orphaned(n *Node, clusterKnown, busy bool, id string) (OrphanReason, bool) {
	switch {
	case !clusterKnown:
		return OrphanUnknown, true
	case busy:
		return "", false
	case n == nil:
		return OrphanNoNode, true
	case n.Broken:
		return "", false // nobody knows: the next operation looks
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
	ID       string `json:"id"` // the machine's, as the records have it
}

// ProviderLook is what one provider said when it was asked for its machines.
type ProviderListing struct {
	Tenant   string `json:"tenant"`
	Provider string `json:"provider"`
	Type     string `json:"providertype"`
	Machines int    `json:"machines"`
	// Fault says why its list is not whole: then nothing of it is missing.
	Fault string `json:"fault,omitempty"`
}

// OrphanReport compares the providers' lists of machines with the records.
type OrphanReport struct {
	// At is when the providers were asked, Unix milliseconds; 0: not yet.
	At        int64             `json:"at"`
	Providers []ProviderListing `json:"providers"`
	Orphans   []Orphan          `json:"orphans"`
	Missing   []MissingMachine  `json:"missing"`
}
