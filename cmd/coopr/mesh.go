package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"
)

func (a *app) joinCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "join ADDRESS…", Short: "Make the asked agent join the mesh of the agents at these gossip addresses", Args: args("ADDRESS…"),
		Example: "  coopr join 10.0.0.1\n  coopr --addr 10.0.0.2 join 10.0.0.1:55056 10.0.0.3:55056",
	}
	cmd.RunE = a.with(func(ctx context.Context, c *client.Client, args []string) error {
		n, err := c.Join(ctx, args)
		if err != nil {
			return err
		}
		fmt.Fprintf(a.out, "%s reached. See them: coopr members\n", count(n, "agent"))
		return nil
	})
	return cmd
}

func (a *app) leaveCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "leave [AGENT]", Short: "Make the asked agent leave the mesh, or remove one that is dead for good", Args: args("[AGENT]"),
		Example: "  coopr --addr 10.0.0.2 leave\n  coopr leave agent-3 --yes",
	}
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		agent, question := "", "Shall the asked agent leave the mesh and end?"
		if len(given) > 0 {
			agent = given[0]
			question = fmt.Sprintf("Remove agent %s from the mesh for good?", agent)
		}
		if err := a.confirm(cmd, question); err != nil {
			return err
		}
		return a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			if err := c.Leave(ctx, agent); err != nil {
				return err
			}
			if agent == "" {
				agent = "The agent"
			}
			fmt.Fprintf(a.out, "%s leaves.\n", agent)
			return nil
		})(cmd, given)
	}
	return cmd
}

func (a *app) membersCmd() *cobra.Command {
	return listCmd(a, listing[api.Member]{
		use: "members", short: "List the agents of the mesh", example: "  coopr members\n  coopr members -o wide",
		empty: "The agent is alone.", still: true,
		fetch: func(ctx context.Context, c *client.Client, _ []string, _ client.Read) ([]api.Member, client.Meta, error) {
			m, err := c.Members(ctx)
			return m, client.Meta{}, err
		},
		rows: func(items []api.Member) table {
			t := table{head: []string{"NAME", "STATUS", "ROLE", "ADDRESS", "BUSY", "BUILD", "ZONE", "ID", "PEER", "ELIGIBLE"}, wide: 3}
			for _, m := range items {
				role := "worker"
				if m.Voter {
					role = "voter"
				}
				if m.Leader {
					role = "leader"
				}
				// Only the leader knows how busy the others are.
				busy := fmt.Sprintf("-/%d", m.Slots)
				if m.Busy != nil {
					busy = fmt.Sprintf("%d/%d", *m.Busy, m.Slots)
				}
				t.row(m.Name, m.Status, role, m.APIAddr, busy, m.Build, m.Zone, m.ID, m.PeerAddr, yesNo(m.Eligible))
			}
			return t
		},
	})
}

func (a *app) statusCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "status", Short: "Show how the asked agent and its mesh are", Args: args(), Example: "  coopr status\n  coopr --addr 10.0.0.2 status -o json"}
	a.outputFlag(cmd, asTable, asJSON, asYAML)
	cmd.RunE = a.with(func(ctx context.Context, c *client.Client, _ []string) error {
		s, err := c.Status(ctx)
		if err != nil {
			return err
		}
		if a.structured() {
			return a.print(s)
		}
		leader := s.Leader
		switch {
		case s.IsLeader:
			leader = "this agent"
		case leader == "":
			leader = a.paint(a.out, red, "none")
		}
		if s.Leader != "" && !s.LeaderReady {
			leader += " (not ready yet)"
		}
		fmt.Fprintf(a.out, "%-12s %s (%s), build %s\n", "Agent:", s.Name, s.ID, s.Build)
		if s.Mesh != "" {
			fmt.Fprintf(a.out, "%-12s %s\n", "Mesh:", s.Mesh)
		}
		fmt.Fprintf(a.out, "%-12s %s\n", "Leader:", leader)
		fmt.Fprintf(a.out, "%-12s %d alive of %d\n", "Members:", s.Alive, s.Members)
		fmt.Fprintf(a.out, "%-12s %s\n", "Voter:", yesNo(s.Voter))
		fmt.Fprintf(a.out, "%-12s %d of %d busy\n", "Workers:", s.Busy, s.Slots)
		fmt.Fprintf(a.out, "%-12s %d\n", "Index:", s.Applied)
		return nil
	})
	return cmd
}

func (a *app) pluginCmd() *cobra.Command {
	list := listCmd(a, listing[model.PluginType]{
		use: "list", short: "List the providers and automators that the agents offer; -o wide with their fields, -o yaml with all about them",
		example: "  coopr plugin list\n  coopr plugin list -o wide\n  coopr plugin list -o yaml",
		empty:   "No agent offers a plugin.",
		fetch: func(ctx context.Context, c *client.Client, _ []string, read client.Read) ([]model.PluginType, client.Meta, error) {
			return c.Plugins(ctx, read)
		},
		rows: func(items []model.PluginType) table {
			t := table{head: []string{"CLASS", "NAME", "VERSION", "DESCRIPTION", "FIELDS"}, wide: 1}
			slices.SortFunc(items, func(x, y model.PluginType) int {
				return cmp.Or(-strings.Compare(x.Class, y.Class), strings.Compare(x.Name, y.Name)) // providers first
			})
			for _, p := range items {
				var fields []string
				for _, part := range []model.PluginFields{p.Parameters.Admin, p.Parameters.User} {
					for name := range part.Fields {
						fields = append(fields, name)
					}
				}
				sort.Strings(fields)
				t.row(p.Class, p.Name, clip(p.Plugin, 20), p.Description, strings.Join(fields, ", "))
			}
			return t
		},
	})
	return group("plugin", "Look at what the agents can do", list)
}

func (a *app) eventsCmd() *cobra.Command {
	var f client.EventFilter
	var cluster string
	var limit int
	cmd := &cobra.Command{
		Use: "events", Short: "Follow what happens in the mesh, until Ctrl-C", Args: args(),
		Example: "  coopr events\n  coopr events --type 'task.*' --cluster shop -o json",
	}
	cmd.Flags().StringSliceVar(&f.Types, "type", nil, "only these types, such as operation.changed or task.*")
	cmd.Flags().StringVar(&cluster, "cluster", "", "only of this cluster")
	cmd.Flags().StringVar(&f.Operation, "operation", "", "only of this operation")
	cmd.Flags().Uint64Var(&f.After, "index", 0, "events after this index, as far as they are kept; else from now on")
	cmd.Flags().IntVar(&limit, "limit", 0, "end after so many events")
	a.outputFlag(cmd, asTable, asJSON)
	cmd.RunE = a.with(func(ctx context.Context, c *client.Client, _ []string) error {
		if cluster != "" {
			cl, _, err := c.Cluster(ctx, cluster, client.Read{})
			if err != nil {
				return err
			}
			f.Cluster = cl.ID
		}
		n := 0
		err := c.Events(ctx, f, func(e model.Event) error {
			if err := a.event(e); err != nil {
				return err
			}
			if n++; limit > 0 && n >= limit {
				return errEnough
			}
			return nil
		})
		if err == errEnough || ctx.Err() != nil { //nolint:errorlint // our own value, given back as it is
			return nil
		}
		return err
	})
	return cmd
}

func (a *app) event(e model.Event) error {
	if a.output == asJSON {
		return encodeLine(a.out, e)
	}
	parts := []string{moment(e.Time), strconv.FormatUint(e.Index, 10), e.Type}
	for _, s := range []string{e.Task, e.Subject} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	if e.Task == "" && e.Operation != "" && e.Operation != e.Subject {
		parts = append(parts, e.Operation)
	}
	if e.Status != "" {
		parts = append(parts, a.paint(a.out, colourOf(e.Status), e.Status))
	}
	if e.Message != "" {
		parts = append(parts, clip(e.Message, 200))
	}
	_, err := fmt.Fprintln(a.out, strings.Join(parts, " "))
	return err
}
