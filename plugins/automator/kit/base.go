package kit

import (
	"context"
	"fmt"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/sdk"
)

// Base is what automators have in common whose actions' fields come to an A. One
// that embeds it has all of sdk.Automator and sdk.Validator but what it does itself.
type Base[A any] struct {
	Reach *Reach
	// Parse reads an action's fields, giving all that is wrong with them.
	Parse func(fields map[string]any) (A, model.Faults)
	// Needs is a command that succeeds on a node that has what the automator needs;
	// Package is Debian's with it, or "" where nothing can be installed.
	Needs, Package string
}

// Close ends connections.
func (b *Base[A]) Close() { b.Reach.Close() }

// Validate checks an action's fields.
func (b *Base[A]) Validate(_ context.Context, scope sdk.Scope, fields map[string]any) model.Faults {
	if scope == sdk.ScopeUser {
		return nil
	}
	_, faults := b.Parse(fields)
	return faults
}

// Bootstrap sees to it that the node has what the automator needs.
func (b *Base[A]) Bootstrap(ctx context.Context, t *sdk.Task) (*sdk.Output, error) {
	in, node, err := b.Reach.Of(t)
	if err != nil {
		return nil, err
	}
	return nil, Install(ctx, t, in, node, b.Needs, b.Package)
}

// Action reads the fields of a task's action. The error is marked.
func (b *Base[A]) Action(t *sdk.Task, in *model.TaskInput) (A, error) {
	if in.Config.Service == nil {
		var none A
		return none, sdk.Fatal(fmt.Errorf("task %s has no service to act on", t.ID))
	}
	a, faults := b.Parse(in.Config.Service.Action.Fields)
	if err := faults.Err(); err != nil {
		return a, sdk.Fatal(fmt.Errorf("fields of action %s: %w", t.Action, err))
	}
	return a, nil
}
