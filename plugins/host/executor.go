package host

import (
	"context"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/sdk/wire"
	"github.com/coopr/coopr/rpc/proto"
)

// Executor carries out tasks. Host does it with plugin processes, simulations within the test's
// process.
type Executor interface {
	// Execute carries out one attempt at a task and returns when it has ended, even if the plugin
	// dies. Cancelling the context stops the attempt; Execute still waits for its end, for a
	// bounded time. The result carries the task's id and fence, and its outcome is never
	// unspecified. Execute is safe for concurrent use.
	Execute(ctx context.Context, t *proto.Task, sink Sink) *proto.Result
	// Types returns the types that can be executed now, sorted by kind and name.
	Types() []Type
}

// MaxLogLine is the length in bytes from which on a line of a task's log comes in several pieces. Each but the last has this length.
const MaxLogLine = wire.MaxLogLine

// Sink receives the output of a running task, in order and before Execute returns. Calls for one
// task do not overlap. A Sink must not block: one goroutine reads the messages of all tasks of a
// plugin process and calls it.
type Sink interface {
	Log(*proto.LogLine)
	Save(*proto.SaveState)
}

// Type is a provider type or automator type that is offered.
type Type struct {
	// Kind is model.KindProviderType or model.KindAutomatorType.
	Kind model.Kind
	model.PluginType
	// Checksum is the SHA-256 of the plugin's binary or descriptor, in hex.
	Checksum string
	// Path is the file that serves the type.
	Path string
}

// Discard is a Sink that drops everything.
type Discard struct{}

// Log drops the line.
func (Discard) Log(*proto.LogLine) {}

// Save drops the value.
func (Discard) Save(*proto.SaveState) {}

var (
	_ Executor = (*Host)(nil)
	_ Sink     = Discard{}
)

// result returns a task's result that comes from the host instead of the plugin.
func result(t *proto.Task, o proto.Outcome, message string) *proto.Result {
	return &proto.Result{Task: t.Id, Fence: t.Fence, Outcome: o, Message: message}
}
