package cluster

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

func NodeCommand(app cli.App) *cobra.Command {
	out := app.Printer()
	var cluster string
	var page client.Page
	list := cli.List(app, cli.Listing[model.Node]{
		Use: "list", Short: "List nodes", Example: "  coopr node list --cluster shop -o wide",
		Narrow: []string{"cluster"}, Empty: "There are no nodes.",
		Fetch: func(ctx context.Context, c *client.Client, _ []string, read client.Read) ([]model.Node, client.Meta, error) {
			return c.Nodes(ctx, cluster, page, read)
		},
		Rows: nodeTable,
	})
	list.Flags().StringVar(&cluster, "cluster", "", "only of this cluster")
	_ = list.RegisterFlagCompletionFunc("cluster", func(cmd *cobra.Command, _ []string, start string) ([]string, cobra.ShellCompDirective) {
		return cli.CompleteClusters(app)(cmd, nil, start)
	})
	cli.PageFlags(list, &page)

	get := &cobra.Command{Use: "get ID", Short: "Show everything about a node", Args: cli.Args("ID"), Example: "  coopr node get 00000001-1000"}
	cli.FormFlag(get, output.FormYAML, output.FormJSON)
	get.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		n, _, err := c.Node(ctx, args[0], client.Read{})
		if err != nil {
			return err
		}
		return out.Encode(n)
	})
	return cli.Group("node", "Look at nodes, and look after them", list, get,
		nodeRunCmd(app, "restart", model.OpRecover, "Restart the services of a node where they are, or some of them"),
		nodeRunCmd(app, "replace", model.OpReplaceNode, "Make a node anew under its number and name, whatever state it is in"),
		nodeRunCmd(app, "pause", model.OpPauseNode, "Stop the services of a node, or some of them, and leave them alone"),
		nodeRunCmd(app, "resume", model.OpResumeNode, "Start the services of a node again that were paused"))
}

func nodeTable(items []model.Node) output.Table {
	t := output.Table{Head: []string{"ID", "HOSTNAME", "ADDRESS", "HARDWARE", "IMAGE", "SERVICES", "STATES", "CLUSTER"}, Wide: 2}
	// What no node has is no column; from the right to the left.
	more := slices.DeleteFunc([]nodeColumn{
		{6, "HEALTH", func(n *model.Node) string { return n.Health.Status() }},
		{3, "HOST", func(n *model.Node) string { return n.Host }},
		{3, "ZONE", func(n *model.Node) string { return n.Zone }},
	}, func(c nodeColumn) bool {
		return !slices.ContainsFunc(items, func(n model.Node) bool { return c.of(&n) != "" })
	})
	for _, c := range more {
		t.Head = slices.Insert(t.Head, c.at, c.head)
	}
	for _, n := range items {
		states := make([]string, 0, len(n.States))
		for service, state := range n.States {
			states = append(states, service+"="+state)
		}
		sort.Strings(states)
		row := []string{n.ID, n.Hostname, address(n), n.HardwareType, n.ImageType, output.Clip(strings.Join(n.Services, ","), 60), strings.Join(states, ","), n.Cluster}
		for _, c := range more {
			row = slices.Insert(row, c.at, c.of(&n))
		}
		t.Row(row...)
	}
	return t
}

// nodeColumn is a column that stands in the table where some node has a value for it.
type nodeColumn struct {
	at   int
	head string
	of   func(*model.Node) string
}

// address gives the address by which a node is reached from outside.
func address(n model.Node) string {
	if ip := n.IPAddresses["access_v4"]; ip != "" {
		return ip
	}
	kinds := make([]string, 0, len(n.IPAddresses))
	for kind := range n.IPAddresses {
		kinds = append(kinds, kind)
	}
	sort.Strings(kinds)
	for _, kind := range kinds {
		return fmt.Sprint(n.IPAddresses[kind])
	}
	return ""
}
