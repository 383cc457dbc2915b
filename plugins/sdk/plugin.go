package sdk

import (
	"context"

	"github.com/coopr/coopr/engine/model"
)

// Plugin is what Serve serves: a provider, an automator, or one of each.
type Plugin struct {
	Provider  Provider
	Automator Automator
}

// Output is what a successful task gives back beside success.
type Output = model.TaskOutput

// Describer gives a type's descriptor: name, version, fields, resources. It
// may be called at any time and must be quick.
type Describer interface {
	Describe() model.PluginType
}

// Provider makes, confirms, removes and lists machines.
//
// Methods are called concurrently. A method returns soon after its context is
// done; one that does not is killed with its whole process after a grace.
// Errors are marked with Fatal, NothingDone or Unknown; others are retryable.
type Provider interface {
	Describer
	// Create makes the task's node under a name that follows from the cluster
	// and the node alone, tagged with cluster, node and fence, so that Observe
	// and List find it again. Its result has "providerid".
	Create(ctx context.Context, t *Task) (*Output, error)
	// Confirm waits until the node can be worked on and gives its addresses.
	Confirm(ctx context.Context, t *Task) (*Output, error)
	// Delete removes the node; a node that is not there is a success.
	Delete(ctx context.Context, t *Task) (*Output, error)
	// List calls found for everything that this provider made and that still
	// exists, of one cluster or of all.
	List(ctx context.Context, r ListRequest, found func(Resource) error) error
}

// Observer is a Provider that can tell whether Create's machine exists. Without
// it the kit asks List.
type Observer interface {
	// Observe gives Create's output for an existing node, or ErrNotFound.
	Observe(ctx context.Context, t *Task) (*Output, error)
}

// Remover is a Provider that can remove what it listed by the provider's own id.
// The janitor asks it for what is no node's; a Provider without it is reported on
// only.
type Remover interface {
	// Remove removes a resource if it still is what it was when it was listed: of
	// the same cluster and node. One that is gone is a success. The resource's
	// fence is the removal's.
	Remove(ctx context.Context, r ListRequest, x Resource) error
}

// Automator puts services on machines. The rules of Provider for concurrency,
// contexts and errors hold.
type Automator interface {
	Describer
	// Bootstrap makes the node ready for Run.
	Bootstrap(ctx context.Context, t *Task) (*Output, error)
	// Run carries out one action of a service.
	Run(ctx context.Context, t *Task) (*Output, error)
	// Check says whether the task's action is done already. It is asked before
	// a repetition when the end of an earlier attempt is unknown, and for the
	// action CHECK of a service, where not done is a failure.
	Check(ctx context.Context, t *Task) (done bool, out *Output, err error)
}

// Scope says whose fields are validated.
type Scope string

// The scopes of Validate.
const (
	ScopeAdmin  Scope = "admin"  // a provider's or service action's fields
	ScopeUser   Scope = "user"   // what a user gave at cluster creation
	ScopeAction Scope = "action" // one action's fields, after expansion
)

// Validator is a Provider or Automator that checks the values of its fields
// beyond what its descriptor says; the kit has checked that already.
type Validator interface {
	Validate(ctx context.Context, scope Scope, fields map[string]any) model.Faults
}

// Comparator is a Provider or Automator that offers orders of node layouts,
// those that its descriptor names under "comparators". The leader asks for one
// when a request or a template wants it; the answer must follow from the
// question alone, or the same request gives different clusters.
type Comparator interface {
	Rank(ctx context.Context, q model.RankingQuestion) (*model.Ranking, error)
}

// ListRequest says what to list.
type ListRequest struct {
	Tenant  string
	Mesh    string         // "": whatever mesh's
	Cluster string         // "": all clusters
	Fields  map[string]any // the provider's admin fields
	// Resources is the folder with the plugin resources that are in force, as a task's;
	// "" where there are none, and for List.
	Resources string
}

// Resource is one thing that a provider made and that still exists.
type Resource struct {
	Cluster string
	Node    string
	Fence   uint64
	ID      string // the provider's own id
	Output  *Output
}
