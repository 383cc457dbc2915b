package mesh

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

// OperatorCommand returns the command "operator".
func OperatorCommand(app cli.App) *cobra.Command {
	out := app.Printer()
	peers := cli.List(app, cli.Listing[api.RaftPeer]{
		Use: "peers", Short: "List the members of the Raft group", Example: "  coopr operator raft peers",
		Empty: "The Raft group has no members.", Still: true,
		Fetch: func(ctx context.Context, c *client.Client, _ []string, _ client.Read) ([]api.RaftPeer, client.Meta, error) {
			p, err := c.RaftPeers(ctx)
			return p, client.Meta{}, err
		},
		Rows: func(items []api.RaftPeer) output.Table {
			t := output.Table{Head: []string{"ID", "NAME", "ADDRESS", "VOTER", "LEADER", "HEALTHY", "STATE"}}
			for _, p := range items {
				t.Row(p.ID, p.Name, p.Addr, output.YesNo(p.Voter), output.YesNo(p.Leader), output.YesNo(p.Healthy), cmp.Or(p.State, "-"))
			}
			return t
		},
	})
	transfer := &cobra.Command{
		Use: "transfer [ID]", Short: "Transfer leadership to another voter", Args: cli.Args("[ID]"),
		ValidArgsFunction: cli.CompleteAgents(app, true),
		Example:           "  coopr operator raft transfer\n  coopr operator raft transfer 7d0f1b2c-1111-4222-8333-944455566677",
	}
	transfer.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, given []string) error {
		to := ""
		if len(given) > 0 {
			to = given[0]
		}
		if err := c.RaftTransfer(ctx, to); err != nil {
			return err
		}
		out.Println("Leadership was transferred. To see the new leader: coopr status")
		return nil
	})
	remove := &cobra.Command{
		Use: "remove ID", Short: "Remove a member from the Raft group", Args: cli.Args("ID"),
		ValidArgsFunction: cli.CompleteAgents(app, true),
		Long: "Remove a member from the Raft group. The mesh removes dead agents by itself;\n" +
			"use this command only for a member that the mesh does not remove.",
		Example: "  coopr operator raft remove 7d0f1b2c-1111-4222-8333-944455566677 --yes",
	}
	remove.RunE = cli.Confirmed(app, func(args []string) string { return fmt.Sprintf("Remove %s from the Raft group?", args[0]) },
		func(ctx context.Context, c *client.Client, args []string) error {
			err := c.RaftRemove(ctx, args[0])
			if err == nil {
				out.Printf("%s was removed from the Raft group.\n", args[0])
			}
			return err
		})
	return cli.Group("operator", "Maintain the mesh: Raft group, keys, snapshots of the state, and debug bundles",
		cli.Group("keyring", "Replace the key of the mesh", rotateKeyring(app)),
		cli.Group("gossip", "Replace the key of gossip", rotateGossip(app)),
		cli.Group("ca", "Replace the CA of the mesh", rotateCA(app)),
		cli.Group("jwks", "Replace the key for tokens of tasks", rotateJWKS(app)),
		cli.Group("root", "Replace the root token", rotateRoot(app)),
		listRotations(app),
		resumeCmd(app),
		debugCmd(app),
		cli.Group("raft", "Show and change the Raft group", peers, transfer, remove),
		cli.Group("snapshot", "Save and restore the whole state", snapshotSaveCmd(app), snapshotRestoreCmd(app)),
	)
}

func snapshotSaveCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	cmd := &cobra.Command{
		Use: "save FILE", Short: "Save the whole state to a file", Args: cli.Args("FILE"),
		Long: "Save the whole state to a file. The file contains secrets: store it like a password. The keyring is the other half of a\n" +
			"backup, and this command warns if it was never exported.",
		Example: "  coopr operator snapshot save coopr.snap",
	}
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		var n int64
		err := cli.WriteFile(args[0], func(w io.Writer) (err error) {
			n, err = c.SnapshotSave(ctx, w)
			return err
		})
		if err != nil {
			return err
		}
		out.Printf("%s was saved: %d bytes.\n", args[0], n)
		k, _, err := c.Keyring(ctx, client.Read{})
		switch {
		case err != nil: // such as an agent of an older build: the file is whole
			out.Notef("Warning: it is not known whether the keyring was exported: %v\n", err)
		case k.Key > 0:
			out.Printf("The keyring with key %d is the other half of the backup.\n", k.Key)
		}
		if k.Key > 0 && k.Exported == 0 {
			out.Notef("Warning: The keyring's key %d was never exported: run coopr-agent keyring export on the host of a voter.\n", k.Key)
		}
		return nil
	})
	return cmd
}

func snapshotRestoreCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	cmd := &cobra.Command{
		Use: "restore FILE", Short: "Replace the whole state with a saved one", Args: cli.Args("FILE"),
		Long: `Replace the whole state with a saved one. The file must be whole and signed, by
this mesh or by one whose keyring this mesh has. Nothing is replaced before all
of that is checked.

The mesh is held then: it shows everything and begins no work, until "coopr
operator resume". What is on record may have changed since the file was saved, or
may be the work of another mesh by now.`,
		Example: "  coopr operator snapshot restore coopr.snap --yes",
	}
	resume := cmd.Flags().Bool("resume", false, "begin work at once, without a person's look at what was restored")
	unsigned := cmd.Flags().Bool("unsigned", false, "take a file that nothing proves: without a signature, or signed by a mesh whose "+
		"keyring is not here")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f, err := os.Open(args[0])
		if err != nil {
			return err
		}
		defer f.Close()
		if err := cli.Confirm(app, cmd, "Replace the whole state of the mesh with the one in the file? All later changes are lost."); err != nil {
			return err
		}
		return cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
			o := api.RestoreOptions{Unsigned: *unsigned, Resume: *resume, File: filepath.Base(args[0])}
			if err := c.SnapshotRestore(ctx, f, o); err != nil {
				return err
			}
			if *unsigned {
				out.Notef("Warning: nobody has checked who wrote %s.\n", args[0])
			}
			out.Printf("The state was restored from %s.\n", args[0])
			if !*resume {
				out.Printf("The mesh is held: it begins no work. Look at its clusters and operations, then run coopr operator resume.\n")
			}
			return nil
		})(cmd, args)
	}
	return cmd
}

func resumeCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	cmd := &cobra.Command{
		Use: "resume", Short: "Have a restored mesh begin work again", Args: cli.Args(),
		Long: `Have a mesh begin work again that was restored from a snapshot. Until then it is
held: it leases no tasks, and starts, recovers, watches and removes nothing.
Look at its clusters and operations before, and make sure that no other mesh
works on the same machines.`,
		Example: "  coopr operator resume",
	}
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, _ []string) error {
		if _, err := c.Resume(ctx); err != nil {
			return err
		}
		out.Println("The mesh begins work again.")
		return nil
	})
	return cmd
}
