package mesh

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/roster"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

func listRotations(app cli.App) *cobra.Command {
	out := app.Printer()
	return cli.List(app, cli.Listing[roster.Rotation]{
		Use: "rotations", Short: "List the latest rotation of each kind of key", Example: "  coopr operator rotations",
		Empty: "No key of the mesh was replaced yet.",
		Fetch: func(ctx context.Context, c *client.Client, _ []string, read client.Read) ([]roster.Rotation, client.Meta, error) {
			return c.Rotations(ctx, read)
		},
		Rows: func(items []roster.Rotation) output.Table {
			t := output.Table{Head: []string{"KIND", "NUMBER", "FULL", "PHASE", "SINCE", "BEHIND"}}
			for _, r := range items {
				t.Row(r.Kind, fmt.Sprint(r.Number), output.YesNo(r.Full), r.Phase, out.Ago(r.Since), strings.Join(r.Behind, ","))
			}
			return t
		},
	})
}

// rotation completes a command that begins the rotation of a key, which what names in its output.
func rotation(app cli.App, cmd *cobra.Command, what string, asked func() api.NewRotation) *cobra.Command {
	out := app.Printer()
	cmd.Use, cmd.Args = "rotate", cli.Args()
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, _ []string) error {
		r, _, err := c.Rotate(ctx, asked())
		if err != nil {
			return err
		}
		out.Printf("Rotation %d of %s has begun. To see how far it is: coopr operator rotations\n", r.Number, what)
		return nil
	})
	return cmd
}

func rotateKeyring(app cli.App) *cobra.Command {
	var full bool
	cmd := &cobra.Command{
		Short: "Replace the key of the mesh by a new one",
		Long: "Replace the key of the mesh, which encrypts the data keys of the tenants, by a new one. Every member of the Raft group\n" +
			"gets it, and erases the old one when nothing needs it. With --full, data keys and the signing key are replaced too, and all values\n" +
			"are encrypted again: use it if somebody may have a copy of a voter's keyring.",
		Example: "  coopr operator keyring rotate\n  coopr operator keyring rotate --full",
	}
	cmd.Flags().BoolVar(&full, "full", false, "replace data keys too, and encrypt all values again")
	return rotation(app, cmd, "the key of the mesh", func() api.NewRotation { return api.NewRotation{Kind: roster.KindKeyring, Full: full} })
}

func rotateGossip(app cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Short: "Replace the key of gossip by a new one",
		Long: "Replace the key with which agents encrypt gossip by a new one. All agents get it, use it, and then forget the old one.\n" +
			"Agents that are away get it from a voter when they come back. The mesh does this by itself when an agent was removed.",
		Example: "  coopr operator gossip rotate",
	}
	return rotation(app, cmd, "the key of gossip", func() api.NewRotation { return api.NewRotation{Kind: roster.KindGossip} })
}

func rotateCA(app cli.App) *cobra.Command {
	var noBridge bool
	cmd := &cobra.Command{
		Short: "Replace the CA of the mesh by a new one",
		Long: "Replace the CA, which signs the certificates of agents and of their API, by a new one. All agents trust both, get certificates\n" +
			"from the new one, and then stop trusting the old one. Agents that were away and clients that have the old certificate of the CA\n" +
			"follow a bridge to the new one for 90 days. With --no-bridge they are refused: use it if somebody may have the key of the CA.\n" +
			"Give clients the new certificate in either case: coopr-agent ca.",
		Example: "  coopr operator ca rotate\n  coopr operator ca rotate --no-bridge",
	}
	cmd.Flags().BoolVar(&noBridge, "no-bridge", false, "refuse agents that were away and clients that know only the old CA")
	return rotation(app, cmd, "the CA", func() api.NewRotation { return api.NewRotation{Kind: roster.KindCA, NoBridge: noBridge} })
}

func rotateJWKS(app cli.App) *cobra.Command {
	out := app.Printer()
	var now bool
	cmd := &cobra.Command{
		Use: "rotate", Short: "Replace the key for tokens of tasks by a new one", Args: cli.Args(),
		Long: "Replace the key that signs the tokens with which tasks identify themselves elsewhere by a new one. The new one is published at\n" +
			"once and signs a day later; the old one is published until its last token has ended. With --now the new one signs at once, and\n" +
			"tokens of all others are refused as soon as their receivers ask for the keys again: use it if somebody may have a key.",
		Example: "  coopr operator jwks rotate\n  coopr operator jwks rotate --now",
	}
	cmd.Flags().BoolVar(&now, "now", false, "sign with the new key at once, and end all others")
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, _ []string) error {
		if _, _, err := c.Rotate(ctx, api.NewRotation{Kind: roster.KindJWKS, Full: now}); err != nil {
			return err
		}
		if now {
			out.Printf("The new key signs the tokens of tasks from now on. All others have ended.\n")
		} else {
			out.Printf("The new key is published, and signs the tokens of tasks in a day.\n")
		}
		return nil
	})
	return cmd
}

func rotateRoot(app cli.App) *cobra.Command {
	out := app.Printer()
	cmd := &cobra.Command{
		Use: "rotate", Short: "Replace the root token by a new one", Args: cli.Args(),
		Long: "Replace the root token by a new one, which this command makes and shows before it asks for the replacement, so that it\n" +
			"cannot be lost with the answer. The old one and the tokens of its own name end at once. Only the root token may do this.",
		Example: "  coopr operator root rotate --yes",
	}
	cmd.RunE = cli.Confirmed(app, func([]string) string { return "Replace the root token? The old one ends at once." },
		func(ctx context.Context, c *client.Client, _ []string) error {
			token := "coopr-" + rand.Text()
			hash := sha256.Sum256([]byte(token))
			// Only the token goes to the standard output, so that a script can read it.
			out.Notef("The new root token, which is valid once this command has succeeded:\n")
			out.Println(token)
			_, _, err := c.Rotate(ctx, api.NewRotation{Kind: roster.KindRoot, RootHash: hex.EncodeToString(hash[:])})
			if err != nil {
				out.Notef("If the old root token is refused from now on, the new one is valid. Otherwise forget the new one.\n")
			}
			return err
		})
	return cmd
}
