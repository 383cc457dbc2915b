package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan/tree"
)

// The errors by which a Backend tells the API what to answer. They are
// wrapped with what happened and to what; model.Faults stands for bad input.
var (
	ErrNotFound     = errors.New("not found")
	ErrConflict     = errors.New("conflict")
	ErrForbidden    = errors.New("forbidden")
	ErrUnauthorized = errors.New("unauthorized")
	// ErrNoLeader: the mesh has no leader that could be reached in time.
	ErrNoLeader = errors.New("no leader")
	// ErrUnknownOutcome: the write may or may not be done. Repeating it with
	// the same request id is safe.
	ErrUnknownOutcome = errors.New("unknown outcome")
	// ErrQuota: the tenant has no room for it.
	ErrQuota = errors.New("quota")
)

// Consistency says how fresh a read must be.
type Consistency string

// The consistencies: the leader's state, checked by its lease; the same after
// a round of the voters; or whatever the agent at hand has.
const (
	Default    Consistency = "default"
	Consistent Consistency = "consistent"
	Stale      Consistency = "stale"
)

// Backend is what the API stands on: one agent. Requests that only the leader
// can serve reach its Backend; the API of another agent passes them on whole
// (Forward), so that everything here speaks of this agent.
type Backend interface {
	// Serves says whether this agent can serve a request: true for the leader
	// once its duties run, and for any voter when a stale read is enough.
	Serves(stale bool) bool
	// Forward passes a whole HTTP request on to the leader and copies the
	// answer; it waits a bounded time for there to be a leader. See Proxy.
	Proxy

	// Authenticate says whose token it is; ErrUnauthorized where nobody's.
	Authenticate(ctx context.Context, token string) (model.Caller, error)

	// View gives the state at one moment, at least as new as minIndex and as
	// the consistency asks; it blocks until the state is newer than after
	// (0: does not block) or ctx ends, which is no error.
	View(ctx context.Context, c Consistency, after uint64) (View, error)

	PutDefinitions(ctx context.Context, who model.Caller, defs []model.StoredDefinition, createOnly bool) (Written, error)
	DeleteDefinition(ctx context.Context, who model.Caller, kind model.Kind, name string, version int) (Written, error)
	PutTenant(ctx context.Context, who model.Caller, t model.Tenant, createOnly bool) (Written, error)
	DeleteTenant(ctx context.Context, who model.Caller, name string) (Written, error)
	// CreateToken gives the new token, shown this once.
	CreateToken(ctx context.Context, who model.Caller, t model.Token) (string, Written, error)
	DeleteToken(ctx context.Context, who model.Caller, id string) (Written, error)

	// CreateCluster solves, plans and starts, or with dryRun only previews.
	CreateCluster(ctx context.Context, who model.Caller, req model.CreateCluster, dryRun bool) (Started, error)
	// Operate starts another operation on a cluster.
	Operate(ctx context.Context, who model.Caller, cluster string, req Operate) (Started, error)
	// Resolve says that a person has put a cluster in order that an operation
	// left in disorder.
	Resolve(ctx context.Context, who model.Caller, cluster, reason string) (Written, error)
	// Order gives an operation an order: "pause", "resume", "abort", "rollback".
	Order(ctx context.Context, who model.Caller, operation, order, reason string) (Written, error)
	// BeginPlan begins a run of a plan of a cluster's template, held back until an
	// order starts it, and gives its operation.
	BeginPlan(ctx context.Context, who model.Caller, cluster, plan string) (operation string, w Written, err error)
	// OrderPlan gives an order about an operation's plan; a *Refusal says that it
	// changes nothing.
	OrderPlan(ctx context.Context, who model.Caller, operation string, o tree.Order) (Written, error)

	// Explain says what the waiting steps of an operation's plan wait for, for at
	// most so many of them. It fails with ErrNotFound where there is no plan.
	Explain(ctx context.Context, tenant, operation string, steps int) (*tree.Explanation, error)

	// Rank asks a plugin of this agent for the comparator that it offers. It
	// fails with model.Faults where none does.
	Rank(ctx context.Context, q model.RankingQuestion) (*model.Ranking, error)

	// TaskLog copies a task's log to w, from whichever agent has it; attempt 0
	// means the latest; follow goes on until the task ends.
	TaskLog(ctx context.Context, who model.Caller, task string, attempt int, follow bool, w io.Writer) error
	// Events gives the changes after an index to fn, in order, until ctx ends
	// or fn fails. Index 0: from now on. A reader that is too slow, or an index
	// too old, ends with ErrConflict: read the state again. fn is called once
	// with no events as soon as the reader is connected: what happens from
	// then on is not missed. All events of one index are in one call.
	Events(ctx context.Context, tenant string, after uint64, fn func([]model.Event) error) error

	// Orphans compares what the providers list with the records; with look they
	// are asked now, else it is what the leader found last. RemoveOrphan removes
	// one of those.
	Orphans(ctx context.Context, look bool) (model.OrphanReport, error)
	RemoveOrphan(ctx context.Context, who model.Caller, id string) (Written, error)

	// Sites is what is asked about sites of change objects; ErrNoLeader where this
	// agent does not lead.
	Sites() (Sites, error)

	// Resources is what is asked about plugin resources; ErrNoLeader where this agent
	// does not lead.
	Resources() (Resources, error)

	RunBackend

	// Members is this agent's view of the mesh.
	Members() []Member
	// Status tells how this agent and the mesh are.
	Status() AgentStatus
	// Join makes this agent look for the mesh at these gossip addresses.
	Join(ctx context.Context, addrs []string) (int, error)
	// Leave makes this agent (or force removes another, dead one) leave.
	Leave(ctx context.Context, agent string) error

	RaftPeers(ctx context.Context) ([]RaftPeer, error)
	RaftTransfer(ctx context.Context, to string) error
	RaftRemove(ctx context.Context, id string) error
	SnapshotSave(ctx context.Context, w io.Writer) error
	SnapshotRestore(ctx context.Context, r io.Reader) error
	// Metrics writes the Prometheus text format.
	Metrics(w io.Writer) error
}

// Proxy passes requests on to the leader.
type Proxy interface {
	// LeaderTransport sends one HTTP request to the leader's API over the
	// peer network. ErrNoLeader where there is none in time.
	LeaderTransport() Transport
}

// Transport is an http.RoundTripper that reaches the leader.
type Transport interface {
	RoundTripToLeader(ctx context.Context, method, uri string, header map[string][]string, body io.Reader) (status int, respHeader map[string][]string, respBody io.ReadCloser, err error)
}

// View reads the state at one moment. Everything is of one tenant unless it
// says otherwise; what is absent is the second result false.
type View interface {
	Index() uint64
	Tenants() []model.Tenant
	Tenant(name string) (model.Tenant, bool)
	Tokens(tenant string) []model.Token
	// Definitions gives the latest version of each, by name.
	Definitions(tenant string, kind model.Kind) []model.StoredDefinition
	// Definition gives one version; 0 means the latest.
	Definition(tenant string, kind model.Kind, name string, version int) (model.StoredDefinition, bool)
	Versions(tenant string, kind model.Kind, name string) []model.StoredDefinition
	Clusters(tenant string) []*model.Cluster
	// Cluster finds by id, or by name where only one living cluster has it.
	Cluster(tenant, idOrName string) (*model.Cluster, bool)
	Nodes(tenant, cluster string) []*model.Node
	Node(tenant, id string) (*model.Node, bool)
	// Operations of a cluster, or of all where cluster is "", newest first.
	Operations(tenant, cluster string) []*model.Operation
	Operation(tenant, id string) (*model.Operation, bool)
	// History gives a cluster's snapshots, the oldest first; they must not be changed.
	History(tenant, cluster string) []*model.Snapshot
	Progress(tenant, operation string) model.Progress
	// Plans gives a cluster's plans in the order of their priority.
	Plans(tenant, cluster string) []Plan
	// PlanTree gives an operation's plan as phases and steps.
	PlanTree(tenant, operation string) (*tree.View, bool)
	// CustomTree gives a plan of a cluster's template that was not run yet.
	CustomTree(tenant, cluster, plan string) (*tree.View, bool)
	// Tasks of an operation from offset on, at most limit (0: all), optionally
	// of one status; and how many there are.
	Tasks(tenant, operation string, status string, offset, limit int) ([]model.Task, int)
	Task(tenant, id string) (model.Task, bool)
	// Audit is the log of every change, of all tenants.
	Audit() *audit.Trail
	RunView
	Agents() []model.Agent
	// PluginTypes are what the agents offer, latest version of each.
	PluginTypes() []model.PluginType
	// Links are a cluster's links with macros expanded; those that cannot be
	// expanded yet are left out.
	Links(c *model.Cluster) []model.Link
}

// Written tells at which index a write is done.
type Written struct {
	Index uint64
	// Repeated says that the request id was known: the write was done before.
	Repeated bool
	// Warnings do not stop a write.
	Warnings model.Faults
}

// Operate asks for an operation on a cluster.
type Operate struct {
	Type     model.OperationType `json:"type"`
	Services []string            `json:"services,omitempty"`
	// Config and Restart are for configure.
	Config     map[string]any `json:"config,omitempty"`
	ConfigMode string         `json:"configMode,omitempty"`
	Restart    *bool          `json:"restart,omitempty"`
	// Graceful is for delete: stop and remove services first.
	Graceful bool `json:"graceful,omitempty"`
	// ProviderFields are user fields that the provider needs for it.
	ProviderFields map[string]any `json:"providerFields,omitempty"`
	// Change is for what changes the layout or the definitions, and for rollback;
	// its services and provider fields are those above.
	Change model.ChangeCluster `json:"change,omitzero"`
	DryRun bool                `json:"dryRun,omitempty"`
	// Rollout is how nodes take turns.
	model.Rollout
}

// Started is a new operation, or the preview of one.
type Started struct {
	Operation model.Operation
	Cluster   model.Cluster
	Preview   Preview
	Written   Written
}

// Preview says what an operation will do, before it does it.
type Preview struct {
	Layout model.Layout `json:"layout,omitempty"`
	// Nodes are the node records as they will be.
	Nodes []model.Node `json:"nodes,omitempty"`
	// Cost per hour of the whole cluster, where every hardware type has one.
	Cost  *float64 `json:"cost,omitempty"`
	Tasks int      `json:"tasks"`
	// Changes are what becomes of nodes that exist, and the new ones.
	Changes []NodeChange `json:"changes,omitempty"`
	// Stages are the plan's levels, each with its counts per action and
	// service: {"INSTALL nginx": 4}.
	Stages []map[string]int `json:"stages,omitempty"`
	// Tight names the constraints that leave no room.
	Tight    []string        `json:"tight,omitempty"`
	Warnings []string        `json:"warnings,omitempty"`
	Extra    json.RawMessage `json:"extra,omitempty"`
}

// NodeChange is what an operation does to one node.
type NodeChange struct {
	Node string `json:"node"`
	// What is "new", "removed", "replaced" or "changed".
	What   string   `json:"what" enum:"new,removed,replaced,changed"`
	Add    []string `json:"add,omitempty" doc:"Services that it gets"`
	Remove []string `json:"remove,omitempty" doc:"Services that it loses"`
}

// Member is one agent as this agent sees it.
type Member struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	Status   string `json:"status"`
	PeerAddr string `json:"peerAddr"`
	APIAddr  string `json:"apiAddr"`
	Build    string `json:"build"`
	Zone     string `json:"zone,omitempty"`
	Voter    bool   `json:"voter"`
	Leader   bool   `json:"leader"`
	Eligible bool   `json:"eligible"`
	Slots    int    `json:"slots,omitempty"`
	// Busy counts its tasks at work; only the leader knows it of all.
	Busy *int `json:"busy,omitempty"`
}

// AgentStatus tells how an agent and its mesh are.
type AgentStatus struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Build       string `json:"build"`
	Mesh        string `json:"mesh,omitempty" doc:"The mesh's own name, which is in the names and tags of machines; on voters"`
	Leader      string `json:"leader,omitempty"`
	LeaderReady bool   `json:"leaderReady"`
	IsLeader    bool   `json:"isLeader"`
	Voter       bool   `json:"voter"`
	Applied     uint64 `json:"applied"`
	Term        uint64 `json:"term,omitempty"`
	Members     int    `json:"members"`
	Alive       int    `json:"alive"`
	Session     string `json:"session,omitempty"`
	Slots       int    `json:"slots"`
	Busy        int    `json:"busy"`
}

// RaftPeer is one member of the Raft group.
type RaftPeer struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Addr    string `json:"addr"`
	Voter   bool   `json:"voter"`
	Leader  bool   `json:"leader"`
	Healthy bool   `json:"healthy"`
}
