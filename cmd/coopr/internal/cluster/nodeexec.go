package cluster

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
)

// nodeExecCmd returns the command that runs a command on a node.
func nodeExecCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	var limit time.Duration
	cmd := &cobra.Command{
		Use: "exec CLUSTER/NODE -- COMMAND [ARG…]", Short: "Run a command on a node", Args: cobra.MinimumNArgs(2),
		Long: "Run a command on a node, through an agent that reaches it, as the user that the node's tasks run as. Its output comes line by\n" +
			"line, without secrets that Coopr knows; after 4 MiB of it the command is ended. The exit code is that of the\n" +
			"command, and 1 if it did not end by itself. Ctrl-C ends the command. Nothing in it is expanded: for a shell, give sh -c.\n\n" +
			"This needs the right \"exec\" on the node. Who has run which command is in the audit log, so give no passwords as arguments.",
		Example: "  coopr node exec shop/1003 -- uptime\n  coopr node exec shop/1003 --timeout 10m -- sh -c 'du -s /var/* | sort -n'",
	}
	nodes := completeNode(app, cli.CompleteNodes(app))
	cmd.ValidArgsFunction = func(cmd *cobra.Command, given []string, start string) ([]string, cobra.ShellCompDirective) {
		if len(given) > 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return nodes(cmd, given, start)
	}
	cmd.Flags().DurationVar(&limit, "timeout", api.CommandTime*time.Second, "end the command after this time, at most 1h")
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		if limit < time.Second || limit > api.MaxCommandTime*time.Second {
			return cli.Usage(cmd, "--timeout must be 1s to 1h")
		}
		n, err := findNode(ctx, c, args[0])
		if err != nil {
			return err
		}
		end, err := c.RunCommand(ctx, n.ID, api.NodeCommand{Command: args[1:], Timeout: int(limit.Seconds())}, func(l api.CommandLine) error {
			w, text := out.Stdout, l.Text
			if l.Stderr {
				w = out.Stderr
			}
			if !l.Continued {
				text += "\n"
			}
			return out.Output(w, text)
		})
		switch {
		case err != nil:
			return err
		case end.Exit == nil:
			return fmt.Errorf("the command on node %s did not end by itself: %s", cmp.Or(n.ShortName(), n.ID), end.Message)
		case *end.Exit != 0:
			return &cli.ExitError{Code: *end.Exit}
		}
		return nil
	})
	return cmd
}
