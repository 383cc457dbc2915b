package cli

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

// Completion completes the arguments of a command.
type Completion = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

// completionTime is the most time that completion takes; the person is waiting for the key.
const completionTime = 2 * time.Second

// Complete completes the first argument with names from the mesh, and with files if the command takes any. If the mesh does not answer at
// once, there are no names and no error. A name may be followed by a tab and a description.
func Complete(app App, names func(context.Context, *client.Client) ([]string, error)) Completion {
	return func(cmd *cobra.Command, given []string, start string) ([]string, cobra.ShellCompDirective) {
		none := cobra.ShellCompDirectiveNoFileComp
		if namesFile(cmd.Use) {
			none = cobra.ShellCompDirectiveDefault
		}
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
		out, how := names(cmd, nil, start)
		return out, how | cobra.ShellCompDirectiveNoFileComp
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

// CompleteTasks completes the ids of tasks: first an operation's, then those of its tasks.
func CompleteTasks(app App) Completion {
	operations := CompleteOperations(app)
	return func(cmd *cobra.Command, given []string, start string) ([]string, cobra.ShellCompDirective) {
		operation, _, ok := strings.Cut(start, "/")
		if !ok {
			ids, how := operations(cmd, given, start)
			for i, id := range ids {
				ids[i] = strings.Replace(id, "\t", "/\t", 1)
			}
			return ids, how | cobra.ShellCompDirectiveNoSpace
		}
		return Complete(app, func(ctx context.Context, c *client.Client) ([]string, error) {
			all, _, err := c.Tasks(ctx, operation, "", client.Page{Limit: 1000}, client.Read{})
			var out []string
			for _, t := range all {
				words := []string{t.Action.String(), t.Service, t.Hostname, t.Status.String()}
				out = append(out, t.ID+"\t"+output.Line(strings.Join(words, " ")))
			}
			return out, err
		})(cmd, given, start)
	}
}

// CompleteAgents completes the names, or the ids, of agents.
func CompleteAgents(app App, byID bool) Completion {
	return Complete(app, func(ctx context.Context, c *client.Client) ([]string, error) {
		all, err := c.Members(ctx)
		var out []string
		for _, m := range all {
			if byID {
				out = append(out, m.ID+"\t"+m.Name)
			} else {
				out = append(out, m.Name+"\t"+m.Status)
			}
		}
		return out, err
	})
}

// CompleteRest makes all arguments and flags without a completion of their own complete to nothing, unless they name files. The shell would
// offer its files.
func CompleteRest(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		CompleteRest(sub)
	}
	if cmd.Runnable() && !cmd.HasSubCommands() && cmd.ValidArgsFunction == nil && !namesFile(cmd.Use) {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	for _, flags := range []*pflag.FlagSet{cmd.Flags(), cmd.PersistentFlags()} {
		flags.VisitAll(func(f *pflag.Flag) {
			if _, ok := cmd.GetFlagCompletionFunc(f.Name); !ok && f.Value.Type() != "bool" && !namesFile(strings.ToUpper(f.Name)+" "+f.Usage) {
				CompleteValues(cmd, f.Name)
			}
		})
	}
}

// namesFile reports whether the use of a command, or the name and usage of a flag, are about a file or a folder.
func namesFile(text string) bool {
	return slices.ContainsFunc([]string{"FILE", "DIR", " file ", " folder "}, func(word string) bool { return strings.Contains(text, word) })
}
