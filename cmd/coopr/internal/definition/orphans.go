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

// orphansCmd compares the machines of the providers with the nodes on record.
func orphansCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	var last bool
	var remove string
	cmd := &cobra.Command{
		Use: "orphans", Short: "Show machines that belong to no node, and nodes whose machine is missing", Args: cli.Args(),
		Long: `List the machines of all providers and compare them with the nodes on record.
An orphan is a machine with the tags of a node that is not on record, was never
created, or has another machine. Machines that a running operation may be
creating are not orphans.

The column WHY is one of:
  no-such-node     the cluster has no node of that name, or no longer
  node-not-made    the node is on record, but was never created or is gone
  second-machine   the node has another machine
  unknown-cluster  the cluster is not on record, for example after a restore
SEEN is how long the orphan has been known. REMOVED is when the agents remove it
by themselves, if their setting orphans.delete says so.`,
		Example: "  coopr provider orphans\n  coopr provider orphans --remove i-0815 --yes",
	}
	cli.FormFlag(cmd, output.FormTable, output.FormJSON, output.FormYAML, output.FormWide)
	cmd.Flags().BoolVar(&last, "last", false, "show the latest findings of the leader, without asking the providers")
	cmd.Flags().StringVar(&remove, "remove", "", "remove the orphan with this provider `ID`")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if remove != "" {
			if err := cli.Confirm(app, cmd, fmt.Sprintf("Remove machine %s permanently?", remove)); err != nil {
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
				out.Printf("Machine %s was removed.\n", remove)
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

// showOrphans shows orphans and missing machines as tables.
func showOrphans(out *output.Printer, r model.OrphanReport) {
	for _, p := range r.Providers {
		if p.Fault != "" {
			out.Notef("Provider %s did not list all its machines: %s\n", p.Provider, p.Fault)
		}
	}
	if len(r.Orphans) > 0 {
		t := output.Table{Head: []string{"MACHINE", "PROVIDER", "CLUSTER", "NODE", "WHY", "SEEN", "REMOVED", "FENCE", "FAULT"}, Wide: 2}
		if !slices.ContainsFunc(r.Orphans, func(x model.Orphan) bool { return x.DeleteAt > 0 }) {
			t.Wide = 3 // none of them is removed automatically
		}
		for _, x := range r.Orphans {
			t.Row(x.ID, x.Provider, x.Cluster, x.Node, string(x.Why), out.Ago(x.Since), output.Moment(x.DeleteAt),
				strconv.FormatUint(x.Fence, 10), x.Fault)
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
	if len(r.Orphans) > 0 {
		out.Noteln("To remove an orphan: coopr provider orphans --remove MACHINE")
	}
	if len(r.Missing) > 0 {
		out.Noteln("To replace a node without a machine: coopr node replace CLUSTER/NODE")
	}
	switch {
	case r.At == 0:
		out.Println("The leader has not asked the providers yet. To ask them now, omit --last.")
	case len(r.Orphans)+len(r.Missing) == 0:
		out.Println("There are no orphans and no missing machines.")
	}
}
