package sdk

import (
	"context"

	"github.com/coopr/coopr/engine/model"
)

// Plugin is the argument of Serve: a provider, an automator, or one of each.
type Plugin struct {
	Provider  Provider
	Automator Automator
}

// Output is what a successful task returns: addresses, and results for later tasks.
type Output = model.TaskOutput

// Describer returns a type's descriptor: name, version, fields, resources. It may be called at any
// time and must be quick.
type Describer interface {
	Describe() model.PluginType
}

// Provider creates, confirms, deletes and lists machines.
//
// Methods are called concurrently. A method has to return soon after its context is done; otherwise
// its whole process is killed after a grace period. Errors are marked with Fatal, NothingDone or
// Unknown; unmarked errors are retryable.
type Provider interface {
	Describer
	// Create creates the task's node under a name that follows from the cluster and the node alone,
	// tagged with cluster, node and fence, so that Observe and List find it again. Its result has
	// "providerid".
	Create(ctx context.Context, t *Task) (*Output, error)
	// Confirm waits until the node can be worked on and returns its addresses.
	Confirm(ctx context.Context, t *Task) (*Output, error)
	// Delete removes the node. A missing node is a success.
	Delete(ctx context.Context, t *Task) (*Output, error)
	// List calls found for everything that this provider has created and that still exists, of one
	// cluster or of all.
	List(ctx context.Context, r ListRequest, found func(Resource) error) error
}

// Observer is a Provider that can observe a single machine. Without it the kit uses List.
type Observer interface {
	// Observe returns Create's output for an existing node, or ErrNotFound.
	Observe(ctx context.Context, t *Task) (*Output, error)
}

// Remover is a Provider that can remove a listed resource by the provider's own id. The janitor
// uses it for resources that belong to no node; without it such resources are only reported.
type Remover interface {
	// Remove removes a resource if it still belongs to the cluster and node with which it was
	// listed. A missing resource is a success. The resource's fence is that of the removal.
	Remove(ctx context.Context, r ListRequest, x Resource) error
}

// Automator puts services on machines. Provider's rules for concurrency, contexts and errors apply.
type Automator interface {
	Describer
	// Bootstrap prepares the node for Run.
	Bootstrap(ctx context.Context, t *Task) (*Output, error)
	// Run carries out one action of a service.
	Run(ctx context.Context, t *Task) (*Output, error)
	// Check reports whether the task's action is already done. It is called before a repetition if
	// the end of an earlier attempt is unknown, and for a service's action CHECK, which fails if
	// Check reports false.
	Check(ctx context.Context, t *Task) (done bool, out *Output, err error)
}

// Scope selects the fields that are validated.
type Scope string

// The scopes of Validate.
const (
	ScopeAdmin  Scope = "admin"  // a provider's or service action's fields
	ScopeUser   Scope = "user"   // values of the user who creates the cluster
	ScopeAction Scope = "action" // the fields of one action, after macro expansion
)

// Validator is a Provider or Automator that checks the values of its fields more closely than its
// descriptor can. The kit has checked them against the descriptor already.
type Validator interface {
	Validate(ctx context.Context, scope Scope, fields map[string]any) model.Faults
}

// Comparator is a Provider or Automator that offers rankings of node layouts, named in its
// descriptor under "comparators". The leader calls Rank if a request or a template names the
// comparator. The answer must depend on the question alone, so that equal requests get equal
// clusters.
type Comparator interface {
	Rank(ctx context.Context, q model.RankingQuestion) (*model.Ranking, error)
}

// ListRequest limits what List reports.
type ListRequest struct {
	Tenant  string
	Mesh    string         // "": of any mesh
	Cluster string         // "": all clusters
	Fields  map[string]any // the provider's admin fields
	// Resources is the folder with the active plugin resources, as in Task; "" if there are none,
	// and for List.
	Resources string
}

// Resource is something that a provider has created and that still exists.
type Resource struct {
	Cluster string
	Node    string
	Fence   uint64
	ID      string // the provider's own id
	Output  *Output
}
