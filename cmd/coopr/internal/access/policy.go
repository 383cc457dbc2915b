package access

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

// PolicyCommand returns the command "policy".
func PolicyCommand(app cli.App) *cobra.Command {
	out := app.Printer()
	var mesh, force bool
	meshFlag := func(c *cobra.Command) {
		c.Flags().BoolVar(&mesh, "mesh", false, "of the mesh itself, for all tenants (superadmin)")
	}
	list := cli.List(app, cli.Listing[model.Policies]{
		Use: "list", Short: "List the policy documents of the tenant, or of the mesh", Example: "  coopr policy list\n  coopr policy list --mesh",
		Empty: "There are no policy documents: only the built-in policies of the roles decide. To add one: coopr policy put NAME FILE",
		Fetch: func(ctx context.Context, c *client.Client, _ []string, read client.Read) ([]model.Policies, client.Meta, error) {
			return c.Policies(ctx, mesh, read)
		},
		Rows: func(items []model.Policies) output.Table {
			t := output.Table{Head: []string{"NAME", "VERSION", "DESCRIPTION"}}
			for _, x := range items {
				t.Row(x.Name, fmt.Sprint(x.Version), x.Description)
			}
			return t
		},
	})
	meshFlag(list)
	complete := cli.Complete(app, func(ctx context.Context, c *client.Client) ([]string, error) {
		all, _, err := c.Policies(ctx, mesh, client.Read{})
		var names []string
		for _, x := range all {
			names = append(names, x.Name)
		}
		return names, err
	})
	get := &cobra.Command{
		Use: "get NAME", Short: "Show a policy document", Args: cli.Args("NAME"), ValidArgsFunction: complete,
		Long:    "Show a policy document: its text in Cedar, or with -o json or -o yaml all of it.",
		Example: "  coopr policy get guard-rails > guard-rails.cedar\n  coopr policy get guard-rails -o json",
	}
	meshFlag(get)
	cli.FormFlag(get, output.FormTable, output.FormJSON, output.FormYAML)
	get.RunE = cli.Show(app, func(ctx context.Context, c *client.Client, args []string) (model.Policies, error) {
		p, _, err := c.PolicyDocument(ctx, mesh, args[0], client.Read{})
		return p, err
	}, func(p model.Policies) { out.Printf("%s\n", strings.TrimRight(p.Text, "\n")) })
	var description string
	put := &cobra.Command{
		Use: "put NAME FILE", Short: "Write a policy document from a file with policies in Cedar; -: standard input",
		Args: cli.Args("NAME", "FILE"), ValidArgsFunction: complete,
		Long: "Write a policy document from a file with policies in Cedar. The policies are in force at once. A change after\n" +
			"which no user could change the policies is refused without --force. See docs/policies.md.",
		Example: "  coopr policy put guard-rails guard-rails.cedar\n  coopr policy put no-friday friday.cedar --mesh",
	}
	meshFlag(put)
	put.Flags().BoolVar(&force, "force", false, "write it even if no user can change the policies afterwards")
	put.Flags().StringVar(&description, "description", "", "description of the document")
	put.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		data, err := cli.ReadFile(app, args[1])
		if err != nil {
			return err
		}
		doc := model.Policies{Base: model.Base{Name: args[0], Description: description}, Text: string(data)}
		p, _, err := c.PutPolicyDocument(ctx, mesh, doc, force)
		if err == nil {
			out.Printf("Policy document %s was written as version %d.\n", p.Name, p.Version)
		}
		return err
	})
	del := &cobra.Command{
		Use: "delete NAME", Short: "Delete a policy document with all its versions", Args: cli.Args("NAME"), ValidArgsFunction: complete,
		Example: "  coopr policy delete guard-rails --yes",
	}
	meshFlag(del)
	del.Flags().BoolVar(&force, "force", false, "delete it even if no user can change the policies afterwards")
	del.RunE = cli.Confirmed(app, func(args []string) string { return fmt.Sprintf("Delete policy document %s?", args[0]) },
		func(ctx context.Context, c *client.Client, args []string) error {
			_, err := c.DeletePolicyDocument(ctx, mesh, args[0], force)
			if err == nil {
				out.Printf("Policy document %s was deleted.\n", args[0])
			}
			return err
		})
	return cli.Group("policy", "Manage permissions", list, get, put, del)
}

// AuthCommand returns the command "auth".
func AuthCommand(app cli.App) *cobra.Command {
	out := app.Printer()
	var as string
	can := &cobra.Command{
		Use: "can-i ACTION TYPE[/NAME]", Short: "Ask whether you may do something, and why", Args: cli.Args("ACTION", "TYPE[/NAME]"),
		Long: "Ask whether you, or with --as another user, may do something. The answer names the policies that decide, and\n" +
			"the exit code is 0 if it is allowed. Actions: list, read, create, update, delete, operate, execute, use, admin.",
		Example: "  coopr auth can-i delete cluster/shop\n  coopr auth can-i update template/web --as bob",
	}
	can.Flags().StringVar(&as, "as", "", "ask for this user, whom you must be allowed to administer")
	cli.CompleteFlag(can, "as", completeUsers(app))
	cli.FormFlag(can, output.FormTable, output.FormJSON, output.FormYAML)
	can.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		p, err := c.CanI(ctx, args[0], args[1], as)
		switch {
		case err != nil:
			return err
		case out.Structured():
			err = out.Encode(p)
		case p.Allowed:
			out.Printf("yes: %s\n", because(p))
		default:
			out.Printf("no: %s\n", p.Reason)
		}
		if err == nil && !p.Allowed {
			err = &cli.ExitError{Code: 1}
		}
		return err
	})
	return cli.Group("auth", "Ask about permissions", can)
}

// because returns the policies that allow something.
func because(p api.Permission) string {
	if len(p.Grants) > 0 {
		return "shared by grant " + strings.Join(p.Grants, ", ")
	}
	if len(p.Policies) == 0 {
		return p.Rule
	}
	var names []string
	for _, d := range p.Policies {
		names = append(names, d.Policy)
	}
	return "allowed by " + strings.Join(names, ", ")
}
