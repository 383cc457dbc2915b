package model

import (
	"slices"
	"strings"
)

// ClusterStatus is the status of a cluster.
type ClusterStatus string

// The statuses of a cluster (docs/spec/coopr.md 1.3).
const (
	ClusterPending      ClusterStatus = "pending"
	ClusterActive       ClusterStatus = "active"
	ClusterIncomplete   ClusterStatus = "incomplete"
	ClusterInconsistent ClusterStatus = "inconsistent"
	ClusterTerminated   ClusterStatus = "terminated"
	// ClusterFailed: a rollback failed too. An operator tries again or marks the cluster as
	// repaired.
	ClusterFailed ClusterStatus = "failed"
)

// Cluster is a set of nodes and the services on them, managed as a unit. Template and Provider
// are copies taken when it was created.
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
	// Definitions are the service definitions that the cluster was built from.
	Definitions map[string]Service `json:"definitions"`
	Config      map[string]any     `json:"config"`
	DNSSuffix   string             `json:"dnsSuffix,omitempty"`
	// Target counts the targets of the cluster: its successive definitions, configurations and
	// layouts. Mover is the operation that set the current target. Earlier are the previous
	// targets, newest first, that services may still be at. If it is empty, all services are
	// at the current target.
	Target  int      `json:"target,omitempty"`
	Mover   string   `json:"mover,omitempty"`
	Earlier []Target `json:"earlier,omitempty"`
	// CreatedAt and ExpiresAt are Unix milliseconds; ExpiresAt 0 means never.
	CreatedAt int64 `json:"createTime"`
	ExpiresAt int64 `json:"expireTime"`
	// WarnedOf is the ExpiresAt about which the warning is on record that the lease ends soon. 0: none.
	WarnedOf int64 `json:"-"`
	// Operation is the id of the latest operation.
	Operation string `json:"operation,omitempty"`
	// Operations and Snapshots count the operations and snapshots of the cluster so far.
	Operations int `json:"operations"`
	Snapshots  int `json:"snapshots,omitempty"`
	// Resources is the number of the set of plugin resources that health checks use: that of
	// the latest operation that changed it. 0: none.
	Resources uint64 `json:"resources,omitempty"`
	// NextNode is the number of the next new node. Numbers are never reused.
	NextNode int `json:"nextNode"`
	// LacksMachines is true if the cluster is inconsistent for one reason only: operations left out
	// nodes whose machines are gone. It becomes active once those nodes have been replaced.
	LacksMachines bool `json:"lacksMachines,omitempty"`
	// ReturnTo is the number of the snapshot to which a failed cluster was to be rolled back. A
	// rollback to it can be tried again, so it is kept. 0: none.
	ReturnTo int `json:"returnTo,omitempty"`
	// Labels are for people and for policies. An order of its own changes them.
	Labels map[string]string `json:"labels,omitempty"`
	// RecoveryPaused is set while automatic recovery is paused.
	RecoveryPaused *RecoveryPause `json:"recoveryPaused,omitempty"`
	// Version is the index of the log entry that last wrote the cluster.
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
	// Zone and Host are the place of the machine in the provider's words: the chosen place
	// before the machine is made, and the place that the provider reported afterwards.
	Zone string `json:"zone,omitempty"`
	Host string `json:"host,omitempty"`
	// IPAddresses are the node's addresses by kind: access_v4, bind_v4, …
	IPAddresses map[string]string `json:"ipaddresses,omitempty"`
	// Results are the values that plugins returned for this node, by key: providerid, …
	Results map[string]any `json:"results,omitempty"`
	// Created is true if a CREATE was accepted and no DELETE has been since.
	Created bool `json:"created"`
	// Confirmed is true if a CONFIRM has succeeded since. Broken is true if it is unknown
	// whether the machine exists and works: a CREATE, CONFIRM or DELETE was tried and its
	// success was not observed.
	Confirmed bool `json:"confirmed,omitempty"`
	Broken    bool `json:"broken,omitempty"`
	// States holds the last finished action of each service: "INSTALL", "START", … An action
	// that may be half done ends in "?".
	States map[string]string `json:"states,omitempty"`
	// Leaves is true if the current operation removes the node. Leaving names the services
	// that it removes from the node.
	Leaves  bool     `json:"leaves,omitempty"`
	Leaving []string `json:"leaving,omitempty"`
	// Marks hold for each service the target of the cluster that it is at. Back are the marks
	// that the current operation restores, or leaves, as they were.
	Marks map[string]Mark `json:"marks,omitempty"`
	Back  map[string]Mark `json:"back,omitempty"`
	// Recreated is the index of the entry in which an operation ended that replaced machines, this one or one whose address is in the
	// configuration here, while another operation was open. RecreatedAt is when it ended (Unix milliseconds). See Shows.
	Recreated   uint64 `json:"-"`
	RecreatedAt int64  `json:"-"`
	// Health is set for readers only. The state stores it apart from the node.
	Health *NodeHealth `json:"health,omitempty"`
	// Version is the index of the log entry that last wrote the node.
	Version uint64 `json:"version"`
}

// ShortName returns the first part of the node's host name, which is its name within the
// cluster.
func (n *Node) ShortName() string {
	if name, _, _ := strings.Cut(n.Hostname, "."); name != "" {
		return name
	}
	return n.ID
}

// Shows reports whether the record shows the effect of a task already, whose latest lease has a fence, and which ended at a time (Unix
// milliseconds; 0 if it has not): those before the end of an operation that replaced machines while another one was open. A task that is
// completed by an order has no lease.
func (n *Node) Shows(fence uint64, ended int64) bool {
	return fence <= n.Recreated && ended <= n.RecreatedAt && n.Recreated > 0
}

// Staying returns the services that the current operation leaves on the node.
func (n *Node) Staying() []string {
	if len(n.Leaving) == 0 {
		return n.Services
	}
	return slices.DeleteFunc(slices.Clone(n.Services), func(s string) bool { return slices.Contains(n.Leaving, s) })
}

// Mark records the target that a service on a node is at: see Target.
type Mark struct {
	// Definition and Config are the numbers of the targets that the service was last built from and
	// configured with. Configured is the operation that configured the service; a rollback uses it
	// to find out whether the service was configured since.
	Definition int    `json:"definition,omitempty"`
	Config     int    `json:"config,omitempty"`
	Configured string `json:"configured,omitempty"`
	// Goal is the state, START or STOP, that the service was in when an operation began to
	// rebuild it. It is kept until the rebuild is complete, so that any operation that
	// completes it restores that state.
	Goal string `json:"goal,omitempty"`
	// Initialized is true if an INITIALIZE has succeeded since the service came to the node.
	Initialized bool `json:"initialized,omitempty"`
	// Started is the index of the log entry that leased the latest START of the service; 0 if it was never started on this machine.
	Started uint64 `json:"started,omitempty"`
}

// Snapshot is the record of a cluster at one moment (docs/spec/planner.md, "Transactions" 8).
type Snapshot struct {
	Tenant  string `json:"tenant"`
	Cluster string `json:"cluster"`
	// Number is the number of the snapshot within its cluster, from 1.
	Number int `json:"number"`
	// Time is in Unix milliseconds.
	Time int64 `json:"time"`
	// Operation and Moment identify when it was taken: before or after the operation, or when
	// the operation failed.
	Operation string `json:"operation"`
	Moment    string `json:"moment"`
	// State is the record of the cluster, and Nodes are those of its nodes, when the snapshot was
	// taken. Readers must not change them.
	State *Cluster `json:"state"`
	Nodes []*Node  `json:"nodes"`
}

// The moments of snapshots.
const (
	MomentBefore = "before"
	MomentAfter  = "after"
	MomentFailed = "failed"
)

// Tenant owns definitions and clusters. Tenants share nothing.
type Tenant struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	// Weight is the tenant's share of worker slots relative to other tenants (1 is the
	// default).
	Weight int `json:"weight,omitempty"`
	// The limits of what the tenant may have and do; see TenantLimits. 0 stands for the default.
	MaxClusters        int   `json:"maxClusters,omitempty" doc:"Clusters that are not terminated"`
	MaxNodes           int   `json:"maxNodes,omitempty" doc:"Nodes of all clusters"`
	MaxOperations      int   `json:"maxOperations,omitempty" doc:"Operations that run or wait"`
	MaxRuns            int   `json:"maxRuns,omitempty" doc:"Runs on record, also those that are over"`
	MaxDefinitions     int   `json:"maxDefinitions,omitempty" doc:"Definitions of each kind; also programs, profiles, schedules and sites"`
	MaxVersions        int   `json:"maxVersions,omitempty" doc:"Versions of one definition; the oldest go"`
	MaxDocumentBytes   int64 `json:"maxDocumentBytes,omitempty" doc:"Bytes of one document"`
	MaxDefinitionBytes int64 `json:"maxDefinitionBytes,omitempty" doc:"Bytes of all documents in all versions"`
	MaxPolicies        int   `json:"maxPolicies,omitempty" doc:"Policies in all policy documents"`
	MaxSecrets         int   `json:"maxSecrets,omitempty" doc:"Secrets"`
	MaxTokens          int   `json:"maxTokens,omitempty" doc:"Tokens"`
	MaxUsers           int   `json:"maxUsers,omitempty" doc:"Users, with the deleted ones"`
	MaxResources       int   `json:"maxResources,omitempty" doc:"Plugin resources"`
	MaxResourceBytes   int64 `json:"maxResourceBytes,omitempty" doc:"Bytes of plugin resources; default: limits.resources of the agents"`
	MaxRequestIDs      int   `json:"maxRequestIds,omitempty" doc:"Request ids that are remembered; the oldest go"`
	MaxRequests        int   `json:"maxRequests,omitempty" doc:"Requests a second at one agent; twice as many at once"`
	MaxStreams         int   `json:"maxStreams,omitempty" doc:"Blocking reads, event streams and followed logs at one agent"`
}

// MaxClusterSize is the highest number of nodes in a cluster (docs/spec/coopr.md 2.3).
const MaxClusterSize = 10000

// Layout is the answer of the solver: groups of equal nodes, in the order in which nodes are
// numbered.
type Layout []NodeGroup

// NodeGroup is Count nodes with the same hardware, image and services (sorted).
type NodeGroup struct {
	Count        int      `json:"count"`
	HardwareType string   `json:"hardwaretype"`
	ImageType    string   `json:"imagetype"`
	Services     []string `json:"services"`
}

// Nodes returns the number of nodes in the layout.
func (l Layout) Nodes() int {
	n := 0
	for _, g := range l {
		n += g.Count
	}
	return n
}
