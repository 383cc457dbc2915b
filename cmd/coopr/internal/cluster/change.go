package cluster

import (
	"context"
	"encoding/json"
	"fmt"
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

// changing is a command that changes a cluster: its flags, and the request they
// come to.
type changing struct {
	r      progress.Starter
	cmd    *cobra.Command
	op     api.Operate
	nodes  int
	fields []string
}

// changeCmd makes a command that starts an operation; take puts its arguments
// behind the cluster's name into the request.
func changeCmd(app cli.App, op model.OperationType, use, short, example string, arguments []string, take func(c *changing, args []string) error) *changing {
	c := &changing{op: api.Operate{Type: op}}
	c.cmd = &cobra.Command{Use: string(op) + " " + use, Short: short, Example: example, Args: cli.Args(arguments...), ValidArgsFunction: cli.CompleteClusters(app)}
	c.r.AddFlags(c.cmd)
	f := c.cmd.Flags()
	f.StringVar(&c.op.Change.OnFailure, "on-failure", "", "what happens when a task fails for good: rollback (the usual), pause or leave")
	f.StringArrayVar(&c.fields, "provider-field", nil, "a field that the provider asks users for, as name=value; may be repeated")
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
		return operate(app, cmd, args[0], c.op, &c.r)
	}
	return c
}

// providerFields reads name=value flags.
func providerFields(cmd *cobra.Command, flags []string) (map[string]any, error) {
	var out map[string]any
	for _, f := range flags {
		name, value, ok := cli.Pair(f)
		if !ok {
			return nil, cli.Usage(cmd, "--provider-field %q: write name=value", f)
		}
		if out == nil {
			out = map[string]any{}
		}
		out[name] = value
	}
	return out, nil
}

// newNodeFlags are those that choose what new nodes are.
func (c *changing) newNodeFlags() {
	f := c.cmd.Flags()
	f.StringVar(&c.op.Change.HardwareType, "hardware", "", "hardware type of the new nodes, else as the template says")
	f.StringVar(&c.op.Change.ImageType, "image", "", "image type of the new nodes, else as the template says")
	f.StringVar(&c.op.Change.Comparator, "comparator", "", "how layouts are compared, else as the template says")
	resolveFlag(f, &c.op.Change.ResolveOnFailure)
}

// resolveFlag is the flag that asks for other layouts where one fails.
func resolveFlag(f *pflag.FlagSet, n *model.Int) {
	f.IntVar((*int)(n), "resolve-on-failure", 0, "how many other layouts to try where this one fails for good, each after the one before was undone")
}

func services(c *changing, args []string) error { c.op.Services = args; return nil }

func growCmd(app cli.App) *cobra.Command {
	c := changeCmd(app, model.OpGrow, "NAME --nodes N", "Add nodes to a cluster",
		"  coopr cluster grow shop --nodes 2\n  coopr cluster grow shop --nodes 2 --dry-run", []string{"NAME"}, func(c *changing, _ []string) error {
			if !c.cmd.Flags().Changed("nodes") {
				return cli.Usage(c.cmd, "--nodes is missing: say how many nodes to add")
			}
			if c.nodes < 1 {
				return cli.Usage(c.cmd, "--nodes: %d is too few: at least 1 node is added", c.nodes)
			}
			return nil
		})
	c.cmd.Flags().IntVarP(&c.nodes, "nodes", "n", 0, "how many nodes to add (required)")
	c.newNodeFlags()
	return c.cmd
}

func shrinkCmd(app cli.App) *cobra.Command {
	c := changeCmd(app, model.OpShrink, "NAME (--nodes N | NODE…)", "Take nodes away from a cluster: the newest that can go, or those named",
		"  coopr cluster shrink shop --nodes 1\n  coopr cluster shrink shop 1004 1005 --dry-run", []string{"NAME", "[NODE…"}, func(c *changing, args []string) error {
			if c.op.Change.NodeNames = args; len(args) == 0 && c.nodes < 1 {
				return cli.Usage(c.cmd, "say how many nodes go with --nodes, or name them")
			}
			c.r.Question = fmt.Sprintf("Take %s away, with all that is on them?", nodesOf(c.nodes, args))
			return nil
		})
	c.cmd.Flags().IntVarP(&c.nodes, "nodes", "n", 0, "how many nodes to take away")
	return c.cmd
}

func nodesOf(n int, names []string) string {
	if len(names) > 0 {
		return strings.Join(names, ", ")
	}
	return words.Count(n, "node")
}

func addServicesCmd(app cli.App) *cobra.Command {
	c := changeCmd(app, model.OpAddServices, "NAME SERVICE…", "Put services onto a cluster",
		"  coopr cluster add-services shop redis\n  coopr cluster add-services shop redis --nodes 1", []string{"NAME", "SERVICE…"}, services)
	c.cmd.Flags().IntVarP(&c.nodes, "nodes", "n", 0, "how many new nodes the services may have; none: they go onto the nodes there are")
	c.newNodeFlags()
	return c.cmd
}

func removeServicesCmd(app cli.App) *cobra.Command {
	c := changeCmd(app, model.OpRemoveServices, "NAME SERVICE…", "Take services off a cluster", "  coopr cluster remove-services shop redis", []string{"NAME", "SERVICE…"},
		func(c *changing, args []string) error {
			c.r.Question = fmt.Sprintf("Take %s off the cluster, with their data?", strings.Join(args, ", "))
			return services(c, args)
		})
	return c.cmd
}

func replaceNodeCmd(app cli.App) *cobra.Command {
	c := changeCmd(app, model.OpReplaceNode, "NAME NODE…", "Make nodes anew, under their numbers and names",
		"  coopr cluster replace-node shop 1003 1004 --dry-run\n  coopr cluster replace-node shop 1003 --yes", []string{"NAME", "NODE…"},
		func(c *changing, args []string) error {
			c.op.Change.NodeNames = args
			c.r.Question = fmt.Sprintf("Delete %s and make them anew?", strings.Join(args, ", "))
			return nil
		})
	return c.cmd
}

func upgradeCmd(app cli.App) *cobra.Command {
	return changeCmd(app, model.OpUpgrade, "NAME [SERVICE…]", "Move a cluster's services to their newest definitions, or some of them",
		"  coopr cluster upgrade shop\n  coopr cluster upgrade shop shop-web --dry-run", []string{"NAME", "[SERVICE…"}, services).cmd
}

func syncTemplateCmd(app cli.App) *cobra.Command {
	return changeCmd(app, model.OpSyncTemplate, "NAME", "Bring a cluster to the newest version of its template",
		"  coopr cluster sync-template shop --dry-run", []string{"NAME"}, nil).cmd
}

func rollbackCmd(app cli.App) *cobra.Command {
	var to int
	c := changeCmd(app, model.OpRollback, "NAME --to N", "Bring a cluster back to an earlier snapshot",
		"  coopr cluster history shop\n  coopr cluster rollback shop --to 3 --dry-run", []string{"NAME"}, func(c *changing, _ []string) error {
			if to < 1 {
				return cli.Usage(c.cmd, "--to is missing: give the number of a snapshot, as `coopr cluster history` shows them")
			}
			c.op.Change.To = model.Int(to)
			c.r.Question = fmt.Sprintf("Bring the cluster back to snapshot %d?", to)
			return nil
		})
	c.cmd.Flags().IntVar(&to, "to", 0, "number of the snapshot (required)")
	return c.cmd
}

func historyCmd(app cli.App) *cobra.Command {
	return cli.List(app, cli.Listing[api.HistoryEntry]{
		Use: "history NAME", Short: "Show a cluster's snapshots: what it was before and after its operations", Example: "  coopr cluster history shop",
		Args: cli.Args("NAME"), Empty: "There are no snapshots yet: the first is taken when the cluster is made.",
		Fetch: func(ctx context.Context, c *client.Client, args []string, read client.Read) ([]api.HistoryEntry, client.Meta, error) {
			return c.History(ctx, args[0], read)
		},
		Rows: func(items []api.HistoryEntry) output.Table {
			t := output.Table{Head: []string{"NUMBER", "TAKEN", "MOMENT", "OPERATION", "STATUS", "NODES", "ACTOR", "SERVICES"}, Wide: 2}
			for _, s := range items {
				t.Row(strconv.Itoa(s.Number), output.Moment(s.Time), s.Moment+" "+string(s.Type), s.Operation, string(s.Status), strconv.Itoa(s.Nodes), s.Actor, strings.Join(s.Services, ","))
			}
			return t
		},
	})
}

func diffCmd(app cli.App) *cobra.Command {
	return cli.List(app, cli.Listing[api.Difference]{
		Use: "diff NAME FROM [TO]", Short: "Show what two snapshots of a cluster differ in, or one and the cluster as it is", Example: "  coopr cluster diff shop 2 5\n  coopr cluster diff shop 2",
		Args: cli.Args("NAME", "FROM", "[TO"), Empty: "There is no difference.",
		Fetch: func(ctx context.Context, c *client.Client, args []string, read client.Read) ([]api.Difference, client.Meta, error) {
			var numbers [2]int
			for i, arg := range args[1:] {
				n, err := strconv.Atoi(arg)
				if err != nil || n < 0 {
					return nil, client.Meta{}, fmt.Errorf("%q is no snapshot: give a number, as `coopr cluster history %s` shows them", arg, args[0])
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

// shown writes a value of a difference in little room.
func shown(v any) string {
	switch v := v.(type) {
	case nil:
		return "-"
	case string:
		return output.Clip(v, 60)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return "?"
	}
	return output.Clip(string(b), 60)
}

func resolveCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	var reason string
	cmd := &cobra.Command{
		Use: "resolve NAME --reason TEXT", Short: "Say that you have put a cluster in order which an operation left in disorder", Args: cli.Args("NAME"),
		Example: "  coopr cluster resolve shop --reason 'restarted the store by hand'", ValidArgsFunction: cli.CompleteClusters(app),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "what was done (required)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if reason == "" {
			return cli.Usage(cmd, "--reason is missing: say what was done, for those who read the audit log later")
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
