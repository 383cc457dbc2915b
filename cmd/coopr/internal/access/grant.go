package access

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

// GrantCommand returns the command "grant".
func GrantCommand(app cli.App) *cobra.Command {
	out := app.Printer()
	list := cli.List(app, cli.Listing[model.Grant]{
		Use: "list", Short: "List what is shared: by you, with you, and of what you may share", Example: "  coopr grant list",
		Empty: "Nothing is shared.",
		Fetch: func(ctx context.Context, c *client.Client, _ []string, read client.Read) ([]model.Grant, client.Meta, error) {
			return c.Grants(ctx, read)
		},
		Rows: func(items []model.Grant) output.Table {
			t := output.Table{Head: []string{"ID", "TO", "ACTIONS", "RESOURCE", "NAME", "BY", "ENDS"}}
			for _, g := range items {
				t.Row(g.ID, g.To, strings.Join(g.Actions, ","), g.Resource, g.Name, g.Granter, ends(out, g.Until))
			}
			return t
		},
	})
	var until string
	add := &cobra.Command{
		Use: "add TO ACTIONS TYPE/NAME", Short: "Share something with a user or a group", Args: cli.Args("TO", "ACTIONS", "TYPE/NAME"),
		ValidArgsFunction: completeUsers(app),
		Long: "Share something with a user, a service account or a group (group/NAME). ACTIONS are separated by commas: read, operate,\n" +
			"update, delete, label, use, execute, approve. Who may do something with a resource may also see it. You can share only what you\n" +
			"may do yourself, and the grant counts as long as you may. Who got a grant cannot hand it on.",
		Example: "  coopr grant add bob read,operate cluster/my-shop --until 2h\n  coopr grant add group/oncall operate cluster/my-shop",
	}
	add.Flags().StringVar(&until, "until", "", "how long the grant counts, such as 2h or 7d; without end if absent")
	add.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		g, _, err := c.CreateGrant(ctx, api.NewGrant{To: args[0], Actions: strings.Split(args[1], ","), Resource: args[2], TTL: until})
		if err == nil {
			out.Printf("%s may now %s %s (grant %s).\n", args[0], strings.Join(g.Actions, ", "), args[2], g.ID)
		}
		return err
	})
	remove := &cobra.Command{Use: "remove ID", Short: "Remove a grant", Args: cli.Args("ID"), Example: "  coopr grant remove 7F3A2BCD"}
	remove.ValidArgsFunction = cli.Complete(app, func(ctx context.Context, c *client.Client) ([]string, error) {
		all, _, err := c.Grants(ctx, client.Read{})
		var out []string
		for _, g := range all {
			out = append(out, g.ID+"\t"+g.To+" "+g.Resource)
		}
		return out, err
	})
	remove.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		_, err := c.DeleteGrant(ctx, args[0])
		if err == nil {
			out.Printf("Grant %s was removed.\n", args[0])
		}
		return err
	})
	return cli.Group("grant", "Share clusters and other things", list, add, remove)
}
