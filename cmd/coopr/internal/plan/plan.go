// Package plan holds the commands for the plans by which operations change clusters.
package plan

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

// Command returns the command "plan".
func Command(app cli.App) *cobra.Command {
	cmd := cli.Group("plan", "Show and control the plans by which operations change clusters",
		listCmd(app), showCmd(app), startCmd(app), stopCmd(app),
		orderCmd(app, "pause", "interrupt", "interrupt", "paused", "PLAN [PHASE]",
			"Pause a plan or one of its phases; steps that have begun continue to their ends",
			"  coopr plan pause shop deploy\n  coopr plan pause shop deploy shop-web"),
		orderCmd(app, "resume", "continue", "continue", "resumed", "PLAN [PHASE]",
			"Resume a plan or a phase; in a phase with canaries, release the next canary",
			"  coopr plan resume shop deploy\n  coopr plan resume shop deploy nodes"),
		orderCmd(app, "restart", "force-restart", "restart", "restarted", "PLAN [PHASE [STEP]]",
			"Run a plan, a phase or a step again",
			"  coopr plan restart shop deploy shop-web\n  coopr plan restart shop deploy shop-web 'shop1-1000:[start]'"),
		orderCmd(app, "force-complete", "force", "forceComplete", "forced to complete", "PLAN [PHASE [STEP]]",
			"Mark a step, a phase or a plan as complete without running it",
			"  coopr plan force-complete shop deploy shop-web 'shop1-1000:[start]'"))
	cmd.Aliases = []string{"plans"}
	return cmd
}

// completePlans completes a cluster and one of its plans.
func completePlans(app cli.App) cli.Completion {
	return cli.CompletePart(app, func(ctx context.Context, c *client.Client, cluster string) ([]string, error) {
		names, _, err := c.Plans(ctx, cluster, client.Read{})
		return names, err
	})
}

func listCmd(app cli.App) *cobra.Command {
	cmd := cli.List(app, cli.Listing[tree.DebugPlan]{
		Whole: true, Use: "list CLUSTER", Short: "List the plans of a cluster in order of priority",
		Example: "  coopr plan list shop\n  coopr plan list shop -o json",
		Args:    cli.Args("CLUSTER"), Empty: "There are no plans: the operations of the cluster are no longer kept.",
		Fetch: func(ctx context.Context, c *client.Client, args []string, read client.Read) ([]tree.DebugPlan, client.Meta, error) {
			d, m, err := c.PlansAtAGlance(ctx, args[0], read)
			return d.Plans, m, err
		},
		Rows: func(items []tree.DebugPlan) output.Table {
			t := output.Table{Head: []string{"NAME", "STATUS", "STRATEGY", "STEPS"}}
			for _, p := range items {
				t.Row(p.Name, p.Status, p.Strategy, fmt.Sprintf("%d/%d", p.Completed, p.Total))
			}
			return t
		},
	})
	cmd.ValidArgsFunction = cli.CompleteClusters(app)
	return cmd
}

func showCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	var watch, raw bool
	cmd := &cobra.Command{
		Use: "show CLUSTER PLAN", Aliases: []string{"status"}, Short: "Show the status of a plan with its phases and steps",
		Example: "  coopr plan show shop deploy\n  coopr plan show shop deploy --watch", Args: cli.Args("CLUSTER", "PLAN"),
		ValidArgsFunction: completePlans(app),
	}
	cli.FormFlag(cmd, output.FormTable, output.FormJSON, output.FormYAML)
	cmd.Flags().BoolVar(&raw, "json", false, "the same as -o json")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show the plan again each time it changes, until it ends or Ctrl-C")
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		if raw {
			out.Form = output.FormJSON
		}
		var last tree.Info
		read := client.Read{}
		for first := true; ; first = false {
			info, meta, err := c.Plan(ctx, args[0], args[1], read)
			switch {
			case err != nil && cli.Interrupted(ctx):
				return nil
			case err != nil:
				return err
			}
			if first || !cli.Same(last, info) {
				if !first {
					out.Again()
				}
				if err := out.Result(info, func() { out.Println(text(out, args[1], &info)) }); err != nil {
					return err
				}
			}
			if !watch || ended(&info) || !cli.Pause(ctx, app.Pace()) {
				return nil
			}
			last, read = info, cli.Newer(meta)
		}
	})
	return cmd
}

// ended reports whether a plan cannot continue by itself: it is complete, or it has failed and no task runs. A step that is
// prepared waits for a task that does not begin any more.
func ended(i *tree.Info) bool {
	if i.Status == tree.Complete.String() {
		return true
	}
	if i.Status != tree.Error.String() {
		return false
	}
	for _, p := range i.Phases {
		for _, s := range p.Steps {
			if s.Status == tree.Starting.String() || s.Status == tree.Started.String() {
				return false
			}
		}
	}
	return true
}

// text returns a plan as a tree, with coloured statuses.
func text(out *output.Printer, name string, i *tree.Info) string {
	return lineStatus.ReplaceAllStringFunc(i.Text(name), func(s string) string {
		return "(" + out.Status(strings.Trim(s, "()")) + ")"
	})
}

// lineStatus matches the status at the end of a line of a plan's tree.
var lineStatus = regexp.MustCompile(`(?m)\([A-Z_]+\)$`)

// order sends an order about a plan, and shows the answer in the words of the DC/OS command line. If what is
// empty, it shows the answer as JSON.
func order(ctx context.Context, out *output.Printer, c *client.Client, cluster string, o tree.Order, what string) error {
	said, _, err := c.OrderPlan(ctx, cluster, o)
	switch {
	case err != nil:
		return err
	case what == "":
		out.Form = output.FormJSON
		return out.Encode(said)
	}
	out.Println(tree.Told(what, o.Plan, o.Phase, o.Step, said.Message != ""))
	for _, phase := range said.Waits {
		out.Printf("The canaries of phase %s still wait: coopr plan resume %s %s %s\n", phase, cluster, o.Plan, phase)
	}
	return nil
}

func startCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	var params []string
	cmd := &cobra.Command{
		Use: "start CLUSTER PLAN", Short: "Start a plan with parameters for its tasks; a complete plan runs again",
		Example: "  coopr plan start shop backup\n  coopr plan start shop backup -p BUCKET=nightly -p OPTIONS=a=b",
		Args:    cli.Args("CLUSTER", "PLAN"), ValidArgsFunction: completePlans(app),
	}
	cmd.Flags().StringArrayVarP(&params, "param", "p", nil, "environment variable for the tasks of the plan, as NAME=value; may be repeated")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p, err := tree.ParseParams(params)
		if err != nil {
			return cli.Usage(cmd, "-p: %v", err)
		}
		return cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
			return order(ctx, out, c, args[0], tree.Order{Command: "start", Plan: args[1], Params: p}, "")
		})(cmd, args)
	}
	return cmd
}

func stopCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	cmd := &cobra.Command{
		Use: "stop CLUSTER PLAN", Short: "Cancel the running steps of a plan and reset the plan to its beginning",
		Example: "  coopr plan stop shop backup", Args: cli.Args("CLUSTER", "PLAN"), ValidArgsFunction: completePlans(app),
	}
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		return order(ctx, out, c, args[0], tree.Order{Command: "stop", Plan: args[1]}, "")
	})
	return cmd
}

// orderCmd returns a command that sends an order about a plan or a part of it.
func orderCmd(app cli.App, word, alias, command, what, use, short, example string) *cobra.Command {
	out := app.Printer()
	names := []string{"CLUSTER"}
	for _, name := range strings.Fields(use) {
		names = append(names, strings.TrimRight(name, "]"))
	}
	cmd := &cobra.Command{
		Use: word + " CLUSTER " + use, Aliases: []string{alias}, Short: short, Example: example, Args: cli.Args(names...),
		ValidArgsFunction: completePlans(app),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o := tree.Order{Command: command, Plan: args[1]}
		for i, part := range []*string{&o.Phase, &o.Step} {
			if len(args) > i+2 {
				*part = args[i+2]
			}
		}
		if command == "forceComplete" && o.Step == "" {
			if err := cli.Confirm(app, cmd, fmt.Sprintf("Mark all of %s as complete, although parts of it may not have run?",
				strings.Join(args[1:], " "))); err != nil {
				return err
			}
		}
		return cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
			return order(ctx, out, c, args[0], o, what)
		})(cmd, args)
	}
	return cmd
}
