// Package search holds the command that finds things by a part of their names.
package search

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

// Command returns the command "search".
func Command(app cli.App) *cobra.Command {
	var types []string
	var limit int
	cmd := cli.List(app, cli.Listing[api.Found]{
		Use: "search TEXT", Short: "Find clusters, nodes, definitions and all else by a part of the name or id", Args: cli.Args("TEXT"),
		Example: "  coopr search shop\n  coopr search 00000001-10 --type node\n  coopr search nginx -o json",
		Empty:   "Nothing that you may see has this in its name or id.",
		Whole:   true, Still: true,
		Fetch: func(ctx context.Context, c *client.Client, args []string, read client.Read) ([]api.Found, client.Meta, error) {
			return c.Find(ctx, args[0], types, limit, read)
		},
		Rows: func(items []api.Found) output.Table {
			t := output.Table{Head: []string{"TYPE", "NAME", "ID", "STATUS", "CLUSTER"}}
			for _, f := range items {
				t.Row(f.Type, f.Name, f.ID, f.Status, f.Cluster)
			}
			return t
		},
	})
	cmd.Flags().StringSliceVar(&types, "type", nil, "only things of these types, such as cluster, node, template or run")
	cmd.Flags().IntVar(&limit, "limit", 0, "show at most this many, up to 100 (default 20)")
	return cmd
}
