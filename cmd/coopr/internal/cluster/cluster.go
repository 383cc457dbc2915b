// Package cluster holds the commands for clusters and their nodes.
package cluster

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
	"github.com/coopr/coopr/cmd/coopr/internal/progress"
)

// Command returns the command "cluster".
func Command(app cli.App) *cobra.Command {
	return cli.Group("cluster", "Create, change and watch clusters",
		createCmd(app), listCmd(app), getCmd(app), deleteCmd(app),
		servicesCmd(app, model.OpStart), servicesCmd(app, model.OpStop), servicesCmd(app, model.OpRestart),
		configureCmd(app), growCmd(app), shrinkCmd(app), addServicesCmd(app), removeServicesCmd(app),
		replaceNodeCmd(app), upgradeCmd(app), syncTemplateCmd(app), rollbackCmd(app),
		historyCmd(app), diffCmd(app), resolveCmd(app), labelCmd(app), leaseCmd(app), watchCmd(app), logsCmd(app),
		recoveryCmd(app, "pause", "Stop the automatic recovery of a cluster", true),
		recoveryCmd(app, "resume", "Resume the automatic recovery of a cluster", false))
}

func listCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	var filter client.ClusterFilter
	cmd := cli.List(app, cli.Listing[api.ClusterSummary]{
		Use: "list", Short: "List clusters", Example: "  coopr cluster list\n  coopr cluster list --status active,pending --watch\n" +
			"  coopr cluster list --unhealthy",
		Narrow: []string{"status", "unhealthy"},
		Empty:  "There are no clusters. To create one: coopr cluster create NAME --template TEMPLATE --nodes N",
		Fetch: func(ctx context.Context, c *client.Client, _ []string, read client.Read) ([]api.ClusterSummary, client.Meta, error) {
			return c.Clusters(ctx, filter, read)
		},
		Rows: func(items []api.ClusterSummary) output.Table {
			t := output.Table{Head: []string{"NAME", "ID", "STATUS", "HEALTH", "NODES", "TEMPLATE", "LATEST", "AGE", "PROVIDER", "OWNER",
				"SERVICES", "MESSAGE"}, Wide: 4}
			for _, cl := range items {
				t.Row(cl.Name, cl.ID, string(cl.Status), cl.Health, strconv.Itoa(cl.NumNodes), cl.ClusterTemplate.Name, latest(cl.Progress),
					out.Ago(cl.CreatedAt), cl.Provider.Name, cl.OwnerID, strings.Join(cl.Services, ","), cl.Message)
			}
			return t
		},
	})
	cmd.Flags().StringSliceVar(&filter.Statuses, "status", nil,
		"only clusters with these statuses: pending, active, incomplete, inconsistent, failed, terminated")
	cli.CompleteValues(cmd, "status", "pending", "active", "incomplete", "inconsistent", "failed", "terminated")
	cmd.Flags().BoolVar(&filter.Unhealthy, "unhealthy", false,
		"only clusters that need attention: unhealthy nodes, a failed latest operation, or status incomplete, inconsistent or failed")
	return cmd
}

// latest describes the latest operation and its progress.
func latest(p api.ClusterProgress) string {
	if p.Action == "" {
		return ""
	}
	s := string(p.Action) + " " + string(p.ActionStatus)
	if !p.ActionStatus.Ended() && p.StepsTotal > 0 {
		s += fmt.Sprintf(" %d%%", 100*p.StepsCompleted/p.StepsTotal)
	}
	return s
}

func getCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	cmd := &cobra.Command{
		Use: "get NAME", Short: "Show a cluster with its nodes and links", Args: cli.Args("NAME"),
		Example: "  coopr cluster get shop\n  coopr cluster get shop -o yaml", ValidArgsFunction: cli.CompleteClusters(app),
	}
	cli.FormFlag(cmd, output.FormTable, output.FormJSON, output.FormYAML, output.FormWide)
	cmd.RunE = cli.Show(app, func(ctx context.Context, c *client.Client, args []string) (api.ClusterDetails, error) {
		cl, _, err := c.Cluster(ctx, args[0], client.Read{})
		return cl, err
	}, func(cl api.ClusterDetails) { describe(out, cl) })
	return cmd
}

// describe shows a cluster as text.
func describe(out *output.Printer, cl api.ClusterDetails) {
	out.Field("Name", cl.Name)
	out.Field("Id", cl.ID)
	out.Field("Status", out.Status(string(cl.Status)))
	out.Field("Message", cl.Message)
	out.Field("Description", cl.Description)
	out.Field("Template", cl.Template.Name)
	out.Field("Provider", cl.Provider.Name)
	out.Field("Services", strings.Join(cl.Services, ", "))
	out.Field("Owner", cl.Owner)
	out.Field("Created", output.Moment(cl.CreatedAt))
	out.Field("Expires", output.Moment(cl.ExpiresAt))
	if cl.Operation != "" {
		out.Field("Operation", fmt.Sprintf("%s (%s)", cl.Operation, latest(cl.Progress)))
	}
	healthLines(out, &cl)
	progress.ShowLinks(out, cl.Links)
	if cl.Status == model.ClusterFailed {
		out.Printf("\n%s\n", progress.RepairHint(cl.Name))
	}
	if len(cl.Nodes) > 0 {
		out.Println()
		out.Show(nodeTable(cl.Nodes))
	}
}

func deleteCmd(app cli.App) *cobra.Command {
	var r progress.Starter
	var graceful bool
	cmd := &cobra.Command{
		Use: "delete NAME", Short: "Delete a cluster and its machines", Args: cli.Args("NAME"),
		Example: "  coopr cluster delete shop\n  coopr cluster delete shop --yes --detach", ValidArgsFunction: cli.CompleteClusters(app),
	}
	cmd.Flags().BoolVar(&graceful, "graceful", false, "stop and remove the services before the machines are deleted")
	r.AddFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r.Question = fmt.Sprintf("Delete cluster %s and all its machines?", args[0])
		return operate(app, cmd, args[0], api.Operate{Type: model.OpDelete, Graceful: graceful}, &r)
	}
	return cmd
}

func servicesCmd(app cli.App, op model.OperationType) *cobra.Command {
	var r progress.Starter
	word := string(op)
	cmd := &cobra.Command{
		Use: word + " NAME [SERVICE…]", Short: strings.ToUpper(word[:1]) + word[1:] + " all or some services of a cluster",
		Args:    cli.Args("NAME", "[SERVICE…"),
		Example: fmt.Sprintf("  coopr cluster %s shop\n  coopr cluster %s shop nginx", word, word), ValidArgsFunction: cli.CompleteClusters(app),
	}
	cmd.Example += fmt.Sprintf("\n  coopr cluster %s shop --only 1003,1004 --dry-run\n  coopr cluster %s shop nginx --exclude shop1-1003", word, word)
	cmd.Long = cmd.Short + ".\n\nOther services are included as dependencies ask for: those that a started service needs, and those that need a " +
		"stopped or restarted\none. With --only or --exclude, this holds on the chosen nodes alone, and nothing is done on any other node."
	r.AddFlags(cmd)
	choice := chooseNodes(app, cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		req := api.Operate{Type: op, Services: args[1:]}
		var err error
		if req.NodeChoice, err = choice(args[0]); err != nil {
			return err
		}
		return operate(app, cmd, args[0], req, &r)
	}
	return cmd
}

func configureCmd(app cli.App) *cobra.Command {
	var r progress.Starter
	var file string
	var set []string
	var replace, noRestart bool
	cmd := &cobra.Command{
		Use: "configure NAME", Short: "Change the configuration of a cluster, or apply it again", Args: cli.Args("NAME"),
		Example: "  coopr cluster configure shop --set nginx.workers=8\n" +
			"  coopr cluster configure shop --config new.yaml --replace --no-restart", ValidArgsFunction: cli.CompleteClusters(app),
	}
	cmd.Flags().StringVar(&file, "config", "", "JSON or YAML file with configuration")
	cmd.Flags().StringArrayVar(&set, "set", nil, "one configuration value, as path.to.key=value; may be repeated")
	cmd.Flags().BoolVar(&replace, "replace", false, "replace the whole configuration; without this flag the given values are merged into it")
	cmd.Flags().BoolVar(&noRestart, "no-restart", false, "do not restart the services whose configuration changes")
	r.AddFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		config, err := configOf(app, cmd, file, set)
		if err != nil {
			return err
		}
		op := api.Operate{Type: model.OpConfigure, Config: config}
		if replace {
			op.ConfigMode = model.ConfigReplace
		}
		if noRestart {
			no := false
			op.Restart = &no
			if config == nil {
				return cli.Usage(cmd, "--no-restart requires --config or --set")
			}
		}
		return operate(app, cmd, args[0], op, &r)
	}
	return cmd
}

func watchCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	cmd := &cobra.Command{
		Use: "watch NAME", Short: "Watch a cluster's latest operation until it ends", Args: cli.Args("NAME"),
		Example: "  coopr cluster watch shop", ValidArgsFunction: cli.CompleteClusters(app),
	}
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		cl, _, err := c.Cluster(ctx, args[0], client.Read{})
		if err != nil {
			return err
		}
		if cl.Operation == "" {
			out.Printf("Cluster %s has had no operations.\n", cl.Name)
			return nil
		}
		return progress.Follow(ctx, app, c, cl.Operation)
	})
	return cmd
}
