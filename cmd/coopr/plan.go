package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/rpc/client"
)

func (a *app) planCmd() *cobra.Command {
	cmd := group("plan", "Watch and steer the plans by which operations change clusters",
		a.planListCmd(), a.planShowCmd(), a.planStartCmd(), a.planStopCmd(),
		a.planOrderCmd("pause", "interrupt", "interrupt", "paused", "PLAN [PHASE]",
			"Begin nothing more of a plan, or of one of its phases", "  coopr plan pause shop deploy\n  coopr plan pause shop deploy shop-web"),
		a.planOrderCmd("resume", "continue", "continue", "resumed", "PLAN [PHASE]",
			"Go on with a plan or a phase; in a phase with canaries, release the next one", "  coopr plan resume shop deploy\n  coopr plan resume shop deploy nodes"),
		a.planOrderCmd("restart", "force-restart", "restart", "restarted", "PLAN [PHASE [STEP]]",
			"Do a plan again, a phase of it, or a step", "  coopr plan restart shop deploy shop-web\n  coopr plan restart shop deploy shop-web 'shop1-1000:[start]'"),
		a.planOrderCmd("force-complete", "force", "forceComplete", "forced to complete", "PLAN [PHASE [STEP]]",
			"Take a step as complete, or all of a phase or a plan, though it is not", "  coopr plan force-complete shop deploy shop-web 'shop1-1000:[start]'"))
	cmd.Aliases = []string{"plans"}
	return cmd
}

// completePlans gives the names of clusters, and then of the cluster's plans.
func (a *app) completePlans() completion {
	clusters := a.completeClusters()
	return func(cmd *cobra.Command, given []string, start string) ([]string, cobra.ShellCompDirective) {
		switch len(given) {
		case 0:
			return clusters(cmd, given, start)
		case 1:
			return a.complete(func(ctx context.Context, c *client.Client) ([]string, error) {
				names, _, err := c.Plans(ctx, given[0], client.Read{})
				return names, err
			})(cmd, nil, start)
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

func (a *app) planListCmd() *cobra.Command {
	cmd := listCmd(a, listing[tree.DebugPlan]{
		use: "list CLUSTER", short: "List a cluster's plans, in the order of their priority", example: "  coopr plan list shop\n  coopr plan list shop -o json",
		args: args("CLUSTER"), empty: "There are no plans: the cluster's operations are not kept any more.",
		fetch: func(ctx context.Context, c *client.Client, args []string, read client.Read) ([]tree.DebugPlan, client.Meta, error) {
			d, m, err := c.PlansAtAGlance(ctx, args[0], read)
			return d.Plans, m, err
		},
		rows: func(items []tree.DebugPlan) table {
			t := table{head: []string{"NAME", "STATUS", "STRATEGY", "STEPS"}}
			for _, p := range items {
				t.row(p.Name, p.Status, p.Strategy, fmt.Sprintf("%d/%d", p.Completed, p.Total))
			}
			return t
		},
	})
	cmd.ValidArgsFunction = a.completeClusters()
	return cmd
}

func (a *app) planShowCmd() *cobra.Command {
	var watch, raw bool
	cmd := &cobra.Command{
		Use: "show CLUSTER PLAN", Aliases: []string{"status"}, Short: "Show where a plan's phases and steps stand",
		Example: "  coopr plan show shop deploy\n  coopr plan show shop deploy --watch", Args: args("CLUSTER", "PLAN"), ValidArgsFunction: a.completePlans(),
	}
	a.outputFlag(cmd, asTable, asJSON, asYAML)
	cmd.Flags().BoolVar(&raw, "json", false, "the same as -o json")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show the plan again whenever it changes, until it ends or Ctrl-C")
	cmd.RunE = a.with(func(ctx context.Context, c *client.Client, args []string) error {
		if raw {
			a.output = asJSON
		}
		var last tree.Info
		read := client.Read{}
		for first := true; ; first = false {
			info, meta, err := c.Plan(ctx, args[0], args[1], read)
			switch {
			case err != nil && errors.Is(context.Cause(ctx), errInterrupted):
				return nil
			case err != nil:
				return err
			}
			if first || !same(last, info) {
				if err := a.showPlan(args[1], &info, first); err != nil {
					return err
				}
			}
			if !watch || planEnded(&info) || !pause(ctx, a.pace) {
				return nil
			}
			last, read = info, client.Read{After: max(meta.Index, 1), Wait: waitNewer}
		}
	})
	return cmd
}

// planEnded says whether a plan will not go on by itself.
func planEnded(i *tree.Info) bool {
	if i.Status == tree.Complete.String() {
		return true
	}
	if i.Status != tree.Error.String() {
		return false
	}
	for _, p := range i.Phases {
		for _, s := range p.Steps {
			if s.Status == tree.Starting.String() || s.Status == tree.Started.String() || s.Status == tree.Prepared.String() {
				return false
			}
		}
	}
	return true
}

func (a *app) showPlan(name string, i *tree.Info, first bool) error {
	switch {
	case a.structured():
		if !first && a.output == asYAML {
			fmt.Fprintln(a.out, "---")
		}
		return a.print(i)
	case !first && a.outTerminal:
		fmt.Fprint(a.out, "\x1b[H\x1b[2J")
	case !first:
		fmt.Fprintln(a.out)
	}
	text := planStatus.ReplaceAllStringFunc(i.Text(name), func(s string) string {
		return "(" + a.paint(a.out, colourOf(strings.Trim(s, "()")), strings.Trim(s, "()")) + ")"
	})
	_, err := fmt.Fprintln(a.out, text)
	return err
}

// planStatus is the status at the end of a line of a tree.
var planStatus = regexp.MustCompile(`(?m)\([A-Z_]+\)$`)

// orderPlan gives an order, and tells it as the DC/OS command line does.
func (a *app) orderPlan(ctx context.Context, c *client.Client, cluster string, o tree.Order, what string) error {
	said, _, err := c.OrderPlan(ctx, cluster, o)
	switch {
	case err != nil:
		return err
	case what == "":
		a.output = asJSON
		return a.print(said)
	}
	fmt.Fprintln(a.out, tree.Told(what, o.Plan, o.Phase, o.Step, said.Message != ""))
	return nil
}

func (a *app) planStartCmd() *cobra.Command {
	var params []string
	cmd := &cobra.Command{
		Use: "start CLUSTER PLAN", Short: "Start a plan, with parameters for its tasks; one that is complete begins anew",
		Example: "  coopr plan start shop backup\n  coopr plan start shop backup -p BUCKET=nightly -p OPTIONS=a=b", Args: args("CLUSTER", "PLAN"), ValidArgsFunction: a.completePlans(),
	}
	cmd.Flags().StringArrayVarP(&params, "param", "p", nil, "a variable for the environment of the plan's tasks, as NAME=value; may be repeated")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p, err := tree.ParseParams(params)
		if err != nil {
			return usage(cmd, "-p: %v", err)
		}
		return a.with(func(ctx context.Context, c *client.Client, args []string) error {
			return a.orderPlan(ctx, c, args[0], tree.Order{Command: "start", Plan: args[1], Params: p}, "")
		})(cmd, args)
	}
	return cmd
}

func (a *app) planStopCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "stop CLUSTER PLAN", Short: "Hold a plan back and put all of it back to the beginning; what runs is cancelled",
		Example: "  coopr plan stop shop backup", Args: args("CLUSTER", "PLAN"), ValidArgsFunction: a.completePlans(),
	}
	cmd.RunE = a.with(func(ctx context.Context, c *client.Client, args []string) error {
		return a.orderPlan(ctx, c, args[0], tree.Order{Command: "stop", Plan: args[1]}, "")
	})
	return cmd
}

// planOrderCmd makes the command of an order about a plan or a part of it.
func (a *app) planOrderCmd(word, alias, command, what, use, short, example string) *cobra.Command {
	names := []string{"CLUSTER"}
	for _, name := range strings.Fields(use) {
		names = append(names, strings.TrimRight(name, "]"))
	}
	cmd := &cobra.Command{
		Use: word + " CLUSTER " + use, Aliases: []string{alias}, Short: short, Example: example, Args: args(names...), ValidArgsFunction: a.completePlans(),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o := tree.Order{Command: command, Plan: args[1]}
		for i, part := range []*string{&o.Phase, &o.Step} {
			if len(args) > i+2 {
				*part = args[i+2]
			}
		}
		if command == "forceComplete" && o.Step == "" {
			if err := a.confirm(cmd, fmt.Sprintf("Take all of %s as complete, whatever is done of it?", strings.Join(args[1:], " "))); err != nil {
				return err
			}
		}
		return a.with(func(ctx context.Context, c *client.Client, args []string) error {
			return a.orderPlan(ctx, c, args[0], o, what)
		})(cmd, args)
	}
	return cmd
}
