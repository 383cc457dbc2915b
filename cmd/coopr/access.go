package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"
)

func (a *app) tenantCmd() *cobra.Command {
	list := listCmd(a, listing[model.Tenant]{
		use: "list", short: "List tenants", example: "  coopr tenant list", empty: "There are no tenants.",
		fetch: func(ctx context.Context, c *client.Client, _ []string, read client.Read) ([]model.Tenant, client.Meta, error) {
			return c.Tenants(ctx, read)
		},
		rows: func(items []model.Tenant) table {
			t := table{head: []string{"NAME", "MAX CLUSTERS", "MAX NODES", "WEIGHT", "DESCRIPTION"}}
			for _, x := range items {
				t.row(x.Name, unlimited(x.MaxClusters), unlimited(x.MaxNodes), strconv.Itoa(max(x.Weight, 1)), clip(x.Description, 60))
			}
			return t
		},
	})
	get := &cobra.Command{Use: "get NAME", Short: "Show a tenant", Args: args("NAME"), Example: "  coopr tenant get acme", ValidArgsFunction: a.completeTenants()}
	a.outputFlag(get, asYAML, asJSON)
	get.RunE = a.with(func(ctx context.Context, c *client.Client, args []string) error {
		t, _, err := c.TenantByName(ctx, args[0], client.Read{})
		if err != nil {
			return err
		}
		return a.print(t)
	})
	var want model.Tenant
	put := &cobra.Command{
		Use: "put NAME", Short: "Create a tenant, or change one", Args: args("NAME"), ValidArgsFunction: a.completeTenants(),
		Long:    "Create a tenant, or change one: what no flag names stays as it is.",
		Example: "  coopr tenant put acme --max-clusters 10 --max-nodes 200",
	}
	put.Flags().StringVar(&want.Description, "description", "", "what the tenant is")
	put.Flags().IntVar(&want.Weight, "weight", 0, "share of the workers against other tenants; 1 is usual")
	put.Flags().IntVar(&want.MaxClusters, "max-clusters", 0, "most clusters; 0 for no limit")
	put.Flags().IntVar(&want.MaxNodes, "max-nodes", 0, "most nodes of all clusters; 0 for no limit")
	put.RunE = func(cmd *cobra.Command, args []string) error {
		return a.with(func(ctx context.Context, c *client.Client, args []string) error {
			t, created, err := tenantOrNew(ctx, c, args[0])
			if err != nil {
				return err
			}
			for flag, set := range map[string]func(){
				"description": func() { t.Description = want.Description }, "weight": func() { t.Weight = want.Weight },
				"max-clusters": func() { t.MaxClusters = want.MaxClusters }, "max-nodes": func() { t.MaxNodes = want.MaxNodes },
			} {
				if cmd.Flags().Changed(flag) {
					set()
				}
			}
			if _, _, err := c.PutTenant(ctx, t); err != nil {
				return err
			}
			word := "changed"
			if created {
				word = "created"
			}
			fmt.Fprintf(a.out, "Tenant %s is %s.\n", t.Name, word)
			return nil
		})(cmd, args)
	}
	del := &cobra.Command{
		Use: "delete NAME", Short: "Delete a tenant that has no clusters", Args: args("NAME"), ValidArgsFunction: a.completeTenants(),
		Example: "  coopr tenant delete acme --yes",
	}
	del.RunE = func(cmd *cobra.Command, args []string) error {
		if err := a.confirm(cmd, fmt.Sprintf("Delete tenant %s with all its definitions and tokens?", args[0])); err != nil {
			return err
		}
		return a.with(func(ctx context.Context, c *client.Client, args []string) error {
			if _, err := c.DeleteTenant(ctx, args[0]); err != nil {
				return err
			}
			fmt.Fprintf(a.out, "Deleted: tenant %s.\n", args[0])
			return nil
		})(cmd, args)
	}
	return group("tenant", "Work with tenants", list, get, put, del)
}

func (a *app) tokenCmd() *cobra.Command {
	list := listCmd(a, listing[model.Token]{
		use: "list", short: "List the tenant's tokens", example: "  coopr token list", empty: "There are no tokens.",
		fetch: func(ctx context.Context, c *client.Client, _ []string, read client.Read) ([]model.Token, client.Meta, error) {
			return c.Tokens(ctx, read)
		},
		rows: func(items []model.Token) table {
			t := table{head: []string{"ID", "ACTOR", "ROLE", "TENANT", "AGE"}}
			for _, x := range items {
				t.row(x.ID, x.Actor, string(x.Role), x.Tenant, a.ago(x.Created))
			}
			return t
		},
	})
	var role string
	create := &cobra.Command{
		Use: "create ACTOR", Short: "Issue a token", Args: args("ACTOR"),
		Long:    "Issue a token for an actor, the name by which logs and records call its user.\nThe token is shown this once.",
		Example: "  coopr token create alice\n  coopr --tenant acme token create ci --role admin",
	}
	create.Flags().StringVar(&role, "role", string(model.RoleUser), "what it may do: superadmin, admin, user, read")
	_ = create.RegisterFlagCompletionFunc("role", cobra.FixedCompletions([]string{"superadmin", "admin", "user", "read"}, cobra.ShellCompDirectiveNoFileComp))
	a.outputFlag(create, asTable, asJSON, asYAML)
	create.RunE = a.with(func(ctx context.Context, c *client.Client, args []string) error {
		t, meta, err := c.CreateToken(ctx, api.NewToken{Actor: args[0], Role: model.Role(role)})
		if err != nil {
			return err
		}
		if a.structured() {
			return a.print(t)
		}
		if t.Secret == "" && meta.Repeated {
			return fmt.Errorf("the token %s was issued, but the answer with it was lost: coopr token revoke %s, then create another", t.ID, t.ID)
		}
		// The token alone goes to the output, so that a script can take it.
		fmt.Fprintf(a.err, "A token for %s with the role %s in tenant %s; it is shown this once:\n", t.Actor, t.Role, t.Tenant)
		fmt.Fprintln(a.out, t.Secret)
		return nil
	})
	revoke := &cobra.Command{Use: "revoke ID", Short: "Make a token worthless", Args: args("ID"), Example: "  coopr token revoke 7f3a --yes"}
	revoke.ValidArgsFunction = a.complete(func(ctx context.Context, c *client.Client) ([]string, error) {
		all, _, err := c.Tokens(ctx, client.Read{})
		var out []string
		for _, t := range all {
			out = append(out, t.ID+"\t"+t.Actor+" "+string(t.Role))
		}
		return out, err
	})
	revoke.RunE = func(cmd *cobra.Command, args []string) error {
		if err := a.confirm(cmd, fmt.Sprintf("Revoke token %s?", args[0])); err != nil {
			return err
		}
		return a.with(func(ctx context.Context, c *client.Client, args []string) error {
			if _, err := c.DeleteToken(ctx, args[0]); err != nil {
				return err
			}
			fmt.Fprintf(a.out, "Revoked: token %s.\n", args[0])
			return nil
		})(cmd, args)
	}
	return group("token", "Work with tokens", list, create, revoke)
}

func unlimited(n int) string {
	if n == 0 {
		return "no limit"
	}
	return strconv.Itoa(n)
}
