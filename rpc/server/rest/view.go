package rest

import (
	"iter"
	"time"

	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/engine/roster"
	"github.com/coopr/coopr/engine/signing"
	"github.com/coopr/coopr/rpc/api"
)

// View is the state at one moment. A method with a tenant returns only objects of that tenant.
// The second result is false if the object does not exist. Callers must not change the results.
type View interface {
	Index() uint64
	// Age returns how long ago this agent last heard from the leader; ok is false if it has not since it started.
	Age() (age time.Duration, ok bool)
	TenantView
	DefinitionView
	ClusterView
	PlanView
	RunView
	// NumbersStarts reports whether the number of a service's start is kept when its operation ends.
	NumbersStarts() bool
	// Audit returns the log of all changes, of all tenants.
	Audit() *audit.Trail
	// SigningKeys returns the public keys with which the mesh signs and has signed.
	SigningKeys() signing.Chain
	// TaskKeys returns the keys with which the mesh signs tokens of tasks.
	TaskKeys() signing.TaskKeys
	// Agents returns the agents on record.
	Agents() []model.Agent
	// JoinTokens returns the tokens with which agents join the mesh.
	JoinTokens() []roster.JoinToken
	// Hold returns why the mesh begins no work, or nil if it does.
	Hold() *roster.Hold
	// ActiveMeshKey returns the number of the mesh key that is in use; ok is false before there is one.
	ActiveMeshKey() (number uint32, ok bool)
	// KeyringExported returns when the keyring was last exported with that key, in Unix milliseconds; 0 if it was not.
	KeyringExported() int64
	// Rotations returns the latest rotation of each kind of key.
	Rotations() []roster.Rotation
	// Answered returns the result of the write that was carried out with the caller's request id.
	Answered(who model.Caller) (api.Written, bool)
}

// TenantView is a View of tenants, users and tokens.
type TenantView interface {
	Tenants() []model.Tenant
	Tenant(name string) (model.Tenant, bool)
	// Use returns how much a tenant uses of each of its limits.
	Use(t model.Tenant) []model.Use
	Tokens(tenant string) []model.Token
	// Users returns a tenant's users, or all users if tenant is "", without the deleted ones.
	Users(tenant string) []model.User
	User(tenant, name string) (model.User, bool)
	// AllUsers returns the users of all tenants, also the deleted ones.
	AllUsers() []model.User
	// Acting returns the caller for a user, with the rights that the user has in this state.
	Acting(tenant, actor string) model.Caller
	Grants(tenant string) []model.Grant
	GrantEdition(tenant string) any
}

// DefinitionView is a View of definitions and of the plugin types on offer.
type DefinitionView interface {
	// Definitions returns the latest version of each definition of a kind, by name.
	Definitions(tenant string, kind model.Kind) []model.StoredDefinition
	Edition(tenant string, kind model.Kind) any
	// Definition returns one version of a definition; version 0 means the latest.
	Definition(tenant string, kind model.Kind, name string, version int) (model.StoredDefinition, bool)
	Versions(tenant string, kind model.Kind, name string) []model.StoredDefinition
	// PluginTypes returns the latest version of each type that the agents offer.
	PluginTypes() []model.PluginType
	// TypesOf returns the type that agents offer of a plugin, "provider/NAME" or "automator/NAME", and the tenant's definition of it. A
	// missing one is the zero value.
	TypesOf(tenant, key string) (offered, defined model.PluginType)
}

// ClusterView is a View of clusters, nodes, operations and tasks.
type ClusterView interface {
	// Clusters returns a tenant's clusters by id, or those of all tenants if tenant is "", and ClustersFrom those of a tenant
	// from an id on.
	Clusters(tenant string) []*model.Cluster
	ClustersFrom(tenant, id string) iter.Seq[*model.Cluster]
	// Cluster finds a cluster by id, or by name if only one living cluster has the name.
	Cluster(tenant, idOrName string) (*model.Cluster, bool)
	// ClusterName returns the name of the cluster with an id, or "" if there is none.
	ClusterName(tenant, id string) string
	Nodes(tenant, cluster string) []*model.Node
	// NodesOf returns the nodes of all clusters of a tenant, in no order.
	NodesOf(tenant string) iter.Seq[*model.Node]
	Node(tenant, id string) (*model.Node, bool)
	// Operations returns the operations of a cluster, or of all if cluster is "", the
	// newest first.
	Operations(tenant, cluster string) []*model.Operation
	// OperationsOf returns the operations of all clusters of a tenant, in no order.
	OperationsOf(tenant string) iter.Seq[*model.Operation]
	// ActiveOperations returns the operations of all tenants that have not ended.
	ActiveOperations() []*model.Operation
	Operation(tenant, id string) (*model.Operation, bool)
	Progress(tenant, operation string) model.Progress
	// History returns a cluster's snapshots, the oldest first.
	History(tenant, cluster string) []*model.Snapshot
	// Tasks returns the tasks of an operation, in order.
	Tasks(tenant, operation string) []model.Task
	// TasksFrom returns the indexes of an operation's tasks from one on, only those of a status unless that is "", and the task
	// with an index.
	TasksFrom(tenant, operation, status string) (from func(uint32) iter.Seq[uint32], task func(uint32) model.Task)
	Task(tenant, id string) (model.Task, bool)
	// Links returns a cluster's links with expanded macros. It omits links whose macros
	// cannot be expanded yet.
	Links(c *model.Cluster) []model.Link
}

// PlanView is a View of plans.
type PlanView interface {
	// Plans returns a cluster's plans, the one with the highest priority first.
	Plans(tenant, cluster string) []api.Plan
	// PlanTree returns the plan of an operation as phases and steps.
	PlanTree(tenant, operation string) (*tree.View, bool)
	// CustomTree returns a plan of a cluster's template that was not run yet.
	CustomTree(tenant, cluster, plan string) (*tree.View, bool)
}

// RunView is a View of profiles, programs and runs. Tenant "" stands for the system.
type RunView interface {
	Profiles(tenant string, system bool) []profile.Profile
	Profile(tenant string, ref profile.Ref) (profile.Profile, bool)
	// Assignments returns the names of the objects that refer to a profile.
	Assignments(tenant string, ref profile.Ref) []string
	ProfileUsage(tenant string, ref profile.Ref, now int64) profile.Usage
	Provisioners(tenant string) []profile.Spec
	Programs(tenant string) []profile.Program
	Program(tenant, name string, version int) (profile.Program, bool)
	ProgramUsage(tenant, program string, now int64) profile.Usage
	Schedules(tenant string) []profile.Schedule
	Schedule(tenant, name string) (profile.Schedule, bool)
	Preferences(tenant, program string) (profile.Settings, bool)
	// Levels returns the settings of all levels that apply to a run of a program.
	Levels(tenant, program string) profile.Levels
	SecretNames(tenant string) []string
	SecretUsers(tenant, name string) ([]string, bool)
	MayUseSecrets(who model.Caller, values map[string]string) error
	// Runs returns a tenant's runs, the newest first.
	Runs(tenant string) []*profile.Run
	Run(tenant, id string) (*profile.Run, bool)
}
