package access

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

// TokenCommand returns the command "token".
func TokenCommand(app cli.App) *cobra.Command {
	return cli.Group("token", "Manage API tokens", listTokens(app), getToken(app), createToken(app), revokeToken(app), createJoinToken(app),
		listJoinTokens(app), revokeJoinToken(app))
}

func listTokens(app cli.App) *cobra.Command {
	out := app.Printer()
	var own bool
	list := cli.List(app, cli.Listing[model.Token]{
		Use: "list", Short: "List tokens: those of the tenant, or with --own your own", Example: "  coopr token list\n  coopr token list --own",
		Empty: "There are no tokens.",
		Fetch: func(ctx context.Context, c *client.Client, _ []string, read client.Read) ([]model.Token, client.Meta, error) {
			return fetchTokens(ctx, c, own, read)
		},
		Rows: func(items []model.Token) output.Table {
			t := output.Table{Head: []string{"ID", "ACTOR", "ROLE", "KIND", "TENANT", "AGE", "USED", "ENDS", "FROM", "DESCRIPTION"}}
			for _, x := range items {
				t.Row(x.ID, x.Actor, string(x.Role), kindOf(x), x.Tenant, out.Ago(x.Created), used(out, x.Used), ends(out, x.Expires),
					from(x.Sources), x.Description)
			}
			return t
		},
	})
	list.Flags().BoolVar(&own, "own", false, "list your own tokens and sessions")
	return list
}

// fetchTokens returns the tokens of the tenant, or those of the caller.
func fetchTokens(ctx context.Context, c *client.Client, own bool, read client.Read) ([]model.Token, client.Meta, error) {
	if own {
		return c.OwnTokens(ctx, read)
	}
	return c.Tokens(ctx, read)
}

// used returns how long ago a token was last used. The mesh knows the hour.
func used(out *output.Printer, hour int64) string {
	if hour == 0 {
		return "never"
	}
	ago := out.Clock().Sub(time.UnixMilli(hour)).Truncate(time.Hour)
	switch {
	case ago < time.Hour:
		return "<1h"
	case ago < 24*time.Hour:
		return fmt.Sprintf("%dh", int(ago.Hours()))
	}
	return output.Span(ago)
}

// from returns the first source range of a token and the number of the others.
func from(sources []string) string {
	switch len(sources) {
	case 0:
		return "anywhere"
	case 1:
		return sources[0]
	}
	return fmt.Sprintf("%s +%d", sources[0], len(sources)-1)
}

func getToken(app cli.App) *cobra.Command {
	var own bool
	get := &cobra.Command{Use: "get ID", Short: "Show a token, without its secret", Args: cli.Args("ID"),
		Example: "  coopr token get 7f3a\n  coopr token get 7f3a --own"}
	get.Flags().BoolVar(&own, "own", false, "the token is yours")
	get.ValidArgsFunction = completeTokens(app, &own)
	cli.FormFlag(get, output.FormYAML, output.FormJSON)
	get.RunE = cli.Show(app, func(ctx context.Context, c *client.Client, args []string) (model.Token, error) {
		all, _, err := fetchTokens(ctx, c, own, client.Read{})
		if err != nil {
			return model.Token{}, err
		}
		for _, t := range all {
			if t.ID == args[0] {
				return t, nil
			}
		}
		return model.Token{}, problem.New(problem.NotFound, "there is no token with the id %q", args[0])
	}, nil)
	return get
}

// completeTokens completes the ids of tokens, or of the caller's own.
func completeTokens(app cli.App, own *bool) cli.Completion {
	return cli.Complete(app, func(ctx context.Context, c *client.Client) ([]string, error) {
		all, _, err := fetchTokens(ctx, c, *own, client.Read{})
		var out []string
		for _, t := range all {
			out = append(out, t.ID+"\t"+t.Actor+" "+string(t.Role))
		}
		return out, err
	})
}

func kindOf(t model.Token) string {
	switch {
	case t.Session:
		return "session"
	case t.Parent != "":
		return "of " + t.Parent
	}
	return "token"
}

// ends returns when something ends, from a time in Unix milliseconds; 0 is never.
func ends(out *output.Printer, at int64) string {
	if at == 0 {
		return "never"
	}
	return "in " + output.Span(max(0, time.UnixMilli(at).Sub(out.Clock())))
}

func createToken(app cli.App) *cobra.Command {
	out := app.Printer()
	var role, ttl, description string
	var sources []string
	create := &cobra.Command{
		Use: "create [ACTOR]", Short: "Create a token", Args: cobra.MaximumNArgs(1),
		Long: "Create a token. It is shown only once.\n\n" +
			"Without ACTOR it is yours: it may do what you may, or with --role less, and ends after 30 days unless --ttl says\n" +
			"otherwise. Administrators create tokens for others: ACTOR is the name of the user in logs and in the audit log.\n\n" +
			"With --source the token is refused from any other address, as if it were unknown.",
		Example: "  coopr token create --role read --ttl 12h --description \"dashboard\"\n  coopr token create alice\n" +
			"  coopr --tenant acme token create ci --role admin --source 10.0.0.0/8 --source 2001:db8::/32",
	}
	create.Flags().StringVar(&role, "role", "",
		"role: superadmin, admin, user or read; usually user, or for your own token all that you may do")
	create.Flags().StringVar(&ttl, "ttl", "", "how long the token is valid, such as 12h or 30d")
	create.Flags().StringVar(&description, "description", "", "what the token is for")
	create.Flags().StringSliceVar(&sources, "source", nil,
		"IP network or address from which alone the token can be used, such as 10.0.0.0/8 (repeatable)")
	cli.CompleteValues(create, "role", "superadmin", "admin", "user", "read")
	cli.FormFlag(create, output.FormTable, output.FormJSON, output.FormYAML)
	create.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		var t api.IssuedToken
		var meta client.Meta
		var err error
		if len(args) == 0 {
			t, meta, err = c.CreateOwnToken(ctx, api.OwnToken{Role: model.Role(role), TTL: ttl, Description: description, Sources: sources})
		} else {
			t, meta, err = c.CreateToken(ctx, api.NewToken{Actor: args[0], Role: model.Role(role), TTL: ttl, Description: description,
				Sources: sources})
		}
		if err != nil {
			return err
		}
		if out.Structured() {
			return out.Encode(t)
		}
		if t.Secret == "" && meta.Repeated {
			return fmt.Errorf("token %s was created, but the response that holds it was lost; revoke it with coopr token revoke %s and create "+
				"another one", t.ID, t.ID)
		}
		// Only the token goes to the standard output, so that a script can read it.
		with := ""
		if t.Role != "" {
			with = " with role " + string(t.Role)
		}
		out.Notef("Token for %s%s in tenant %s. It is shown only once:\n", t.Actor, with, t.Tenant)
		out.Println(t.Secret)
		return nil
	})
	return create
}

func revokeToken(app cli.App) *cobra.Command {
	out := app.Printer()
	var own bool
	revoke := &cobra.Command{Use: "revoke ID", Short: "Revoke a token, and those that were made with it", Args: cli.Args("ID"),
		Example: "  coopr token revoke 7f3a --yes\n  coopr token revoke 7f3a --own"}
	revoke.Flags().BoolVar(&own, "own", false, "the token is yours")
	revoke.ValidArgsFunction = completeTokens(app, &own)
	revoke.RunE = cli.Confirmed(app, func(args []string) string { return fmt.Sprintf("Revoke token %s?", args[0]) },
		func(ctx context.Context, c *client.Client, args []string) error {
			end := c.DeleteToken
			if own {
				end = c.DeleteOwnToken
			}
			_, err := end(ctx, args[0])
			if err == nil {
				out.Printf("Token %s was revoked.\n", args[0])
			}
			return err
		})
	return revoke
}
