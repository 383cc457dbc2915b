package kit

import (
	"context"
	"fmt"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/sdk"
)

// Base is the common part of automators whose action's fields are parsed into an A. An automator
// that embeds it has all of sdk.Automator and sdk.Validator except Describe, Run and Check.
type Base[A any] struct {
	Reach *Reach
	// Parse decodes an action's fields and returns all their faults.
	Parse func(fields map[string]any) (A, model.Faults)
	// Needs is a shell command that succeeds on a node with everything that the automator needs.
	// Package is the Debian package that provides it, or "" if there is none.
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

// Bootstrap installs on the node what the automator needs.
func (b *Base[A]) Bootstrap(ctx context.Context, t *sdk.Task) (*sdk.Output, error) {
	in, node, err := b.Reach.Of(t)
	if err != nil {
		return nil, err
	}
	return nil, Install(ctx, t, in, node, b.Needs, b.Package)
}

// Action parses the fields of a task's action. The error is marked.
func (b *Base[A]) Action(t *sdk.Task, in *model.TaskInput) (A, error) {
	if in.Config.Service == nil {
		var none A
		return none, sdk.Fatal(fmt.Errorf("task %s has no service", t.ID))
	}
	a, faults := b.Parse(in.Config.Service.Action.Fields)
	if err := faults.Err(); err != nil {
		return a, sdk.Fatal(fmt.Errorf("fields of action %s: %w", t.Action, err))
	}
	return a, nil
}
