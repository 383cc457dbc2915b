package access

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/roster"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

// createJoinToken returns the command that makes a token with which agents join the mesh.
func createJoinToken(app cli.App) *cobra.Command {
	out := app.Printer()
	var req api.NewJoinToken
	var uses int
	join := &cobra.Command{
		Use: "join", Short: "Make a token with which an agent joins the mesh", Args: cli.Args(),
		Long: "Make a token with which an agent joins the mesh. It is shown only once: put it into a file of mode 0600 on the new host\n" +
			"(join_token_file), and start the agent.\n\n" +
			"A voter may hold the state and the keys of the mesh, and is trusted with everything: use it for control hosts only.\n" +
			"A worker carries out tasks. It serves the API on loopback only, unless --api is given.",
		Example: "  coopr token join --kind worker\n  coopr token join --kind voter --ttl 30m --uses 2 --zone rack-7\n" +
			"  coopr token join --kind worker --api --name edge1.example.org",
	}
	join.Flags().StringVar(&req.Kind, "kind", "", "what its agents may be: voter or worker")
	join.Flags().StringVar(&req.TTL, "ttl", "", "how long the token is good, such as 30m; 1h unless given")
	join.Flags().IntVar(&uses, "uses", 1, "how many agents can join with it")
	join.Flags().StringVar(&req.Zone, "zone", "", "failure zone of its agents, in place of the one in their configuration")
	join.Flags().BoolVar(&req.API, "api", false, "a worker may serve the API to other machines")
	join.Flags().StringSliceVar(&req.Names, "name", nil,
		"host name or address of a worker's API, for its certificate; needed with --api (repeatable)")
	cli.CompleteValues(join, "kind", roster.Voter, roster.Worker)
	cli.FormFlag(join, output.FormTable, output.FormJSON, output.FormYAML)
	join.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, _ []string) error {
		if req.Kind == "" {
			return cli.Usage(join, "say what joins: --kind voter or --kind worker")
		}
		req.Uses = &uses
		t, meta, err := c.CreateJoinToken(ctx, req)
		if err != nil {
			return err
		}
		if out.Structured() {
			return out.Encode(t)
		}
		if t.Secret == "" && meta.Repeated {
			return fmt.Errorf("join token %s was made, but the response that holds it was lost; revoke it with coopr token revoke-join %s and "+
				"make another one", t.ID, t.ID)
		}
		// Only the token goes to the standard output, so that a script can read it.
		out.Notef("Join token %s for %s, uses left: %d, ends %s. It is shown only once:\n", t.ID, plural(t.Role), t.Uses,
			ends(out, t.Expires))
		out.Println(t.Secret)
		return nil
	})
	return join
}

func listJoinTokens(app cli.App) *cobra.Command {
	out := app.Printer()
	return cli.List(app, cli.Listing[roster.JoinToken]{
		Use: "list-join", Short: "List the join tokens that are still good", Example: "  coopr token list-join",
		Empty: "There are no join tokens.",
		Fetch: func(ctx context.Context, c *client.Client, _ []string, read client.Read) ([]roster.JoinToken, client.Meta, error) {
			return c.JoinTokens(ctx, read)
		},
		Rows: func(items []roster.JoinToken) output.Table {
			t := output.Table{Head: []string{"ID", "KIND", "USES", "ENDS", "ZONE", "API", "CREATOR", "AGE"}}
			for _, x := range items {
				t.Row(x.ID, x.Role, fmt.Sprint(x.Uses), ends(out, x.Expires), x.Zone, yes(x.API || x.Role == roster.Voter), x.Creator,
					out.Ago(x.Created))
			}
			return t
		},
	})
}

func revokeJoinToken(app cli.App) *cobra.Command {
	out := app.Printer()
	revoke := &cobra.Command{Use: "revoke-join ID", Short: "Revoke a join token; agents that have joined with it stay", Args: cli.Args("ID"),
		Example: "  coopr token revoke-join 0fa3b2c1d4e5f607 --yes"}
	revoke.ValidArgsFunction = cli.Complete(app, func(ctx context.Context, c *client.Client) ([]string, error) {
		all, _, err := c.JoinTokens(ctx, client.Read{})
		var out []string
		for _, t := range all {
			out = append(out, t.ID+"\t"+t.Role+" "+t.Zone)
		}
		return out, err
	})
	revoke.RunE = cli.Confirmed(app, func(args []string) string { return fmt.Sprintf("Revoke join token %s?", args[0]) },
		func(ctx context.Context, c *client.Client, args []string) error {
			_, err := c.DeleteJoinToken(ctx, args[0])
			if err == nil {
				out.Printf("Join token %s was revoked.\n", args[0])
			}
			return err
		})
	return revoke
}

func plural(role string) string { return role + "s" }

func yes(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}
