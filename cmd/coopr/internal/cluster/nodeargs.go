package cluster

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
)

// takeNode makes a command whose first arguments are CLUSTER and NODE also accept CLUSTER/NODE.
func takeNode(app cli.App, cmd *cobra.Command) {
	takeParts(cmd, 1)
	cmd.Long = cmd.Short + ".\n\nNODE is the node's number, host name or id. CLUSTER and NODE can also be two arguments."
	cmd.ValidArgsFunction = completeNode(app, nil)
}

// takeNodes makes a command with the arguments CLUSTER and NODE… also accept CLUSTER/NODE for each node.
func takeNodes(app cli.App, cmd *cobra.Command) {
	takeParts(cmd, -1)
	cmd.Long = cmd.Short + ".\n\nNODE is a node's number, host name or id. CLUSTER can also be an argument of its own, before all NODEs."
	clusters, nodes := cli.CompleteClusters(app), completeNode(app, nil)
	cmd.ValidArgsFunction = func(cmd *cobra.Command, given []string, start string) ([]string, cobra.ShellCompDirective) {
		switch {
		case strings.Contains(start, "/"):
			return nodes(cmd, nil, start)
		case len(given) == 0:
			return clusters(cmd, nil, start)
		}
		cluster, _, _ := strings.Cut(given[0], "/")
		return nodes(cmd, []string{cluster}, start)
	}
}

// takeParts makes a command get each CLUSTER/NODE among its first arguments as two arguments, or among all if first is negative.
func takeParts(cmd *cobra.Command, first int) {
	check, run := cmd.Args, cmd.RunE
	split := func(cmd *cobra.Command, given []string) ([]string, error) {
		n := len(given)
		if first >= 0 {
			n = min(first, n)
		}
		parts, err := nodeParts(cmd, given[:n])
		return append(parts, given[n:]...), err
	}
	cmd.Args = func(cmd *cobra.Command, given []string) error {
		parts, err := split(cmd, given)
		if err != nil {
			return err
		}
		return check(cmd, parts)
	}
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		parts, err := split(cmd, given)
		if err != nil {
			return err
		}
		return run(cmd, parts)
	}
}

// chooseNodes adds the flags that limit an operation to some nodes of its cluster. The function that it returns reads them, when the
// name of the cluster is known.
func chooseNodes(app cli.App, cmd *cobra.Command) func(cluster string) (model.NodeChoice, error) {
	var only, exclude []string
	cmd.Flags().StringSliceVar(&only, "only", nil, "touch these nodes alone: numbers, host names or ids, with commas or repeated")
	cmd.Flags().StringSliceVar(&exclude, "exclude", nil, "touch all nodes but these")
	cmd.MarkFlagsMutuallyExclusive("only", "exclude")
	for _, flag := range []string{"only", "exclude"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, completeChosen(app))
	}
	read := func(flag string, given []string, cluster string) ([]string, error) {
		switch {
		case !cmd.Flags().Changed(flag):
			return nil, nil
		case len(given) == 0 || slices.Contains(given, ""): // as with a variable that is empty: that does not mean all nodes
			return nil, cli.Usage(cmd, "--%s: the name of a node is missing", flag)
		}
		parts, err := nodeParts(cmd, append([]string{cluster}, given...))
		if err != nil {
			return nil, err
		}
		return parts[1:], nil
	}
	return func(cluster string) (c model.NodeChoice, err error) {
		if c.NodeNames, err = read("only", only, cluster); err == nil {
			c.ExcludedNodeNames, err = read("exclude", exclude, cluster)
		}
		return c, err
	}
}

// onNodes returns the end of an operation's title that names the chosen nodes, or "".
func onNodes(c model.NodeChoice) string {
	switch {
	case len(c.NodeNames) > 0:
		return ", only on " + words.And(c.NodeNames)
	case len(c.ExcludedNodeNames) > 0:
		return ", but not on " + words.And(c.ExcludedNodeNames)
	}
	return ""
}

// completeChosen completes the last of some nodes with commas between, once the cluster is given.
func completeChosen(app cli.App) cli.Completion {
	nodes := completeNode(app, nil)
	return func(cmd *cobra.Command, given []string, start string) ([]string, cobra.ShellCompDirective) {
		if len(given) == 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		before := start[:strings.LastIndex(start, ",")+1]
		names, how := nodes(cmd, given[:1], start[len(before):])
		for i := range names {
			names[i] = before + names[i]
		}
		return names, how
	}
}

// nodeParts returns a cluster and names of its nodes, which arguments give as CLUSTER NODE… or as CLUSTER/NODE…. It refuses a node of
// another cluster, because a command changes one cluster.
func nodeParts(cmd *cobra.Command, given []string) ([]string, error) {
	var parts []string
	for i, arg := range given {
		cluster, node, ok := strings.Cut(arg, "/")
		switch {
		case !ok:
			parts = append(parts, arg)
			continue
		case cluster == "" || node == "":
			return nil, cli.Usage(cmd, "%q does not name a node: give CLUSTER/NODE", arg)
		case i == 0:
			parts = append(parts, cluster)
		case cluster != parts[0]:
			return nil, cli.Usage(cmd, "node %s is not in cluster %s; give the nodes of one cluster", arg, parts[0])
		}
		parts = append(parts, node)
	}
	return parts, nil
}

// completeNode completes CLUSTER/NODE: first the name of a cluster, then one of its nodes. After a cluster as an argument of its own it
// completes the node alone. If no cluster has such a name, ids completes the argument, unless it is nil.
func completeNode(app cli.App, ids cli.Completion) cli.Completion {
	clusters := cli.CompleteClusters(app)
	return func(cmd *cobra.Command, given []string, start string) ([]string, cobra.ShellCompDirective) {
		cluster, node, named := strings.Cut(start, "/")
		prefix := strings.TrimSuffix(start, node) // of all nodes of that cluster
		switch {
		case len(given) == 0 && !named:
			names, how := clusters(cmd, nil, start)
			if len(names) == 0 && ids != nil {
				return ids(cmd, nil, start)
			}
			for i, name := range names {
				name, status, _ := strings.Cut(name, "\t")
				names[i] = name + "/\t" + status
			}
			return names, how | cobra.ShellCompDirectiveNoSpace
		case len(given) == 1 && ids == nil && !strings.Contains(given[0], "/"):
			cluster, prefix = given[0], ""
		case len(given) > 0:
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return cli.Complete(app, func(ctx context.Context, c *client.Client) ([]string, error) {
			cl, _, err := c.Cluster(ctx, cluster, client.Read{})
			var names []string
			for i := range cl.Nodes {
				names = append(names, prefix+cl.Nodes[i].ShortName())
			}
			return names, err
		})(cmd, nil, start)
	}
}
