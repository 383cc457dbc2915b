package run

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/internal/words"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

// SecretCommand returns the command "secret".
func SecretCommand(app cli.App) *cobra.Command {
	out := app.Printer()
	names := cli.Complete(app, func(ctx context.Context, c *client.Client) ([]string, error) {
		list, _, err := c.Secrets(ctx, client.Read{})
		return list, err
	})
	list := cli.List(app, cli.Listing[string]{
		Use: "list", Short: "List the names of secrets; their values are never shown", Example: "  coopr secret list",
		Empty: "There are no secrets. To store one: coopr secret put NAME",
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
	get := &cobra.Command{Use: "get NAME", Short: "Show who may refer to a secret", Args: cli.Args("NAME"),
		Example: "  coopr secret get cloud-token", ValidArgsFunction: names}
	cli.FormFlag(get, output.FormTable, output.FormJSON, output.FormYAML)
	get.RunE = cli.Show(app, func(ctx context.Context, c *client.Client, args []string) (api.Secret, error) {
		s, _, err := c.Secret(ctx, args[0], client.Read{})
		return s, err
	}, func(s api.Secret) {
		users := append([]string{"administrators"}, s.UsableBy...)
		if slices.Contains(s.UsableBy, profile.Everybody) {
			users = []string{"all users of the tenant"}
		}
		out.Printf("Programs and runs of %s may refer to the secret %s.\n", words.And(users), s.Name)
	})
	var file string
	var usableBy []string
	put := &cobra.Command{Use: "put NAME", Short: "Store a secret from a file or the standard input", Args: cli.Args("NAME"),
		ValidArgsFunction: names,
		Long: `Store a secret. Properties of profiles, environment variables of programs, definitions
and configurations of clusters refer to it as ${secure(NAME)}. Only the plugins and jobs that use the secret receive its
value; it is never shown. A newline at the end is not part of the secret.

Administrators may refer to the secret in what they write, and so may the users
that --usable-by names. Without the flag, the users of a secret stay as they are.
A job can print the secrets that it uses.`,
		Example: "  pass show cloud/token | coopr secret put cloud-token\n  coopr secret put key --file key.pem --usable-by alice,bob"}
	put.Flags().StringSliceVar(&usableBy, "usable-by", nil,
		"all users whose programs and runs may refer to the secret; '*': all of the tenant; '': none")
	put.Flags().StringVarP(&file, "file", "f", "-", "file with the value; -: standard input")
	put.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		value, err := cli.ReadFile(app, file)
		if err != nil {
			return err
		}
		text := strings.TrimSuffix(strings.TrimSuffix(string(value), "\n"), "\r")
		if text == "" {
			return errors.New("the secret is empty and was not stored")
		}
		body := api.SecretBody{Value: text}
		if put.Flags().Changed("usable-by") {
			body.UsableBy = append([]string{}, usableBy...)
		}
		if err := c.PutSecret(ctx, args[0], body); err != nil {
			return err
		}
		out.Printf("Secret %s was stored. To refer to it: ${secure(%s)}\n", args[0], args[0])
		return nil
	})
	del := &cobra.Command{Use: "delete NAME", Short: "Delete a secret", Args: cli.Args("NAME"),
		Example: "  coopr secret delete cloud-token", ValidArgsFunction: names}
	del.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		if err := c.DeleteSecret(ctx, args[0]); err != nil {
			return err
		}
		out.Printf("Secret %s was deleted.\n", args[0])
		return nil
	})
	return cli.Group("secret", "Manage secrets that profiles and programs refer to", list, get, put, del)
}
