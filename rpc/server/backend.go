package server

import (
	"context"
	"io"

	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/rpc/api"
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
	View(ctx context.Context, c api.Consistency, after uint64) (View, error)

	PutDefinitions(ctx context.Context, who model.Caller, defs []model.StoredDefinition, createOnly bool) (api.Written, error)
	DeleteDefinition(ctx context.Context, who model.Caller, kind model.Kind, name string, version int) (api.Written, error)
	PutTenant(ctx context.Context, who model.Caller, t model.Tenant, createOnly bool) (api.Written, error)
	DeleteTenant(ctx context.Context, who model.Caller, name string) (api.Written, error)
	// CreateToken gives the new token, shown this once.
	CreateToken(ctx context.Context, who model.Caller, t model.Token) (string, api.Written, error)
	DeleteToken(ctx context.Context, who model.Caller, id string) (api.Written, error)

	// CreateCluster solves, plans and starts, or with dryRun only previews.
	CreateCluster(ctx context.Context, who model.Caller, req model.CreateCluster, dryRun bool) (api.Started, error)
	// Operate starts another operation on a cluster.
	Operate(ctx context.Context, who model.Caller, cluster string, req api.Operate) (api.Started, error)
	// Resolve says that a person has put a cluster in order that an operation
	// left in disorder.
	Resolve(ctx context.Context, who model.Caller, cluster, reason string) (api.Written, error)
	// Order gives an operation an order: "pause", "resume", "abort", "rollback".
	Order(ctx context.Context, who model.Caller, operation, order, reason string) (api.Written, error)
	// BeginPlan begins a run of a plan of a cluster's template, held back until an
	// order starts it, and gives its operation.
	BeginPlan(ctx context.Context, who model.Caller, cluster, plan string) (operation string, w api.Written, err error)
	// OrderPlan gives an order about an operation's plan; a *Refusal says that it
	// changes nothing.
	OrderPlan(ctx context.Context, who model.Caller, operation string, o tree.Order) (api.Written, error)

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
	RemoveOrphan(ctx context.Context, who model.Caller, id string) (api.Written, error)

	// Sites is what is asked about sites of change objects; ErrNoLeader where this
	// agent does not lead.
	Sites() (Sites, error)

	// Resources is what is asked about plugin resources; ErrNoLeader where this agent
	// does not lead.
	Resources() (Resources, error)

	RunBackend

	// Members is this agent's view of the mesh.
	Members() []api.Member
	// Status tells how this agent and the mesh are.
	Status() api.AgentStatus
	// Join makes this agent look for the mesh at these gossip addresses.
	Join(ctx context.Context, addrs []string) (int, error)
	// Leave makes this agent (or force removes another, dead one) leave.
	Leave(ctx context.Context, agent string) error

	RaftPeers(ctx context.Context) ([]api.RaftPeer, error)
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
	Plans(tenant, cluster string) []api.Plan
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
