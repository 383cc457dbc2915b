package progress

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

// Starter starts an operation by the flags that all such commands share, and follows it.
type Starter struct {
	// Question is asked if the operation cannot be undone. Without a terminal, --yes is required.
	Question string

	dryRun, detach bool
	rollout        rollout
}

// Request is the operation to start.
type Request struct {
	// Title is the heading of the plan.
	Title string
	// Creates is true if the operation creates its cluster. Then the plan is shown before the
	// start even if nothing is asked. JSON and YAML output never has this preview.
	Creates bool
	// Question is asked on a terminal before the operation starts, unless the Starter has one.
	Question string
	// Send sends the request that starts the operation. If dry is true, the mesh only returns the
	// plan and starts nothing.
	Send func(ctx context.Context, c *client.Client, dry bool) (api.StartedBody, error)
}

// AddFlags adds the flags to a command.
func (s *Starter) AddFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&s.dryRun, "dry-run", false, "only show what would be done")
	cmd.Flags().BoolVarP(&s.detach, "detach", "d", false, "start the operation and do not wait for it")
	s.rollout.flags(cmd)
	cli.FormFlag(cmd, output.FormTable, output.FormJSON, output.FormYAML)
}

// Rollout returns the order in which nodes change, from the flags.
func (s *Starter) Rollout(cmd *cobra.Command) (model.Rollout, error) { return s.rollout.read(cmd) }

// Run shows the plan, asks, starts the operation, and follows it until it ends.
func (s *Starter) Run(app cli.App, cmd *cobra.Command, r Request) error {
	return cli.Run(app, func(ctx context.Context, c *client.Client, _ []string) error {
		return s.run(ctx, app, c, cmd, r)
	})(cmd, nil)
}

func (s *Starter) run(ctx context.Context, app cli.App, c *client.Client, cmd *cobra.Command, r Request) error {
	out := app.Printer()
	interactive, yes := app.Prompt()
	question := r.Question
	if s.Question != "" {
		question = s.Question
	}
	asks := !yes && interactive && question != ""
	if s.Question != "" && !s.dryRun && !yes && !asks {
		return cli.Confirm(app, cmd, s.Question)
	}
	if s.dryRun || r.Creates || asks {
		st, err := r.Send(ctx, c, true)
		if err != nil {
			return err
		}
		if s.dryRun && out.Structured() {
			return out.Encode(st)
		}
		if !out.Structured() {
			preview(out, r.Title, st, r.Creates)
		}
		if s.dryRun {
			out.Println("Nothing was done: this was a dry run.")
			return nil
		}
	}
	if asks {
		if err := cli.Ask(ctx, app, question); err != nil {
			return err
		}
	}
	st, err := r.Send(ctx, c, false)
	if err != nil {
		return err
	}
	for _, w := range st.Warnings {
		out.Warn(w)
	}
	switch {
	case st.Operation == nil:
		return out.Result(st, func() { out.Println("There is nothing to do.") })
	case s.detach:
		return out.Result(st, func() {
			out.Printf("Operation %s has started. To watch it: coopr operation watch %s\n", st.Operation.ID, st.Operation.ID)
		})
	}
	return Follow(ctx, app, c, st.Operation.ID)
}
