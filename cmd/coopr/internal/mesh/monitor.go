package mesh

import (
	"bufio"
	"context"
	"errors"
	"io"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
)

// MonitorCommand returns the command "monitor".
func MonitorCommand(app cli.App) *cobra.Command {
	out := app.Printer()
	var agent, level string
	var latest bool
	cmd := &cobra.Command{
		Use: "monitor", Short: "Follow the log of an agent, until Ctrl-C", Args: cli.Args(),
		Long: "Follow the log of the agent at --addr, or of any other agent. The level of the lines does not depend on the agent's own\n" +
			"log.level, which stays as it is. The lines may be about any tenant, so this needs the right to administer the mesh.",
		Example: "  coopr monitor\n  coopr monitor --agent agent-2 --level debug\n  coopr monitor --agent agent-2 --latest",
	}
	cmd.Flags().StringVar(&agent, "agent", "", "the agent's name or id (default: the agent at --addr)")
	cli.CompleteFlag(cmd, "agent", cli.CompleteAgents(app, false))
	cmd.Flags().StringVar(&level, "level", "info", "the lowest level of the lines: debug, info, warn or error")
	cmd.Flags().BoolVar(&latest, "latest", false, "show the latest lines, as the agent printed them, and end")
	cli.CompleteValues(cmd, "level", "debug", "info", "warn", "error")
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, _ []string) error {
		if agent == "" {
			s, err := c.Status(ctx)
			if err != nil {
				return err
			}
			agent = s.ID
		}
		r, err := c.AgentLog(ctx, agent, level, !latest)
		if err != nil {
			return err
		}
		defer r.Close()
		if err = copyPlain(out.Stdout, r); ctx.Err() != nil {
			return nil
		}
		return err
	})
	return cmd
}

// copyPlain copies a log without control characters, but for ends of lines and tabs. An agent that works has none in its log; one that
// belongs to somebody else by now could write to the clipboard with them, or make the terminal answer.
func copyPlain(w io.Writer, r io.Reader) error {
	in, out := bufio.NewReader(r), bufio.NewWriter(w)
	for {
		c, _, err := in.ReadRune()
		switch {
		case errors.Is(err, io.EOF):
			return out.Flush()
		case err != nil:
			return errors.Join(err, out.Flush())
		case c == '\n' || c == '\t' || !unicode.IsControl(c):
			_, _ = out.WriteRune(c) // Flush returns its error
		}
		if in.Buffered() == 0 { // the next line may come much later
			if err := out.Flush(); err != nil {
				return err
			}
		}
	}
}
