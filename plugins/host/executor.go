package host

import (
	"context"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/proto"
)

// Executor carries out tasks. Host does it with plugin processes; simulations
// bring one that stays in the process.
type Executor interface {
	// Execute carries out one attempt at a task and blocks until it has ended,
	// whatever happens to the plugin. Cancelling the context stops the attempt;
	// Execute still waits for its end, for a bounded time. The result names
	// the task and fence it was given and its outcome is never unspecified.
	// It may be called from any number of goroutines.
	Execute(ctx context.Context, t *proto.Task, sink Sink) *proto.Result
	// Types gives the types that can be executed now, by kind and name.
	Types() []Type
}

// Sink takes what a task says while it runs, in order and before Execute
// returns. Calls for one task do not overlap. A Sink must not block: it is called by
// the one goroutine that reads all tasks' messages of a plugin process.
type Sink interface {
	Log(*proto.LogLine)
	Save(*proto.SaveState)
}

// Type is a provider type or automator type on offer.
type Type struct {
	// Kind is model.KindProviderType or model.KindAutomatorType.
	Kind model.Kind
	model.PluginType
	// Checksum is the SHA-256 of the plugin's binary or descriptor, in hex.
	Checksum string
	// Path is the file that serves the type.
	Path string
}

// Discard is a Sink that keeps nothing.
type Discard struct{}

// Log drops the line.
func (Discard) Log(*proto.LogLine) {}

// Save drops the value.
func (Discard) Save(*proto.SaveState) {}

var (
	_ Executor = (*Host)(nil)
	_ Sink     = Discard{}
)

// result makes the result of a task that its plugin did not give itself.
func result(t *proto.Task, o proto.Outcome, message string) *proto.Result {
	return &proto.Result{Task: t.Id, Fence: t.Fence, Outcome: o, Message: message}
}
