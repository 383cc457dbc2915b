package model

import (
	"slices"
	"strings"
)

// ClusterStatus is where a cluster stands.
type ClusterStatus string

// The statuses of a cluster (docs/spec/coopr.md 1.3).
const (
	ClusterPending      ClusterStatus = "pending"
	ClusterActive       ClusterStatus = "active"
	ClusterIncomplete   ClusterStatus = "incomplete"
	ClusterInconsistent ClusterStatus = "inconsistent"
	ClusterTerminated   ClusterStatus = "terminated"
	// ClusterFailed: a rollback failed too. An operator tries again or says that it is resolved.
	ClusterFailed ClusterStatus = "failed"
)

// Cluster is a set of nodes and the services on them, managed as one thing.
// Template and Provider are copies taken when it was made.
type Cluster struct {
	ID          string          `json:"id"`
	Tenant      string          `json:"tenant"`
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Owner       string          `json:"owner"`
	Status      ClusterStatus   `json:"status"`
	Message     string          `json:"message,omitempty"`
	Template    ClusterTemplate `json:"template"`
	Provider    Provider        `json:"provider"`
	Services    []string        `json:"services"`
	// Definitions are the service definitions the cluster was built from.
	Definitions map[string]Service `json:"definitions"`
	Config      map[string]any     `json:"config"`
	DNSSuffix   string             `json:"dnsSuffix,omitempty"`
	// Target counts the targets that the cluster was moved on to: its definitions,
	// configuration and layout. Mover is the operation that moved it last, and Earlier
	// are the targets before, the newest first, that services may still stand at; none:
	// all of them are as this record says.
	Target  int      `json:"target,omitempty"`
	Mover   string   `json:"mover,omitempty"`
	Earlier []Target `json:"earlier,omitempty"`
	// CreatedAt and ExpiresAt are Unix milliseconds; ExpiresAt 0 means never.
	CreatedAt int64 `json:"createTime"`
	ExpiresAt int64 `json:"expireTime"`
	// Operation is the latest operation's id.
	Operation string `json:"operation,omitempty"`
	// Operations counts the operations there have been, and Snapshots the snapshots.
	Operations int `json:"operations"`
	Snapshots  int `json:"snapshots,omitempty"`
	// Resources is the number of the set of plugin resources that the latest operation
	// which health checks follow was planned with; 0: none.
	Resources uint64 `json:"resources,omitempty"`
	// NextNode is the number the next new node gets; numbers are never reused.
	NextNode int `json:"nextNode"`
	// RecoveryPaused says that nothing is recovered by itself; nil: it is.
	RecoveryPaused *RecoveryPause `json:"recoveryPaused,omitempty"`
	// Version is the index of the entry that last wrote the cluster.
	Version uint64 `json:"version"`
}

// FirstNodeNumber is the number of a cluster's first node (docs/spec/coopr.md 4.8).
const FirstNodeNumber = 1000

// Node is one machine of a cluster.
type Node struct {
	ID           string   `json:"id"`
	Cluster      string   `json:"cluster"`
	Tenant       string   `json:"tenant"`
	Number       int      `json:"nodenum"`
	Hostname     string   `json:"hostname"`
	HardwareType string   `json:"hardwaretype"`
	ImageType    string   `json:"imagetype"`
	Flavor       string   `json:"flavor"`
	Image        string   `json:"image"`
	SSHUser      string   `json:"sshuser,omitempty"`
	Services     []string `json:"services"`
	Automators   []string `json:"automators,omitempty"`
	// Zone and Host are where the machine is to be made, in the provider's words, as
	// chosen before it is, and where it is once its provider has said so.
	Zone string `json:"zone,omitempty"`
	Host string `json:"host,omitempty"`
	// IPAddresses by kind: access_v4, bind_v4, …
	IPAddresses map[string]string `json:"ipaddresses,omitempty"`
	// Results is what plugins returned for this node, by key: providerid, …
	Results map[string]any `json:"results,omitempty"`
	// Created is true if a CREATE was accepted and no DELETE since.
	Created bool `json:"created"`
	// Confirmed is true if a CONFIRM succeeded since. Broken says that nobody knows whether the
	// machine is there or usable: a CREATE, CONFIRM or DELETE was tried and not seen to
	// succeed.
	Confirmed bool `json:"confirmed,omitempty"`
	Broken    bool `json:"broken,omitempty"`
	// States holds each service's last finished action: "INSTALL", "START", …
	// One that was tried and may be half done ends in "?".
	States map[string]string `json:"states,omitempty"`
	// Leaves is true if the operation under way takes the node away, Leaving names the services
	// that it takes off the node.
	Leaves  bool     `json:"leaves,omitempty"`
	Leaving []string `json:"leaving,omitempty"`
	// Marks say for each service at which of the cluster's targets it stands. Back are
	// those that the operation under way brings back, or leaves, to what they were.
	Marks map[string]Mark `json:"marks,omitempty"`
	Back  map[string]Mark `json:"back,omitempty"`
	// Health is filled for readers only; the state keeps it beside the node.
	Health *NodeHealth `json:"health,omitempty"`
	// Version is the index of the entry that last wrote the node.
	Version uint64 `json:"version"`
}

// ShortName is the first part of the node's host name: its name within the cluster.
func (n *Node) ShortName() string {
	if name, _, _ := strings.Cut(n.Hostname, "."); name != "" {
		return name
	}
	return n.ID
}

// Staying returns the services that the operation under way leaves on the node.
func (n *Node) Staying() []string {
	if len(n.Leaving) == 0 {
		return n.Services
	}
	return slices.DeleteFunc(slices.Clone(n.Services), func(s string) bool { return slices.Contains(n.Leaving, s) })
}

// Mark says what a service on a node really is: see Target.
type Mark struct {
	// Definition and Config number the targets that it was last built from and
	// configured with; Configured is the operation that did: by it a rollback tells
	// whether it was done since.
	Definition int    `json:"definition,omitempty"`
	Config     int    `json:"config,omitempty"`
	Configured string `json:"configured,omitempty"`
	// Goal is the state, START or STOP, that the service was in when an operation began
	// to build it anew, until it runs: whoever brings that to its end brings it there.
	Goal string `json:"goal,omitempty"`
	// Initialized is true if an INITIALIZE succeeded since the service came to the node.
	Initialized bool `json:"initialized,omitempty"`
}

// Snapshot is a cluster at one moment (docs/spec/planner.md, "Transactions" 8).
type Snapshot struct {
	Tenant  string `json:"tenant"`
	Cluster string `json:"cluster"`
	// Number counts a cluster's snapshots from 1.
	Number int `json:"number"`
	// Time is in Unix milliseconds.
	Time int64 `json:"time"`
	// Operation and Moment say when it was taken: before or after the operation, or when it failed.
	Operation string `json:"operation"`
	Moment    string `json:"moment"`
	// State and Nodes are the records as they were. They must not be changed.
	State *Cluster `json:"state"`
	Nodes []*Node  `json:"nodes"`
}

// The moments at which snapshots are taken.
const (
	MomentBefore = "before"
	MomentAfter  = "after"
	MomentFailed = "failed"
)

// Tenant owns definitions and clusters; nothing is shared between tenants.
type Tenant struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	// Weight is the tenant's share of worker slots against other tenants (1 is usual).
	Weight      int `json:"weight,omitempty"`
	MaxClusters int `json:"maxClusters,omitempty"`
	MaxNodes    int `json:"maxNodes,omitempty"`
}

// MaxClusterSize is the most nodes one cluster may have (docs/spec/coopr.md 2.3).
const MaxClusterSize = 10000

// Layout is the answer of the solver: groups of equal nodes, in the order in
// which nodes are numbered.
type Layout []NodeGroup

// NodeGroup is Count nodes with the same hardware, image and services (sorted).
type NodeGroup struct {
	Count        int      `json:"count"`
	HardwareType string   `json:"hardwaretype"`
	ImageType    string   `json:"imagetype"`
	Services     []string `json:"services"`
}

// Nodes counts the nodes of the layout.
func (l Layout) Nodes() int {
	n := 0
	for _, g := range l {
		n += g.Count
	}
	return n
}
