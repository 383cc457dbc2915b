package cli

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

// Completion completes the arguments of a command.
type Completion = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

// completionTime is the most time that completion takes; the person is waiting for the key.
const completionTime = 2 * time.Second

// Complete completes the first argument with names from the mesh. If the mesh does not answer at once,
// there are no names and no error. A name may be followed by a tab and a description.
func Complete(app App, names func(context.Context, *client.Client) ([]string, error)) Completion {
	return func(cmd *cobra.Command, given []string, start string) ([]string, cobra.ShellCompDirective) {
		const none = cobra.ShellCompDirectiveNoFileComp
		if len(given) > 0 {
			return nil, none
		}
		c, err := app.HastyClient()
		if err != nil {
			return nil, none
		}
		defer c.Close()
		parent := cmd.Context()
		if parent == nil {
			parent = context.Background()
		}
		ctx, cancel := context.WithTimeout(parent, completionTime)
		defer cancel()
		all, err := names(ctx, c)
		if err != nil {
			return nil, none
		}
		var out []string
		for _, n := range all {
			if strings.HasPrefix(n, start) {
				out = append(out, n)
			}
		}
		return out, none
	}
}

// CompletePart completes the second argument with names that depend on the first, which is a cluster.
func CompletePart(app App, names func(ctx context.Context, c *client.Client, cluster string) ([]string, error)) Completion {
	clusters := CompleteClusters(app)
	return func(cmd *cobra.Command, given []string, start string) ([]string, cobra.ShellCompDirective) {
		switch len(given) {
		case 0:
			return clusters(cmd, given, start)
		case 1:
			return Complete(app, func(ctx context.Context, c *client.Client) ([]string, error) {
				return names(ctx, c, given[0])
			})(cmd, nil, start)
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteFlag completes the value of a flag.
func CompleteFlag(cmd *cobra.Command, flag string, names Completion) {
	_ = cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, start string) ([]string, cobra.ShellCompDirective) {
		return names(cmd, nil, start)
	})
}

// CompleteValues completes the value of a flag that can have only these.
func CompleteValues(cmd *cobra.Command, flag string, values ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// CompleteDefinitions completes the names of definitions of one kind.
func CompleteDefinitions(app App, kind model.Kind) Completion {
	return Complete(app, func(ctx context.Context, c *client.Client) ([]string, error) {
		defs, _, err := c.Definitions(ctx, kind, client.Read{})
		var out []string
		for _, raw := range defs {
			var base model.Base
			if json.Unmarshal(raw, &base) == nil {
				out = append(out, base.Name+"\t"+output.Clip(base.Description, 40))
			}
		}
		return out, err
	})
}

// CompleteClusters completes the names of clusters. A whole id stays as it is.
func CompleteClusters(app App) Completion {
	return func(cmd *cobra.Command, given []string, start string) ([]string, cobra.ShellCompDirective) {
		return Complete(app, func(ctx context.Context, c *client.Client) ([]string, error) {
			all, _, err := c.Clusters(ctx, client.ClusterFilter{}, client.Read{})
			var out []string
			for _, cl := range all {
				switch {
				case cl.ID == start:
					out = append(out, cl.ID+"\t"+cl.Name)
				case cl.Status != model.ClusterTerminated:
					out = append(out, cl.Name+"\t"+string(cl.Status))
				}
			}
			return out, err
		})(cmd, given, start)
	}
}

// CompleteNodes completes the ids of nodes.
func CompleteNodes(app App) Completion {
	return Complete(app, func(ctx context.Context, c *client.Client) ([]string, error) {
		all, _, err := c.Nodes(ctx, "", client.Page{}, client.Read{})
		var out []string
		for _, n := range all {
			out = append(out, n.ID+"\t"+n.Hostname)
		}
		return out, err
	})
}

// CompleteOperations completes the ids of the newest operations.
func CompleteOperations(app App) Completion {
	return Complete(app, func(ctx context.Context, c *client.Client) ([]string, error) {
		all, _, err := c.Operations(ctx, "", nil, client.Page{Limit: 50}, client.Read{})
		var out []string
		for _, op := range all {
			out = append(out, op.ID+"\t"+string(op.Type)+" "+string(op.Status))
		}
		return out, err
	})
}
