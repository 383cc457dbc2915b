package mesh

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

func OperatorCommand(app cli.App) *cobra.Command {
	out := app.Printer()
	peers := cli.List(app, cli.Listing[api.RaftPeer]{
		Use: "peers", Short: "List the members of the Raft group", Example: "  coopr operator raft peers", Empty: "The Raft group has no members.", Still: true,
		Fetch: func(ctx context.Context, c *client.Client, _ []string, _ client.Read) ([]api.RaftPeer, client.Meta, error) {
			p, err := c.RaftPeers(ctx)
			return p, client.Meta{}, err
		},
		Rows: func(items []api.RaftPeer) output.Table {
			t := output.Table{Head: []string{"ID", "NAME", "ADDRESS", "VOTER", "LEADER", "HEALTHY"}}
			for _, p := range items {
				t.Row(p.ID, p.Name, p.Addr, output.YesNo(p.Voter), output.YesNo(p.Leader), output.YesNo(p.Healthy))
			}
			return t
		},
	})
	transfer := &cobra.Command{
		Use: "transfer [ID]", Short: "Hand leadership to another voter", Args: cli.Args("[ID]"),
		Example: "  coopr operator raft transfer\n  coopr operator raft transfer 2f1c…",
	}
	transfer.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, given []string) error {
		to := ""
		if len(given) > 0 {
			to = given[0]
		}
		if err := c.RaftTransfer(ctx, to); err != nil {
			return err
		}
		out.Println("Leadership is handed over. See: coopr status")
		return nil
	})
	remove := &cobra.Command{
		Use: "remove ID", Short: "Remove a member from the Raft group", Args: cli.Args("ID"),
		Long:    "Remove a member from the Raft group. Agents that die are removed by themselves;\nthis is for a member that they cannot agree on.",
		Example: "  coopr operator raft remove 2f1c… --yes",
	}
	remove.RunE = func(cmd *cobra.Command, args []string) error {
		if err := cli.Confirm(app, cmd, fmt.Sprintf("Remove %s from the Raft group?", args[0])); err != nil {
			return err
		}
		return cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
			if err := c.RaftRemove(ctx, args[0]); err != nil {
				return err
			}
			out.Printf("Removed: %s.\n", args[0])
			return nil
		})(cmd, args)
	}
	return cli.Group("operator", "Look after the mesh itself",
		cli.Group("raft", "Look at and change the Raft group", peers, transfer, remove),
		cli.Group("snapshot", "Save and restore the whole state", snapshotSaveCmd(app), snapshotRestoreCmd(app)),
	)
}

func snapshotSaveCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	cmd := &cobra.Command{
		Use: "save FILE", Short: "Save the whole state into a file", Args: cli.Args("FILE"),
		Long:    "Save the whole state into a file. It holds secrets: keep it where secrets are kept.",
		Example: "  coopr operator snapshot save coopr.snap",
	}
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) (err error) {
		// Whole or not at all: a half file must not look like a snapshot.
		f, err := os.CreateTemp(filepath.Dir(args[0]), ".snapshot-*")
		if err != nil {
			return err
		}
		defer func() {
			if err != nil {
				err = errors.Join(err, os.Remove(f.Name()))
			}
		}()
		n, err := c.SnapshotSave(ctx, f)
		if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
			return err
		}
		if err := os.Rename(f.Name(), args[0]); err != nil {
			return err
		}
		out.Printf("Saved: %s, %d bytes.\n", args[0], n)
		return nil
	})
	return cmd
}

func snapshotRestoreCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	cmd := &cobra.Command{
		Use: "restore FILE", Short: "Replace the whole state by a saved one", Args: cli.Args("FILE"),
		Example: "  coopr operator snapshot restore coopr.snap --yes",
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f, err := os.Open(args[0])
		if err != nil {
			return err
		}
		defer f.Close()
		if err := cli.Confirm(app, cmd, "Replace the whole state of the mesh by that of the file? What was done since is forgotten."); err != nil {
			return err
		}
		return cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
			if err := c.SnapshotRestore(ctx, f); err != nil {
				return err
			}
			out.Printf("Restored: %s.\n", args[0])
			return nil
		})(cmd, args)
	}
	return cmd
}
