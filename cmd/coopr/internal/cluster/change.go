package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/words"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
	"github.com/coopr/coopr/cmd/coopr/internal/progress"
)

// changing is a command that changes a cluster, with its flags and the request that they make up.
type changing struct {
	starter progress.Starter
	cmd     *cobra.Command
	op      api.Operate
	nodes   int
	fields  []string
}

// changeCmd returns a command that starts an operation on a cluster. take, which may be nil, puts the
// arguments after the cluster's name into the request.
func changeCmd(app cli.App, op model.OperationType, use, short, example string, arguments []string,
	take func(c *changing, args []string) error) *changing {
	c := &changing{op: api.Operate{Type: op}}
	c.cmd = &cobra.Command{Use: string(op) + " " + use, Short: short, Example: example, Args: cli.Args(arguments...),
		ValidArgsFunction: cli.CompleteClusters(app)}
	c.starter.AddFlags(c.cmd)
	f := c.cmd.Flags()
	f.StringVar(&c.op.Change.OnFailure, "on-failure", "", "what to do when a task fails for good: rollback (default), pause or leave")
	cli.CompleteValues(c.cmd, "on-failure", "rollback", "pause", "leave")
	f.StringArrayVar(&c.fields, "provider-field", nil, "value of a provider field, as name=value; may be repeated")
	c.cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if take != nil {
			if err := take(c, args[1:]); err != nil {
				return err
			}
		}
		c.op.Change.Nodes = model.Int(c.nodes)
		var err error
		if c.op.ProviderFields, err = providerFields(cmd, c.fields); err != nil {
			return err
		}
		return operate(app, cmd, args[0], c.op, &c.starter)
	}
	return c
}

// providerFields parses the values of --provider-field.
func providerFields(cmd *cobra.Command, flags []string) (map[string]any, error) {
	var out map[string]any
	for _, f := range flags {
		name, value, ok := cli.Pair(f)
		if !ok {
			return nil, cli.Usage(cmd, "--provider-field %q must have the form name=value", f)
		}
		if out == nil {
			out = map[string]any{}
		}
		out[name] = value
	}
	return out, nil
}

// newNodeFlags adds the flags that choose the kind of new nodes.
func (c *changing) newNodeFlags(app cli.App) {
	f := c.cmd.Flags()
	f.StringVar(&c.op.Change.HardwareType, "hardware", "", "hardware type of the new nodes (default: from the template)")
	f.StringVar(&c.op.Change.ImageType, "image", "", "image type of the new nodes (default: from the template)")
	f.StringVar(&c.op.Change.Comparator, "comparator", "", "how layouts are compared (default: from the template)")
	cli.CompleteFlag(c.cmd, "hardware", cli.CompleteDefinitions(app, model.KindHardwareType))
	cli.CompleteFlag(c.cmd, "image", cli.CompleteDefinitions(app, model.KindImageType))
	resolveFlag(f, &c.op.Change.ResolveOnFailure)
}

// resolveFlag adds the flag that lets an operation try other layouts.
func resolveFlag(f *pflag.FlagSet, n *model.Int) {
	f.IntVar((*int)(n), "resolve-on-failure", 0,
		"number of other layouts to try if this one fails for good; each failed layout is undone first")
}

// services puts the services that the arguments name into the request.
func services(c *changing, args []string) error { c.op.Services = args; return nil }

func growCmd(app cli.App) *cobra.Command {
	c := changeCmd(app, model.OpGrow, "NAME --nodes N", "Add nodes to a cluster",
		"  coopr cluster grow shop --nodes 2\n  coopr cluster grow shop --nodes 2 --dry-run", []string{"NAME"},
		func(c *changing, _ []string) error {
			if !c.cmd.Flags().Changed("nodes") {
				return cli.Usage(c.cmd, "--nodes is missing: give the number of nodes to add")
			}
			if c.nodes < 1 {
				return cli.Usage(c.cmd, "--nodes: %d is too few; add at least 1 node", c.nodes)
			}
			return nil
		})
	c.cmd.Flags().IntVarP(&c.nodes, "nodes", "n", 0, "number of nodes to add (required)")
	c.newNodeFlags(app)
	return c.cmd
}

func shrinkCmd(app cli.App) *cobra.Command {
	c := changeCmd(app, model.OpShrink, "NAME --nodes N|CLUSTER/NODE…",
		"Remove nodes from a cluster: the named ones, or the newest ones that can be removed",
		"  coopr cluster shrink shop --nodes 1\n  coopr cluster shrink shop/1004 shop/1005 --dry-run\n"+
			"  coopr cluster shrink shop/1004 --force", []string{"NAME", "[NODE…"},
		func(c *changing, args []string) error {
			if c.op.Change.NodeNames = args; len(args) == 0 && c.nodes < 1 {
				return cli.Usage(c.cmd, "give the number of nodes to remove with --nodes, or name the nodes")
			}
			c.starter.Question = fmt.Sprintf("Remove %s and delete the data there?", nodesOf(c.nodes, args))
			return nil
		})
	c.cmd.Flags().IntVarP(&c.nodes, "nodes", "n", 0, "number of nodes to remove")
	c.cmd.Flags().BoolVar(&c.op.Change.Forced, "force", false, "delete the machines without stopping and removing their services first")
	takeNodes(app, c.cmd)
	return c.cmd
}

// nodesOf returns the names of nodes, or their number if there are no names.
func nodesOf(n int, names []string) string {
	if len(names) > 0 {
		return strings.Join(names, ", ")
	}
	return words.Count(n, "node")
}

func addServicesCmd(app cli.App) *cobra.Command {
	c := changeCmd(app, model.OpAddServices, "NAME SERVICE…", "Add services to a cluster",
		"  coopr cluster add-services shop redis\n  coopr cluster add-services shop redis --nodes 1", []string{"NAME", "SERVICE…"}, services)
	c.cmd.Flags().IntVarP(&c.nodes, "nodes", "n", 0, "number of new nodes for the services; 0: use the existing nodes")
	c.newNodeFlags(app)
	return c.cmd
}

func removeServicesCmd(app cli.App) *cobra.Command {
	c := changeCmd(app, model.OpRemoveServices, "NAME SERVICE…", "Remove services from a cluster",
		"  coopr cluster remove-services shop redis", []string{"NAME", "SERVICE…"},
		func(c *changing, args []string) error {
			c.starter.Question = fmt.Sprintf("Remove %s from the cluster and delete the data of these services?", strings.Join(args, ", "))
			return services(c, args)
		})
	return c.cmd
}

func replaceNodeCmd(app cli.App) *cobra.Command {
	c := changeCmd(app, model.OpReplaceNode, "CLUSTER/NODE…", "Delete nodes and create them again under the same names",
		"  coopr cluster replace-node shop/1003 shop/1004 --dry-run\n  coopr cluster replace-node shop/1003 --yes", []string{"NAME", "NODE…"},
		func(c *changing, args []string) error {
			c.op.Change.NodeNames = args
			c.starter.Question = fmt.Sprintf("Delete %s and create them again?", strings.Join(args, ", "))
			return nil
		})
	takeNodes(app, c.cmd)
	return c.cmd
}

func upgradeCmd(app cli.App) *cobra.Command {
	return changeCmd(app, model.OpUpgrade, "NAME [SERVICE…]", "Upgrade all or some services of a cluster to their newest definitions",
		"  coopr cluster upgrade shop\n  coopr cluster upgrade shop shop-web --dry-run", []string{"NAME", "[SERVICE…"}, services).cmd
}

func syncTemplateCmd(app cli.App) *cobra.Command {
	return changeCmd(app, model.OpSyncTemplate, "NAME", "Update a cluster to the newest version of its template",
		"  coopr cluster sync-template shop --dry-run", []string{"NAME"}, nil).cmd
}

func rollbackCmd(app cli.App) *cobra.Command {
	var to int
	c := changeCmd(app, model.OpRollback, "NAME --to N", "Restore a cluster to an earlier snapshot",
		"  coopr cluster history shop\n  coopr cluster rollback shop --to 3 --dry-run", []string{"NAME"}, func(c *changing, _ []string) error {
			if to < 1 {
				return cli.Usage(c.cmd, "--to is missing: give the number of a snapshot; `coopr cluster history` lists them")
			}
			c.op.Change.To = model.Int(to)
			c.starter.Question = fmt.Sprintf("Restore the cluster to snapshot %d?", to)
			return nil
		})
	c.cmd.Flags().IntVar(&to, "to", 0, "number of the snapshot (required)")
	return c.cmd
}

func historyCmd(app cli.App) *cobra.Command {
	return cli.List(app, cli.Listing[api.HistoryEntry]{
		Use: "history NAME", Short: "List the snapshots of a cluster, taken before and after its operations",
		Example: "  coopr cluster history shop",
		Args:    cli.Args("NAME"), Complete: cli.CompleteClusters(app),
		Empty: "There are no snapshots yet. The first one is taken when the cluster has been created.",
		Fetch: func(ctx context.Context, c *client.Client, args []string, read client.Read) ([]api.HistoryEntry, client.Meta, error) {
			return c.History(ctx, args[0], read)
		},
		Rows: func(items []api.HistoryEntry) output.Table {
			t := output.Table{Head: []string{"NUMBER", "TAKEN", "MOMENT", "OPERATION", "STATUS", "NODES", "ACTOR", "SERVICES"}, Wide: 2}
			for _, s := range items {
				t.Row(strconv.Itoa(s.Number), output.Moment(s.Time), s.Moment+" "+string(s.Type), s.Operation, string(s.Status),
					strconv.Itoa(s.Nodes), s.Actor, strings.Join(s.Services, ","))
			}
			return t
		},
	})
}

func diffCmd(app cli.App) *cobra.Command {
	return cli.List(app, cli.Listing[api.Difference]{
		Whole: true, Use: "diff NAME FROM [TO]", Short: "Compare two snapshots of a cluster, or one snapshot with the present cluster",
		Example: "  coopr cluster diff shop 2 5\n  coopr cluster diff shop 2",
		Args:    cli.Args("NAME", "FROM", "[TO"), Complete: cli.CompleteClusters(app), Empty: "There are no differences.",
		Fetch: func(ctx context.Context, c *client.Client, args []string, read client.Read) ([]api.Difference, client.Meta, error) {
			var numbers [2]int
			for i, arg := range args[1:] {
				n, err := strconv.Atoi(arg)
				if err != nil || n < 0 {
					return nil, client.Meta{}, fmt.Errorf("%q is not the number of a snapshot; `coopr cluster history %s` lists them", arg, args[0])
				}
				numbers[i] = n
			}
			return c.Diff(ctx, args[0], numbers[0], numbers[1], read)
		},
		Rows: func(items []api.Difference) output.Table {
			t := output.Table{Head: []string{"WHERE", "FROM", "TO"}}
			for _, d := range items {
				t.Row(d.Path, shown(d.From), shown(d.To))
			}
			return t
		},
	})
}

// shown returns a value of a difference as text.
func shown(v any) string {
	switch v := v.(type) {
	case nil:
		return "-"
	case string:
		return v
	}
	b, err := json.Marshal(v)
	if err != nil {
		return "?"
	}
	return string(b)
}

func labelCmd(app cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "label NAME KEY=VALUE|KEY-…", Short: "Set and remove labels of a cluster", ValidArgsFunction: cli.CompleteClusters(app),
		Long:    "Set labels of a cluster, as KEY=VALUE or KEY alone, and remove others, as KEY-. Policies can read labels.",
		Example: "  coopr cluster label shop protected approved-by=carol\n  coopr cluster label shop protected-",
		Args:    cli.Args("NAME", "KEY=VALUE|KEY-…"),
	}
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		l := api.Labels{Set: map[string]string{}}
		for _, text := range args[1:] {
			if key, ok := strings.CutSuffix(text, "-"); ok && !strings.Contains(text, "=") {
				l.Remove = append(l.Remove, key)
				continue
			}
			key, value, _ := strings.Cut(text, "=")
			l.Set[key] = value
		}
		cl, _, err := c.LabelCluster(ctx, args[0], l)
		if err == nil {
			app.Printer().Printf("Labels of cluster %s: %s\n", cl.Name, labelsText(cl.Labels))
		}
		return err
	})
	return cmd
}

// labelsText returns labels as a text for people.
func labelsText(labels map[string]string) string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		text := key
		if labels[key] != "" {
			text += "=" + labels[key]
		}
		out = append(out, text)
	}
	return cmp.Or(strings.Join(out, ", "), "none")
}

func resolveCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	var reason string
	cmd := &cobra.Command{
		Use: "resolve NAME --reason TEXT", Short: "Mark a failed cluster as repaired", Args: cli.Args("NAME"),
		Example: "  coopr cluster resolve shop --reason 'restarted the store by hand'", ValidArgsFunction: cli.CompleteClusters(app),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "how the cluster was repaired (required)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if reason == "" {
			return cli.Usage(cmd, "--reason is missing: describe the repair; the audit log keeps the text")
		}
		return cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
			cl, _, err := c.Resolve(ctx, args[0], reason)
			if err != nil {
				return err
			}
			out.Printf("Cluster %s is %s.\n", cl.Name, cl.Status)
			return nil
		})(cmd, args)
	}
	return cmd
}
