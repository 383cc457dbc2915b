package cluster

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

// lease is the lease of a cluster as the command shows it. Rules are those of the cluster's template.
type lease struct {
	Cluster   string              `json:"cluster"`
	CreatedAt int64               `json:"createTime"`
	ExpiresAt int64               `json:"expireTime"`
	Rules     model.LeaseDuration `json:"rules"`
	// Prolongable is how many milliseconds can be added now; -1: any number.
	Prolongable int64 `json:"prolongable"`
}

func leaseCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	var add string
	cmd := &cobra.Command{
		Use: "lease NAME [--add TIME]", Short: "Show the lease of a cluster, or prolong it", Args: cli.Args("NAME"),
		Long: "Show when the lease of a cluster ends and how far it can be prolonged, or with --add prolong it. A cluster is deleted when\n" +
			"its lease ends. The cluster's template may limit how much is added at once (step) and how long clusters live (max).",
		Example: "  coopr cluster lease shop\n  coopr cluster lease shop --add 2h", ValidArgsFunction: cli.CompleteClusters(app),
	}
	cmd.Flags().StringVar(&add, "add", "", "the time to add to the lease: a whole number with s, m, h or d, such as 2h")
	cli.FormFlag(cmd, output.FormTable, output.FormJSON, output.FormYAML)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var more model.Millis
		if cmd.Flags().Changed("add") {
			var err error
			if more, err = model.ParseMillis(add); err != nil {
				return cli.Usage(cmd, "--add: %v", err)
			}
			if more == 0 {
				return cli.Usage(cmd, "--add: must be more than 0")
			}
		}
		return cli.Show(app, func(ctx context.Context, c *client.Client, args []string) (lease, error) {
			found, _, err := c.Cluster(ctx, args[0], client.Read{})
			if err != nil {
				return lease{}, err
			}
			cl := found.Cluster
			if more > 0 {
				after, _, err := c.ChangeLease(ctx, cl.ID, api.Lease{Add: more})
				if err != nil {
					return lease{}, err
				}
				cl.ExpiresAt = after.ExpiresAt
			}
			return lease{Cluster: cl.Name, CreatedAt: cl.CreatedAt, ExpiresAt: cl.ExpiresAt,
				Rules: cl.Template.Administration.LeaseDuration, Prolongable: int64(cl.Prolongable())}, nil
		}, func(l lease) { describeLease(out, l) })(cmd, args)
	}
	return cmd
}

// describeLease shows a lease as text.
func describeLease(out *output.Printer, l lease) {
	out.Field("Cluster", l.Cluster)
	out.Field("Created", output.Moment(l.CreatedAt))
	if l.ExpiresAt == 0 {
		out.Field("Ends", "never")
		return
	}
	out.Field("Ends", output.Moment(l.ExpiresAt))
	if l.Rules.Max > 0 {
		out.Field("At most", l.Rules.Max.String()+", until "+output.Moment(l.CreatedAt+int64(l.Rules.Max)))
	}
	switch {
	case l.Prolongable < 0:
		out.Field("To prolong", "any time can be added")
	case l.Prolongable == 0:
		out.Field("To prolong", "nothing can be added any more")
	default:
		out.Field("To prolong", "up to "+model.Millis(l.Prolongable).String()+" can be added now")
	}
}
