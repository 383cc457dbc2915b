// Package mesh holds the commands for the mesh of agents and its state.
package mesh

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/words"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

// JoinCommand returns the command "join".
func JoinCommand(app cli.App) *cobra.Command {
	out := app.Printer()
	cmd := &cobra.Command{
		Use: "join ADDRESS…", Short: "Make the agent at --addr join the mesh of other agents, by their gossip addresses",
		Args:    cli.Args("ADDRESS…"),
		Example: "  coopr join 10.0.0.1\n  coopr --addr 10.0.0.2 join 10.0.0.1:55056 10.0.0.3:55056",
	}
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		n, err := c.Join(ctx, args)
		if err != nil {
			return err
		}
		out.Printf("%s reached. To list the members: coopr members\n", words.Count(n, "agent"))
		return nil
	})
	return cmd
}

// LeaveCommand returns the command "leave".
func LeaveCommand(app cli.App) *cobra.Command {
	out := app.Printer()
	cmd := &cobra.Command{
		Use: "leave [AGENT]", Short: "Make the agent at --addr leave the mesh, or remove a dead agent from the mesh", Args: cli.Args("[AGENT]"),
		Long: "Make the agent at --addr leave the mesh, or remove another agent, which must be dead.\n\n" +
			"With --force, an agent is removed even if it answers, for example because its machine was stolen: its certificates end at\n" +
			"once. Change the secrets of what it worked on.\n\n" +
			"With --compromised, a voter that somebody else may have is removed in the same way. A voter also has the keys of the mesh, so\n" +
			"all join tokens are revoked, and the mesh replaces the CA (without a bridge), then the mesh key with all data keys and the\n" +
			"signing key, and the key of gossip. The command shows the costs before it asks, and then what is left to do. If it fails,\n" +
			"repeat it: what was done is not done again.",
		ValidArgsFunction: cli.CompleteAgents(app, false),
		Example: "  coopr --addr 10.0.0.2 leave\n  coopr leave agent-3 --yes\n  coopr leave agent-3 --force\n" +
			"  coopr leave agent-3 --compromised",
	}
	var force, compromised bool
	cmd.Flags().BoolVar(&force, "force", false, "remove another agent even if it answers")
	cmd.Flags().BoolVar(&compromised, "compromised", false, "remove a voter that somebody else may have, and replace the keys of the mesh")
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		agent, question := "", "Make the connected agent leave the mesh and exit?"
		if len(given) == 0 && (force || compromised) {
			return cli.Usage(cmd, "--force and --compromised are for another agent: name it")
		}
		if len(given) > 0 {
			agent = given[0]
			question = fmt.Sprintf("Remove agent %s from the mesh permanently?", agent)
		}
		if compromised {
			out.Notef("%s", compromisedCosts)
		}
		if err := cli.Confirm(app, cmd, question); err != nil {
			return err
		}
		return cli.Run(app, func(ctx context.Context, c *client.Client, _ []string) error {
			if compromised {
				exposed, err := c.RemoveCompromised(ctx, agent)
				if err == nil {
					showCompromised(out, agent, exposed)
				}
				return err
			}
			if err := c.Leave(ctx, agent, force); err != nil {
				return err
			}
			if agent == "" {
				out.Println("The agent is leaving the mesh.")
			} else {
				out.Printf("Agent %s is being removed from the mesh.\n", agent)
			}
			return nil
		})(cmd, given)
	}
	return cmd
}

// MembersCommand returns the command "members".
func MembersCommand(app cli.App) *cobra.Command {
	return cli.List(app, cli.Listing[api.Member]{
		Use: "members", Short: "List the agents of the mesh", Example: "  coopr members\n  coopr members -o wide",
		Empty: "This agent is the only member.", Still: true,
		Fetch: func(ctx context.Context, c *client.Client, _ []string, _ client.Read) ([]api.Member, client.Meta, error) {
			m, err := c.Members(ctx)
			return m, client.Meta{}, err
		},
		Rows: func(items []api.Member) output.Table {
			t := output.Table{Head: []string{"NAME", "STATUS", "ROLE", "ADDRESS", "BUSY", "BUILD", "ZONE", "ID", "PEER", "ELIGIBLE"}, Wide: 3}
			for _, m := range items {
				role := "worker"
				if m.Voter {
					role = "voter"
				}
				if m.Leader {
					role = "leader"
				}
				// Only the leader knows how many workers of other agents are busy.
				busy := fmt.Sprintf("-/%d", m.Slots)
				if m.Busy != nil {
					busy = fmt.Sprintf("%d/%d", *m.Busy, m.Slots)
				}
				t.Row(m.Name, m.Status, role, m.APIAddr, busy, m.Build, m.Zone, m.ID, m.PeerAddr, output.YesNo(m.Eligible))
			}
			return t
		},
	})
}

// PluginCommand returns the command "plugin".
func PluginCommand(app cli.App) *cobra.Command {
	list := cli.List(app, cli.Listing[model.PluginType]{
		Use: "list", Short: "List the providers and automators that agents offer; -o wide adds their fields",
		Example: "  coopr plugin list\n  coopr plugin list -o wide\n  coopr plugin list -o yaml",
		Empty:   "No agent offers a plugin.",
		Fetch: func(ctx context.Context, c *client.Client, _ []string, read client.Read) ([]model.PluginType, client.Meta, error) {
			return c.Plugins(ctx, read)
		},
		Rows: func(items []model.PluginType) output.Table {
			t := output.Table{Head: []string{"CLASS", "NAME", "VERSION", "DESCRIPTION", "FIELDS"}, Wide: 1}
			for _, p := range items {
				var fields []string
				for _, part := range []model.PluginFields{p.Parameters.Admin, p.Parameters.User} {
					for name := range part.Fields {
						fields = append(fields, name)
					}
				}
				sort.Strings(fields)
				t.Row(p.Class, p.Name, p.Plugin, p.Description, strings.Join(fields, ", "))
			}
			return t
		},
	})
	return cli.Group("plugin", "Show the plugins that agents offer", list)
}

// EventsCommand returns the command "events".
func EventsCommand(app cli.App) *cobra.Command {
	out := app.Printer()
	var f client.EventFilter
	var cluster string
	var limit int
	cmd := &cobra.Command{
		Use: "events", Short: "Follow the events of the mesh, until Ctrl-C", Args: cli.Args(),
		Example: "  coopr events\n  coopr events --type 'task.*' --cluster shop -o json",
	}
	cmd.Flags().StringSliceVar(&f.Types, "type", nil, "only events of these types, such as operation.changed or task.*")
	cmd.Flags().StringVar(&cluster, "cluster", "", "only events of this cluster")
	cmd.Flags().StringVar(&f.Operation, "operation", "", "only events of this operation")
	cli.CompleteFlag(cmd, "cluster", cli.CompleteClusters(app))
	cli.CompleteFlag(cmd, "operation", cli.CompleteOperations(app))
	cmd.Flags().Uint64Var(&f.After, "index", 0, "start after this index, as far as events are kept (default: new events only)")
	cmd.Flags().IntVar(&limit, "limit", 0, "stop after this many events")
	cli.FormFlag(cmd, output.FormTable, output.FormJSON)
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, _ []string) error {
		if cluster != "" {
			cl, _, err := c.Cluster(ctx, cluster, client.Read{})
			if err != nil {
				return err
			}
			f.Cluster = cl.ID
		}
		n := 0
		err := c.Events(ctx, f, func(e model.Event) error {
			if err := event(out, e); err != nil {
				return err
			}
			if n++; limit > 0 && n >= limit {
				return errLimit
			}
			return nil
		})
		if errors.Is(err, errLimit) || ctx.Err() != nil {
			return nil
		}
		return err
	})
	return cmd
}

// event writes one event as a line.
func event(out *output.Printer, e model.Event) error {
	if out.Form == output.FormJSON {
		return output.EncodeLine(out.Stdout, e)
	}
	parts := []string{output.Moment(e.Time), strconv.FormatUint(e.Index, 10), e.Type}
	for _, s := range []string{e.Task, e.Subject} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	if e.Task == "" && e.Operation != "" && e.Operation != e.Subject {
		parts = append(parts, e.Operation)
	}
	if e.Status != "" {
		parts = append(parts, out.Status(e.Status))
	}
	if e.Message != "" {
		parts = append(parts, output.Clip(e.Message, 200))
	}
	_, err := fmt.Fprintln(out.Stdout, output.Printable(strings.Join(parts, " "))) // its error ends the command
	return err
}

// errLimit ends a stream of events after --limit.
var errLimit = errors.New("enough events")
