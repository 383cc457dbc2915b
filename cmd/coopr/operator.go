package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"
)

func (a *app) operatorCmd() *cobra.Command {
	peers := listCmd(a, listing[api.RaftPeer]{
		use: "peers", short: "List the members of the Raft group", example: "  coopr operator raft peers", empty: "The Raft group has no members.", still: true,
		fetch: func(ctx context.Context, c *client.Client, _ []string, _ client.Read) ([]api.RaftPeer, client.Meta, error) {
			p, err := c.RaftPeers(ctx)
			return p, client.Meta{}, err
		},
		rows: func(items []api.RaftPeer) table {
			t := table{head: []string{"ID", "NAME", "ADDRESS", "VOTER", "LEADER", "HEALTHY"}}
			for _, p := range items {
				t.row(p.ID, p.Name, p.Addr, yesNo(p.Voter), yesNo(p.Leader), yesNo(p.Healthy))
			}
			return t
		},
	})
	transfer := &cobra.Command{
		Use: "transfer [ID]", Short: "Hand leadership to another voter", Args: args("[ID]"),
		Example: "  coopr operator raft transfer\n  coopr operator raft transfer 2f1c…",
	}
	transfer.RunE = a.with(func(ctx context.Context, c *client.Client, given []string) error {
		to := ""
		if len(given) > 0 {
			to = given[0]
		}
		if err := c.RaftTransfer(ctx, to); err != nil {
			return err
		}
		fmt.Fprintln(a.out, "Leadership is handed over. See: coopr status")
		return nil
	})
	remove := &cobra.Command{
		Use: "remove ID", Short: "Remove a member from the Raft group", Args: args("ID"),
		Long:    "Remove a member from the Raft group. Agents that die are removed by themselves;\nthis is for a member that they cannot agree on.",
		Example: "  coopr operator raft remove 2f1c… --yes",
	}
	remove.RunE = func(cmd *cobra.Command, args []string) error {
		if err := a.confirm(cmd, fmt.Sprintf("Remove %s from the Raft group?", args[0])); err != nil {
			return err
		}
		return a.with(func(ctx context.Context, c *client.Client, args []string) error {
			if err := c.RaftRemove(ctx, args[0]); err != nil {
				return err
			}
			fmt.Fprintf(a.out, "Removed: %s.\n", args[0])
			return nil
		})(cmd, args)
	}
	return group("operator", "Look after the mesh itself",
		group("raft", "Look at and change the Raft group", peers, transfer, remove),
		group("snapshot", "Save and restore the whole state", a.snapshotSaveCmd(), a.snapshotRestoreCmd(), a.snapshotInspectCmd()),
		a.recoverCmd(),
	)
}

func (a *app) snapshotSaveCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "save FILE", Short: "Save the whole state into a file", Args: args("FILE"),
		Long:    "Save the whole state into a file. It holds secrets: keep it where secrets are kept.",
		Example: "  coopr operator snapshot save coopr.snap",
	}
	cmd.RunE = a.with(func(ctx context.Context, c *client.Client, args []string) (err error) {
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
		fmt.Fprintf(a.out, "Saved: %s, %d bytes.\n", args[0], n)
		return nil
	})
	return cmd
}

func (a *app) snapshotRestoreCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "restore FILE", Short: "Replace the whole state by a saved one", Args: args("FILE"),
		Example: "  coopr operator snapshot restore coopr.snap --yes",
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f, err := os.Open(args[0])
		if err != nil {
			return err
		}
		defer f.Close()
		if err := a.confirm(cmd, "Replace the whole state of the mesh by that of the file? What was done since is forgotten."); err != nil {
			return err
		}
		return a.with(func(ctx context.Context, c *client.Client, args []string) error {
			if err := c.SnapshotRestore(ctx, f); err != nil {
				return err
			}
			fmt.Fprintf(a.out, "Restored: %s.\n", args[0])
			return nil
		})(cmd, args)
	}
	return cmd
}
