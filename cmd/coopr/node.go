package main

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/client"
)

func (a *app) nodeCmd() *cobra.Command {
	var cluster string
	var page client.Page
	list := listCmd(a, listing[model.Node]{
		use: "list", short: "List nodes", example: "  coopr node list --cluster shop -o wide",
		narrow: []string{"cluster"}, empty: "There are no nodes.",
		fetch: func(ctx context.Context, c *client.Client, _ []string, read client.Read) ([]model.Node, client.Meta, error) {
			return c.Nodes(ctx, cluster, page, read)
		},
		rows: nodeTable,
	})
	list.Flags().StringVar(&cluster, "cluster", "", "only of this cluster")
	_ = list.RegisterFlagCompletionFunc("cluster", func(cmd *cobra.Command, _ []string, start string) ([]string, cobra.ShellCompDirective) {
		return a.completeClusters()(cmd, nil, start)
	})
	pageFlags(list, &page)

	get := &cobra.Command{Use: "get ID", Short: "Show everything about a node", Args: args("ID"), Example: "  coopr node get 00000001-1000"}
	a.outputFlag(get, asYAML, asJSON)
	get.RunE = a.with(func(ctx context.Context, c *client.Client, args []string) error {
		n, _, err := c.Node(ctx, args[0], client.Read{})
		if err != nil {
			return err
		}
		return a.print(n)
	})
	return group("node", "Look at nodes, and look after them", list, get,
		a.nodeRunCmd("restart", model.OpRecover, "Restart the services of a node where they are, or some of them"),
		a.nodeRunCmd("replace", model.OpReplaceNode, "Make a node anew under its number and name, whatever state it is in"),
		a.nodeRunCmd("pause", model.OpPauseNode, "Stop the services of a node, or some of them, and leave them alone"),
		a.nodeRunCmd("resume", model.OpResumeNode, "Start the services of a node again that were paused"))
}

func nodeTable(items []model.Node) table {
	t := table{head: []string{"ID", "HOSTNAME", "ADDRESS", "HARDWARE", "IMAGE", "SERVICES", "STATES", "CLUSTER"}, wide: 2}
	// What no node has is no column; from the right to the left.
	more := slices.DeleteFunc([]nodeColumn{
		{6, "HEALTH", func(n *model.Node) string { return n.Health.Status() }},
		{3, "HOST", func(n *model.Node) string { return n.Host }},
		{3, "ZONE", func(n *model.Node) string { return n.Zone }},
	}, func(c nodeColumn) bool {
		return !slices.ContainsFunc(items, func(n model.Node) bool { return c.of(&n) != "" })
	})
	for _, c := range more {
		t.head = slices.Insert(t.head, c.at, c.head)
	}
	for _, n := range items {
		states := make([]string, 0, len(n.States))
		for service, state := range n.States {
			states = append(states, service+"="+state)
		}
		sort.Strings(states)
		row := []string{n.ID, n.Hostname, address(n), n.HardwareType, n.ImageType, clip(strings.Join(n.Services, ","), 60), strings.Join(states, ","), n.Cluster}
		for _, c := range more {
			row = slices.Insert(row, c.at, c.of(&n))
		}
		t.row(row...)
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

// since gives the time between two moments in Unix milliseconds.
func (a *app) since(from, to int64) time.Duration { return time.Duration(to-from) * time.Millisecond }
