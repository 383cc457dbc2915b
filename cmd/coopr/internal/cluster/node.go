package cluster

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

// NodeCommand returns the command "node".
func NodeCommand(app cli.App) *cobra.Command {
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
	list.Flags().StringVar(&cluster, "cluster", "", "only nodes of this cluster")
	cli.CompleteFlag(list, "cluster", cli.CompleteClusters(app))
	cli.OffsetFlag(list, &page)

	get := &cobra.Command{Use: "get ID|CLUSTER/NODE", Short: "Show all that is known about a node", Args: cli.Args("ID"),
		Example: "  coopr node get 00000001-1000\n  coopr node get shop/1000", ValidArgsFunction: completeNode(app, cli.CompleteNodes(app))}
	cli.FormFlag(get, output.FormYAML, output.FormJSON)
	get.RunE = cli.Show(app, func(ctx context.Context, c *client.Client, args []string) (model.Node, error) {
		return findNode(ctx, c, args[0])
	}, nil)
	return cli.Group("node", "Show, restart, replace and pause nodes, and run commands on them", list, get, nodeExecCmd(app), nodeSSHCmd(app),
		nodeForwardCmd(app),
		nodeRunCmd(app, "restart", model.OpRecover, "Restart all or some services of a node"),
		nodeRunCmd(app, "replace", model.OpReplaceNode, "Delete a node and create it again under the same name, whatever its state"),
		nodeRunCmd(app, "pause", model.OpPauseNode, "Stop all or some services of a node, and exclude them from recovery"),
		nodeRunCmd(app, "resume", model.OpResumeNode, "Start the paused services of a node again"))
}

// nodeTable returns a table of nodes.
func nodeTable(items []model.Node) output.Table {
	t := output.Table{Head: []string{"ID", "HOSTNAME", "ADDRESS", "SERVICES", "HARDWARE", "IMAGE", "STATES", "CLUSTER"}, Wide: 4}
	// Optional columns, from right to left. A column is left out if no node has a value for it.
	more := slices.DeleteFunc([]nodeColumn{
		{4, "HEALTH", func(n *model.Node) string { return n.Health.Status() }},
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
		row := []string{n.ID, n.Hostname, address(n), strings.Join(n.Services, ","), n.HardwareType, n.ImageType,
			strings.Join(states, ","), n.Cluster}
		for _, c := range more {
			row = slices.Insert(row, c.at, c.of(&n))
		}
		t.Row(row...)
	}
	return t
}

// nodeColumn is an optional column of the table.
type nodeColumn struct {
	at   int
	head string
	of   func(*model.Node) string
}

// address returns the address at which a node is reached from outside.
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

// findNode returns the node with an id, or the one of CLUSTER/NODE, where NODE is its id, host name, short name or number.
func findNode(ctx context.Context, c *client.Client, text string) (model.Node, error) {
	id := text
	if cluster, name, ok := strings.Cut(text, "/"); ok {
		cl, _, err := c.Cluster(ctx, cluster, client.Read{})
		if err != nil {
			return model.Node{}, err
		}
		for i := range cl.Nodes {
			if n := &cl.Nodes[i]; slices.Contains([]string{n.ID, n.Hostname, n.ShortName(), strconv.Itoa(n.Number)}, name) {
				id = n.ID
			}
		}
	}
	n, _, err := c.Node(ctx, id, client.Read{})
	return n, err
}
