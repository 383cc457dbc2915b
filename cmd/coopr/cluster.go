package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"
)

func (a *app) clusterCmd() *cobra.Command {
	return group("cluster", "Create, change and watch clusters",
		a.clusterCreateCmd(), a.clusterListCmd(), a.clusterGetCmd(), a.clusterDeleteCmd(),
		a.clusterServicesCmd(model.OpStart), a.clusterServicesCmd(model.OpStop), a.clusterServicesCmd(model.OpRestart),
		a.clusterConfigureCmd(), a.clusterGrowCmd(), a.clusterShrinkCmd(), a.clusterAddServicesCmd(), a.clusterRemoveServicesCmd(),
		a.clusterReplaceNodeCmd(), a.clusterUpgradeCmd(), a.clusterSyncTemplateCmd(), a.clusterRollbackCmd(),
		a.clusterHistoryCmd(), a.clusterDiffCmd(), a.clusterResolveCmd(), a.clusterWatchCmd(),
		a.recoveryCmd("pause", "Recover nothing of a cluster by itself, until it is resumed", true),
		a.recoveryCmd("resume", "Recover what fails of a cluster by itself again", false))
}

func (a *app) clusterListCmd() *cobra.Command {
	var status []string
	cmd := listCmd(a, listing[api.ClusterSummary]{
		use: "list", short: "List clusters", example: "  coopr cluster list\n  coopr cluster list --status active,pending --watch",
		narrow: []string{"status"}, empty: "There are no clusters: coopr cluster create NAME --template TEMPLATE --nodes N makes one.",
		fetch: func(ctx context.Context, c *client.Client, _ []string, read client.Read) ([]api.ClusterSummary, client.Meta, error) {
			return c.Clusters(ctx, status, read)
		},
		rows: func(items []api.ClusterSummary) table {
			t := table{head: []string{"NAME", "ID", "STATUS", "NODES", "TEMPLATE", "LATEST", "AGE", "PROVIDER", "OWNER", "SERVICES", "MESSAGE"}, wide: 4}
			for _, cl := range items {
				t.row(cl.Name, cl.ID, string(cl.Status), strconv.Itoa(cl.NumNodes), cl.ClusterTemplate.Name, latest(cl.Progress), a.ago(cl.CreatedAt),
					cl.Provider.Name, cl.OwnerID, clip(strings.Join(cl.Services, ","), 60), clip(cl.Message, 60))
			}
			return t
		},
	})
	cmd.Flags().StringSliceVar(&status, "status", nil, "only these statuses: pending, active, incomplete, inconsistent, failed, terminated")
	return cmd
}

// latest says what the latest operation is and how far.
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

func (a *app) clusterGetCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "get NAME", Short: "Show a cluster with its nodes and links", Args: args("NAME"),
		Example: "  coopr cluster get shop\n  coopr cluster get shop -o yaml", ValidArgsFunction: a.completeClusters(),
	}
	a.outputFlag(cmd, asTable, asJSON, asYAML, asWide)
	cmd.RunE = a.with(func(ctx context.Context, c *client.Client, args []string) error {
		cl, _, err := c.Cluster(ctx, args[0], client.Read{})
		if err != nil {
			return err
		}
		if a.structured() {
			return a.print(cl)
		}
		a.describe(cl)
		return nil
	})
	return cmd
}

func (a *app) describe(cl api.ClusterDetails) {
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(a.out, "%-12s %s\n", name+":", value)
		}
	}
	line("Name", cl.Name)
	line("Id", cl.ID)
	line("Status", a.paint(a.out, colourOf(string(cl.Status)), string(cl.Status)))
	line("Message", cl.Message)
	line("Description", cl.Description)
	line("Template", cl.Template.Name)
	line("Provider", cl.Provider.Name)
	line("Services", strings.Join(cl.Services, ", "))
	line("Owner", cl.Owner)
	line("Created", moment(cl.CreatedAt))
	line("Expires", moment(cl.ExpiresAt))
	if cl.Operation != "" {
		line("Operation", fmt.Sprintf("%s (%s)", cl.Operation, latest(cl.Progress)))
	}
	a.healthLines(line, &cl)
	a.links(cl.Links)
	if cl.Status == model.ClusterFailed {
		fmt.Fprintf(a.out, "\n%s\n", wayOut(cl.Name))
	}
	if len(cl.Nodes) > 0 {
		fmt.Fprintln(a.out)
		a.show(nodeTable(cl.Nodes))
	}
}

func (a *app) links(links []model.Link) {
	for i, l := range links {
		head := ""
		if i == 0 {
			head = "Links:"
		}
		fmt.Fprintf(a.out, "%-12s %s  %s\n", head, l.Label, a.paint(a.out, blue, l.URL))
	}
}

func (a *app) clusterDeleteCmd() *cobra.Command {
	var r running
	var graceful bool
	cmd := &cobra.Command{
		Use: "delete NAME", Short: "Delete a cluster and its machines", Args: args("NAME"),
		Example: "  coopr cluster delete shop\n  coopr cluster delete shop --yes --detach", ValidArgsFunction: a.completeClusters(),
	}
	cmd.Flags().BoolVar(&graceful, "graceful", false, "stop and remove the services before the machines go")
	r.flags(a, cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r.question = fmt.Sprintf("Delete cluster %s and all its machines?", args[0])
		return a.operate(cmd, args[0], api.Operate{Type: model.OpDelete, Graceful: graceful}, &r)
	}
	return cmd
}

func (a *app) clusterServicesCmd(op model.OperationType) *cobra.Command {
	var r running
	word := string(op)
	cmd := &cobra.Command{
		Use: word + " NAME [SERVICE…]", Short: strings.ToUpper(word[:1]) + word[1:] + " the services of a cluster, or some of them", Args: args("NAME", "[SERVICE…"),
		Example: fmt.Sprintf("  coopr cluster %s shop\n  coopr cluster %s shop nginx", word, word), ValidArgsFunction: a.completeClusters(),
	}
	r.flags(a, cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.operate(cmd, args[0], api.Operate{Type: op, Services: args[1:]}, &r)
	}
	return cmd
}

func (a *app) clusterConfigureCmd() *cobra.Command {
	var r running
	var file string
	var set []string
	var replace, noRestart bool
	cmd := &cobra.Command{
		Use: "configure NAME", Short: "Apply a cluster's configuration, changed or as it is", Args: args("NAME"),
		Example: "  coopr cluster configure shop --set nginx.workers=8\n  coopr cluster configure shop --config new.yaml --replace --no-restart", ValidArgsFunction: a.completeClusters(),
	}
	cmd.Flags().StringVar(&file, "config", "", "file with configuration, JSON or YAML")
	cmd.Flags().StringArrayVar(&set, "set", nil, "one value, as path.to.key=value; may be repeated")
	cmd.Flags().BoolVar(&replace, "replace", false, "the given configuration alone counts; else it is merged over the present one")
	cmd.Flags().BoolVar(&noRestart, "no-restart", false, "do not restart services whose configuration changes")
	r.flags(a, cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		config, err := a.configOf(cmd, file, set)
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
				return usage(cmd, "--no-restart goes with --config or --set")
			}
		}
		return a.operate(cmd, args[0], op, &r)
	}
	return cmd
}

func (a *app) clusterWatchCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "watch NAME", Short: "Watch a cluster's latest operation until it ends", Args: args("NAME"),
		Example: "  coopr cluster watch shop", ValidArgsFunction: a.completeClusters(),
	}
	cmd.RunE = a.with(func(ctx context.Context, c *client.Client, args []string) error {
		cl, _, err := c.Cluster(ctx, args[0], client.Read{})
		if err != nil {
			return err
		}
		if cl.Operation == "" {
			fmt.Fprintf(a.out, "Cluster %s has had no operation.\n", cl.Name)
			return nil
		}
		return a.follow(ctx, c, cl.Operation)
	})
	return cmd
}
