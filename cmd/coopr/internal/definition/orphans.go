package definition

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

// orphansCmd compares what the providers have with the records.
func orphansCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	var last bool
	var remove string
	cmd := &cobra.Command{
		Use: "orphans", Short: "Show machines that are no node's, and nodes whose machine is missing", Args: cli.Args(),
		Long: `Ask every provider for its machines and compare them with the nodes on record.
An orphan carries the tags of a node that is not on record, was never made, or has
another machine. What an operation under way may be making is none.

WHY is no-such-node: its cluster has no node of that name (any more); node-not-made:
the node is on record, but was never made or is gone; second-machine: the node has
another; unknown-cluster: no such cluster is on record, such as after a snapshot was
restored. SEEN is for how long it is known, REMOVED when the policy of the agents
(orphans.delete) removes it by itself.`,
		Example: "  coopr provider orphans\n  coopr provider orphans --remove i-0815 --yes",
	}
	cli.FormFlag(cmd, output.FormTable, output.FormJSON, output.FormYAML, output.FormWide)
	cmd.Flags().BoolVar(&last, "last", false, "show what the leader found last, without asking the providers")
	cmd.Flags().StringVar(&remove, "remove", "", "remove the orphan that its provider calls `ID`")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if remove != "" {
			if err := cli.Confirm(app, cmd, fmt.Sprintf("Remove machine %s for good?", remove)); err != nil {
				return err
			}
		}
		return cli.Run(app, func(ctx context.Context, c *client.Client, _ []string) error {
			r, err := c.Orphans(ctx, !last)
			if err != nil {
				return err
			}
			if remove != "" {
				if err := c.RemoveOrphan(ctx, remove); err != nil {
					return err
				}
				out.Printf("Removed: %s.\n", remove)
				return nil
			}
			if out.Structured() {
				return out.Encode(r)
			}
			showOrphans(out, r)
			return nil
		})(cmd, args)
	}
	return cmd
}

func showOrphans(out *output.Printer, r model.OrphanReport) {
	for _, p := range r.Providers {
		if p.Fault != "" {
			out.Notef("Provider %s could not be asked in full: %s\n", p.Provider, p.Fault)
		}
	}
	if len(r.Orphans) > 0 {
		t := output.Table{Head: []string{"MACHINE", "PROVIDER", "CLUSTER", "NODE", "WHY", "SEEN", "REMOVED", "FENCE", "FAULT"}, Wide: 2}
		if !slices.ContainsFunc(r.Orphans, func(x model.Orphan) bool { return x.DeleteAt > 0 }) {
			t.Wide = 3 // the policy removes none of them
		}
		for _, x := range r.Orphans {
			t.Row(x.ID, x.Provider, x.Cluster, x.Node, string(x.Why), out.Ago(x.Since), output.Moment(x.DeleteAt), strconv.FormatUint(x.Fence, 10), x.Fault)
		}
		out.Show(t)
	}
	if len(r.Missing) > 0 {
		if len(r.Orphans) > 0 {
			out.Println()
		}
		t := output.Table{Head: []string{"MISSING MACHINE", "PROVIDER", "CLUSTER", "NODE"}}
		for _, x := range r.Missing {
			t.Row(x.ID, x.Provider, x.Cluster, x.Node)
		}
		out.Show(t)
	}
	// What to do next, for people.
	if len(r.Orphans) > 0 {
		out.Noteln("Remove one: coopr provider orphans --remove MACHINE")
	}
	if len(r.Missing) > 0 {
		out.Noteln("Make a node with a missing machine anew: coopr node replace CLUSTER NODE")
	}
	switch {
	case r.At == 0:
		out.Println("The leader has not asked the providers yet: leave --last out.")
	case len(r.Orphans)+len(r.Missing) == 0:
		out.Println("Providers and records agree.")
	}
}
