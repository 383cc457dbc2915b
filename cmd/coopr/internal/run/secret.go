package run

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

func SecretCommand(app cli.App) *cobra.Command {
	out := app.Printer()
	names := cli.Complete(app, func(ctx context.Context, c *client.Client) ([]string, error) {
		list, _, err := c.Secrets(ctx, client.Read{})
		return list, err
	})
	list := cli.List(app, cli.Listing[string]{
		Use: "list", Short: "List the names of secrets; nothing shows their values", Example: "  coopr secret list",
		Empty: "There are no secrets: keep one with coopr secret put NAME.",
		Fetch: func(ctx context.Context, c *client.Client, _ []string, read client.Read) ([]string, client.Meta, error) {
			return c.Secrets(ctx, read)
		},
		Rows: func(items []string) output.Table {
			t := output.Table{Head: []string{"NAME"}}
			for _, name := range items {
				t.Row(name)
			}
			return t
		},
	})
	var file string
	put := &cobra.Command{Use: "put NAME", Short: "Keep a secret, read from a file or from standard input", Args: cli.Args("NAME"), ValidArgsFunction: names,
		Long: `Keep a secret. Properties of profiles, and the environment of programs' steps, refer to
it as ${secure(NAME)}; its value is given to who uses it, and is shown to nobody. One end
of line at its end is no part of it.`,
		Example: "  pass show cloud/token | coopr secret put cloud-token\n  coopr secret put key --file key.pem"}
	put.Flags().StringVarP(&file, "file", "f", "-", "the file with the value; - for standard input")
	put.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		value, err := cli.ReadFile(app, file)
		if err != nil {
			return err
		}
		text := strings.TrimSuffix(strings.TrimSuffix(string(value), "\n"), "\r")
		if text == "" {
			return errors.New("the secret is empty: nothing is done")
		}
		if err := c.PutSecret(ctx, args[0], text); err != nil {
			return err
		}
		out.Printf("Secret %s is kept: refer to it as ${secure(%s)}.\n", args[0], args[0])
		return nil
	})
	del := &cobra.Command{Use: "delete NAME", Short: "Forget a secret", Args: cli.Args("NAME"), Example: "  coopr secret delete cloud-token", ValidArgsFunction: names}
	del.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		if err := c.DeleteSecret(ctx, args[0]); err != nil {
			return err
		}
		out.Printf("Secret %s is forgotten.\n", args[0])
		return nil
	})
	return cli.Group("secret", "Secrets that profiles and programs refer to", list, put, del)
}
