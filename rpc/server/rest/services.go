package rest

import (
	"context"
	"io"
	"time"

	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/engine/roster"
	"github.com/coopr/coopr/rpc/api"
)

// Services holds the services that the routes of an agent's API call. All fields are required.
// Errors have a code of engine/problem. Unless its comment says otherwise, a method works on the
// leader only and fails with problem.NoLeader on another agent; the server forwards requests to
// the leader before it calls such a method.
type Services struct {
	Router      Router
	State       State
	Tenants     Tenants
	Tokens      Tokens
	Users       Users
	Definitions Definitions
	Clusters    Clusters
	Operations  Operations
	Orphans     Orphans
	Sites       Sites
	Resources   Resources
	Runs        Runs
	Mesh        Mesh
	Raft        Raft
	Inspector   Inspector
}

// Router decides whether this agent answers a request, and forwards requests to the leader.
type Router interface {
	// Serves reports whether this agent can answer a request: the leader can once its
	// duties run; every voter can if stale state is good enough.
	Serves(stale bool) bool
	// RoundTripToLeader sends a request to the leader over the peer network. It waits for a leader until
	// the given time, and from then on it gives the request up if this agent has lost the leader. It fails
	// with problem.NoLeader if the request was not sent.
	RoundTripToLeader(ctx context.Context, until time.Time, method, uri string, header map[string][]string, body io.Reader) (
		status int, respHeader map[string][]string, respBody io.ReadCloser, err error)
	// RoundTripToReplica sends a stale read to another agent that has a copy of the state. It fails with
	// problem.NoLeader if none answers.
	RoundTripToReplica(ctx context.Context, method, uri string, header map[string][]string) (
		status int, respHeader map[string][]string, respBody io.ReadCloser, err error)
}

// State reads the replicated state. It works on every voter.
type State interface {
	// View returns the state at one moment, as fresh as c asks for. With another after
	// than 0 it waits until the state is newer than that index, or until ctx ends, which
	// is no error.
	View(ctx context.Context, c api.Consistency, after uint64) (View, error)
	// Follow calls fn with the changes after an index, in order, until ctx ends or fn
	// fails. Index 0 means from now on. It calls fn without events once, as soon as it is
	// sure that no later change is missed. All events of one index are in one call. It fails
	// with problem.Conflict if the index is too old or the reader too slow: the caller reads
	// the state again.
	Follow(ctx context.Context, tenant string, after uint64, fn func([]model.Event) error) error
	// RefuseCopies has the mesh refuse every copy of the caller's request that comes later, with a code. It reports whether
	// a copy was carried out before. Leader only.
	RefuseCopies(ctx context.Context, who model.Caller, code problem.Code) (done bool, err error)
}

// Tenants writes tenants.
type Tenants interface {
	Put(ctx context.Context, who model.Caller, t model.Tenant, createOnly bool) (api.Written, error)
	Delete(ctx context.Context, who model.Caller, name string) (api.Written, error)
}

// Tokens writes tokens and recognises them.
type Tokens interface {
	// Authenticate returns the caller that a token belongs to, and notes the use of the token. It works on every voter,
	// and fails with problem.Unauthorized for an unknown token and for one that cannot be used from the caller's address.
	Authenticate(ctx context.Context, b Bearer) (model.Caller, error)
	// Create returns the secret of a new token, which is not stored.
	Create(ctx context.Context, who model.Caller, t model.Token) (string, api.Written, error)
	Delete(ctx context.Context, who model.Caller, id string) (api.Written, error)
	// CreateJoin returns a new join token, which is not stored. It fails with problem.Conflict in a mesh whose agents share a secret.
	CreateJoin(ctx context.Context, who model.Caller, t roster.JoinToken) (string, api.Written, error)
	DeleteJoin(ctx context.Context, who model.Caller, id string) (api.Written, error)
	// Renew moves the end of the caller's session. It fails with problem.Unauthorized if the session has ended or the user's
	// directory does not let the user in, and with problem.Busy if the directory does not answer.
	Renew(ctx context.Context, who model.Caller) (api.Written, error)
}

// Users writes users and grants, and opens sessions.
type Users interface {
	// Create creates a user, with a password unless that is "".
	Create(ctx context.Context, who model.Caller, u model.User, password string) (api.Written, error)
	// Change changes the named fields of a user: role, groups, description and disabled. With a password it changes that, too, and
	// ends the user's sessions, but not one with the id keep.
	Change(ctx context.Context, who model.Caller, u model.User, fields []string, password, keep string) (api.Written, error)
	Delete(ctx context.Context, who model.Caller, name string) (api.Written, error)
	// Login opens a session, and returns its token, which is not stored. The method is "" or local, or names a directory. It
	// fails with problem.Unauthorized, and with problem.Busy if too many passwords are being checked or the directory does not
	// answer.
	Login(ctx context.Context, tenant, method, name, password string) (string, api.Written, error)
	// BeginLogin starts a login on the pages of the identity provider that a method names. A prompt without a URL is that of a
	// method with passwords. The browser comes back to redirect, unless that is "".
	BeginLogin(ctx context.Context, tenant, method, redirect string) (api.LoginPrompt, error)
	// FinishLogin opens the session of such a login. The token is "" as long as nobody has logged in; slower is set if the
	// caller asks too often.
	FinishLogin(ctx context.Context, login, state, code string) (token string, slower bool, w api.Written, err error)
	PutGrant(ctx context.Context, who model.Caller, g model.Grant) (api.Written, error)
	DeleteGrant(ctx context.Context, who model.Caller, id string) (api.Written, error)
	// Verify fails with problem.Unauthorized if the password is not the user's.
	Verify(ctx context.Context, tenant, name, password string) error
}

// Definitions writes definitions.
type Definitions interface {
	// Put checks definitions and writes all of them, or none if one has faults. With opts.DryRun
	// nothing is written: the answer and the error are those that the write would have.
	Put(ctx context.Context, who model.Caller, defs []model.StoredDefinition, opts PutOptions) (api.Written, error)
	// Delete deletes one version of a definition; version 0 means all. Without force it refuses to
	// delete a definition that is in use.
	Delete(ctx context.Context, who model.Caller, kind model.Kind, name string, version int, force bool) (api.Written, error)
	// Reveal returns a definition with the values of its encrypted fields.
	Reveal(tenant string, d model.Definition) (model.Definition, error)
	// Rank asks a plugin of this agent for the comparator that it offers. It fails with
	// model.Faults if no plugin offers it. It works on every agent.
	Rank(ctx context.Context, q model.RankingQuestion) (*model.Ranking, error)
}

// PutOptions are the choices of a write of definitions.
type PutOptions struct {
	CreateOnly bool // refuse a definition that exists
	DryRun     bool // only check
	Force      bool // write policies even if no user can change them afterwards
}

// Clusters starts operations on clusters.
type Clusters interface {
	// Create solves, plans and starts a new cluster, or only previews it.
	Create(ctx context.Context, who model.Caller, req model.CreateCluster, dryRun bool) (api.Started, error)
	// Operate starts another operation on a cluster, or only previews it.
	Operate(ctx context.Context, who model.Caller, cluster string, req api.Operate) (api.Started, error)
	// Label sets and removes labels of a cluster.
	Label(ctx context.Context, who model.Caller, cluster string, set map[string]string, remove []string) (api.Written, error)
	// ChangeLease has the lease of a cluster end at the time to, in Unix milliseconds. It fails if the lease does not end at the time was
	// any more, or if the rules of the cluster's template do not allow it.
	ChangeLease(ctx context.Context, who model.Caller, cluster string, was, to int64) (api.Written, error)
	// Resolve marks a failed cluster as repaired.
	Resolve(ctx context.Context, who model.Caller, cluster, reason string) (api.Written, error)
}

// Operations controls operations and their plans.
type Operations interface {
	// Order carries out an order about an operation: "pause", "resume", "abort" or "rollback".
	Order(ctx context.Context, who model.Caller, operation, order, reason string) (api.Written, error)
	// BeginPlan creates the operation of a plan of a cluster's template. It stays
	// interrupted until an order starts it.
	BeginPlan(ctx context.Context, who model.Caller, cluster, plan string) (operation string, w api.Written, err error)
	// OrderPlan carries out an order about an operation's plan. It fails with a
	// *tree.Refusal if the order changes nothing.
	OrderPlan(ctx context.Context, who model.Caller, operation string, o tree.Order) (api.Written, error)
	// Explain returns the reasons why steps of an operation's plan wait, for at most the
	// given number of steps. It works on every voter, but only the leader knows about its workers.
	Explain(ctx context.Context, tenant, operation string, steps int) (*tree.Explanation, error)
	// RunCommand runs a command on a node, and calls emit with each line of its output and its end. The incident is in the audit log
	// before it begins. Only the leader can.
	RunCommand(ctx context.Context, who model.Caller, node string, c api.NodeCommand, i model.Incident, emit func(api.CommandLine) error) error
	// Forward connects to a port of a node, calls begun with the agent's name, and copies up to it and what it sends to down. The incident
	// is in the audit log before it connects. Only the leader can.
	Forward(ctx context.Context, who model.Caller, node string, port int, i model.Incident, begun func(agent string) error, up io.Reader,
		down io.Writer) error
	// TaskLog copies the log of a task from the agent that has it to w; attempt 0 means
	// the latest. With follow it continues until the task ends. It works on every voter.
	// It writes nothing and fails with an *api.LogMissing if that agent does not send the log.
	TaskLog(ctx context.Context, who model.Caller, task string, attempt int, follow bool, w io.Writer) error
}

// Orphans finds and removes machines that belong to no node.
type Orphans interface {
	// Report returns the result of the last search, or with search of a new one.
	Report(ctx context.Context, search bool) (model.OrphanReport, error)
	// Remove removes a machine that the last search found.
	Remove(ctx context.Context, who model.Caller, id string) (api.Written, error)
}

// Sites controls sites of change objects.
type Sites interface {
	List(ctx context.Context, tenant string) ([]site.Overview, error)
	// Status returns the status of a site's objects. With another after than 0 it waits for
	// another revision, for as long as ctx allows.
	Status(ctx context.Context, tenant, name string, after uint64) (site.SiteStatus, error)
	Document(tenant, name string, generation uint64) (*site.Document, error)
	History(tenant, name string) ([]site.PastGeneration, error)
	Graph(tenant, name string) (*site.Graph, error)
	Explain(tenant, name, object string) ([]site.Reason, error)
	Preview(who model.Caller, doc *site.Document) (site.ChangePreview, error)
	// Apply starts a generation with a document. unchanged is true if the document is in
	// force already.
	Apply(ctx context.Context, who model.Caller, doc *site.Document) (p site.ChangePreview, unchanged bool, w api.Written, err error)
	Revert(ctx context.Context, who model.Caller, name string, to uint64) (p site.ChangePreview, unchanged bool, w api.Written, err error)
	Delete(ctx context.Context, who model.Caller, name string) (site.ChangePreview, api.Written, error)
	// Check compares all objects with the real things and changes nothing.
	Check(ctx context.Context, tenant, name string) ([]site.Finding, error)
	Release(ctx context.Context, who model.Caller, name, object, reason string) (api.Written, error)
}

// Resources stores plugin resources.
type Resources interface {
	// List returns all versions of all resources of a tenant, and the index of the state.
	List(tenant string) (all []model.ResourceVersion, index uint64, err error)
	// MostBytes returns how much the resources of a tenant may take whose document says nothing about that.
	MostBytes() int64
	// Upload stores content as the next version. When it returns, the content is on the
	// disks of a majority of the voters.
	Upload(ctx context.Context, who model.Caller, n api.NewResource, content io.Reader) (model.ResourceVersion, api.Written, error)
	// Order carries out an order about a version, or about all versions of a resource if
	// the order is "delete" and version is 0. The order "sync" is about all of the tenant.
	Order(ctx context.Context, who model.Caller, order string, k model.ResourceKey, version int) (api.Written, error)
	// Content returns the content of a version. The caller closes it.
	Content(ctx context.Context, p model.ResourcePin) (io.ReadCloser, error)
}

// Runs writes profiles, programs, schedules, preferences and secrets, and controls runs.
type Runs interface {
	ChangeSetting(ctx context.Context, who model.Caller, s api.Setting) (api.Written, error)
	// Start starts a run. It fails with problem.TooMany if the run was rejected because of a
	// limit.
	Start(ctx context.Context, who model.Caller, req api.StartRun) (api.Written, error)
	// Order applies an order, such as stop or extend, to a run.
	Order(ctx context.Context, who model.Caller, run string, e profile.Event) (api.Written, error)
}

// Mesh is this agent's view of the mesh. It works on every agent.
type Mesh interface {
	Members() []api.Member
	// Ready reports whether this agent can serve requests, and why not.
	Ready(ctx context.Context) api.Readiness
	Status(ctx context.Context) api.AgentStatus
	// Quorum returns how many voters there are, and which of them are missing.
	Quorum(ctx context.Context) api.Quorum
	// AuditSinks returns how far the sinks of the audit log have come. Only the leader knows.
	AuditSinks(ctx context.Context) ([]model.AuditSink, error)
	// Note notes an incident for the audit log.
	Note(i model.Incident)
	// Join contacts the mesh at gossip addresses and returns how many of them answered.
	Join(ctx context.Context, addrs []string) (int, error)
	// Leave makes this agent leave the mesh, or removes another agent, which must be dead unless that is forced. b is the caller's.
	Leave(ctx context.Context, who model.Caller, b Bearer, what api.LeaveBody) (api.Left, error)
}

// Inspector shows the insides of agents. It works on every agent about that agent, and on those with a copy of the state about all;
// elsewhere it fails with problem.NoLeader.
type Inspector interface {
	// Log copies the latest lines of the log of an agent, by id or name, to w. With follow, it copies new lines from a level on, until
	// ctx ends.
	Log(ctx context.Context, agent, level string, follow bool, w io.Writer) error
	// Examine copies an archive (tar.gz) with the inner state of an agent, by id or name, to w. The agent measures for some seconds.
	Examine(ctx context.Context, agent string, seconds int, w io.Writer) error
}

// Raft controls the Raft group and snapshots of the whole state.
type Raft interface {
	// Peers returns the members of the group. It works on every voter.
	Peers(ctx context.Context) ([]api.RaftPeer, error)
	// Transfer transfers the leadership to a voter, or to any voter if to is "".
	Transfer(ctx context.Context, to string) error
	Remove(ctx context.Context, id string) error
	Save(ctx context.Context, w io.Writer) error
	Restore(ctx context.Context, who model.Caller, r io.Reader, o api.RestoreOptions) error
	// Resume ends the hold of a mesh that was restored. It fails with problem.Conflict if the mesh is not held.
	Resume(ctx context.Context, who model.Caller) (api.Written, error)
	// Rotate begins the rotation of a key of the mesh. That of the root token is done with it; only the old root token may ask for it.
	Rotate(ctx context.Context, who model.Caller, r api.NewRotation) (roster.Rotation, api.Written, error)
}
