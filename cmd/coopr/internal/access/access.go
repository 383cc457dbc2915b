// Package access holds the commands for tenants and tokens.
package access

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

// TenantCommand returns the command "tenant".
func TenantCommand(app cli.App) *cobra.Command {
	out := app.Printer()
	list := cli.List(app, cli.Listing[model.Tenant]{
		Use: "list", Short: "List tenants", Example: "  coopr tenant list", Empty: "There are no tenants.",
		Fetch: func(ctx context.Context, c *client.Client, _ []string, read client.Read) ([]model.Tenant, client.Meta, error) {
			return c.Tenants(ctx, read)
		},
		Rows: func(items []model.Tenant) output.Table {
			t := output.Table{Head: []string{"NAME", "MAX CLUSTERS", "MAX NODES", "WEIGHT", "DESCRIPTION"}}
			for _, x := range items {
				t.Row(x.Name, limit(&x, model.LimitClusters), limit(&x, model.LimitNodes), strconv.Itoa(max(x.Weight, 1)),
					x.Description)
			}
			return t
		},
	})
	get := &cobra.Command{
		Use: "get NAME", Short: "Show a tenant, and how much of its limits it uses", Args: cli.Args("NAME"),
		Example: "  coopr tenant get acme\n  coopr tenant get acme -o yaml", ValidArgsFunction: completeTenants(app),
	}
	cli.FormFlag(get, output.FormTable, output.FormYAML, output.FormJSON)
	get.RunE = cli.Show(app, func(ctx context.Context, c *client.Client, args []string) (api.TenantUse, error) {
		t, _, err := c.TenantByName(ctx, args[0], client.Read{})
		return t, err
	}, func(t api.TenantUse) { showTenant(out, t) })
	var want model.Tenant
	put := &cobra.Command{
		Use: "put NAME", Short: "Create or change a tenant", Args: cli.Args("NAME"), ValidArgsFunction: completeTenants(app),
		Long:    "Create a tenant, or change one. Values without a flag stay unchanged.",
		Example: "  coopr tenant put acme --max-clusters 10 --max-nodes 200",
	}
	put.Flags().StringVar(&want.Description, "description", "", "description of the tenant")
	put.Flags().IntVar(&want.Weight, "weight", 0, "share of the workers, relative to other tenants; usually 1")
	limits := map[*model.Limit]*int64{}
	for _, l := range model.TenantLimits {
		limits[l] = put.Flags().Int64(l.Flag(), 0, limitHelp(l))
	}
	put.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		t, created, err := tenantOrNew(ctx, c, args[0])
		if err != nil {
			return err
		}
		for flag, set := range map[string]func(){
			"description": func() { t.Description = want.Description }, "weight": func() { t.Weight = want.Weight },
		} {
			if put.Flags().Changed(flag) {
				set()
			}
		}
		for l, n := range limits {
			if put.Flags().Changed(l.Flag()) {
				l.Set(&t, *n)
			}
		}
		if _, _, err := c.PutTenant(ctx, t); err != nil {
			return err
		}
		word := "changed"
		if created {
			word = "created"
		}
		out.Printf("Tenant %s was %s.\n", t.Name, word)
		return nil
	})
	del := &cobra.Command{
		Use: "delete NAME", Short: "Delete a tenant that has no clusters", Args: cli.Args("NAME"), ValidArgsFunction: completeTenants(app),
		Example: "  coopr tenant delete acme --yes",
	}
	del.RunE = cli.Confirmed(app, func(args []string) string {
		return fmt.Sprintf("Delete tenant %s with all its definitions and tokens?", args[0])
	}, func(ctx context.Context, c *client.Client, args []string) error {
		_, err := c.DeleteTenant(ctx, args[0])
		if err == nil {
			out.Printf("Tenant %s was deleted.\n", args[0])
		}
		return err
	})
	return cli.Group("tenant", "Manage tenants", list, get, put, del)
}

// WhoamiCommand returns the command "whoami".
func WhoamiCommand(app cli.App) *cobra.Command {
	out := app.Printer()
	c := &cobra.Command{
		Use: "whoami", Short: "Show whom your token belongs to", Args: cli.Args(),
		Long:    "Show whom your token belongs to, its role, and the tenant in which your commands act.",
		Example: "  coopr whoami\n  coopr whoami -o json",
	}
	cli.FormFlag(c, output.FormTable, output.FormJSON, output.FormYAML)
	c.RunE = cli.Show(app, func(ctx context.Context, c *client.Client, _ []string) (api.Self, error) { return c.Self(ctx) },
		func(self api.Self) {
			out.Printf("%s, with the role %s in tenant %s\n", self.Actor, self.Role, self.Tenant)
			if len(self.Groups) > 0 {
				out.Printf("Groups: %s\n", strings.Join(self.Groups, ", "))
			}
			switch end := time.UnixMilli(self.Expires); {
			case self.Session:
				out.Printf("Session: for %s more, unless it is renewed\n", output.Span(end.Sub(out.Clock())))
			case self.Expires != 0:
				out.Printf("Token: valid for %s more\n", output.Span(end.Sub(out.Clock())))
			}
		})
	return c
}

// limit returns a limit of a tenant as text.
func limit(t *model.Tenant, l *model.Limit) string { return amount(l, l.Of(t)) }

// amount returns a number of what a limit is about.
func amount(l *model.Limit, n int64) string {
	if l.Bytes {
		return output.Bytes(n)
	}
	return strconv.FormatInt(n, 10)
}

// limitHelp returns the help of the flag that sets a limit.
func limitHelp(l *model.Limit) string {
	def := "as the agents are configured"
	if l.Default > 0 {
		def = strconv.FormatInt(l.Default, 10)
	}
	return "largest number of " + l.What + "; 0: the default, " + def
}

// showTenant shows a tenant with the use of its limits.
func showTenant(out *output.Printer, t api.TenantUse) {
	out.Printf("Tenant %s, weight %d\n", t.Name, max(t.Weight, 1))
	if t.Description != "" {
		out.Printf("%s\n", t.Description)
	}
	out.Println()
	rows := output.Table{Head: []string{"LIMIT", "USED", "OF", "NOTE"}}
	var near []string
	for _, u := range t.Use {
		i := slices.IndexFunc(model.TenantLimits, func(l *model.Limit) bool { return l.Name == u.Limit })
		if i < 0 {
			continue // of a newer build
		}
		l, used, most, note := model.TenantLimits[i], "", "no limit", ""
		if u.Used != nil {
			used = amount(l, *u.Used)
		}
		if u.Max > 0 {
			most = amount(l, u.Max)
		}
		if u.Near {
			note = "little room is left"
			near = append(near, l.Raise(t.Name))
		}
		rows.Row(u.What, used, most, note)
	}
	out.Show(rows)
	for _, advice := range slices.Compact(near) {
		out.Notef("More than %d %% are used: %s\n", model.NearLimit, advice)
	}
}

// tenantOrNew returns the tenant with this name. If there is none, it returns a tenant that has only the
// name, and created is true: the caller stores it.
func tenantOrNew(ctx context.Context, c *client.Client, name string) (t model.Tenant, created bool, err error) {
	have, _, err := c.TenantByName(ctx, name, client.Read{})
	if errors.Is(err, client.ErrNotFound) {
		return model.Tenant{Name: name}, true, nil
	}
	return have.Tenant, false, err
}

// completeTenants completes the names of tenants.
func completeTenants(app cli.App) cli.Completion {
	return cli.Complete(app, func(ctx context.Context, c *client.Client) ([]string, error) {
		all, _, err := c.Tenants(ctx, client.Read{})
		var out []string
		for _, t := range all {
			out = append(out, t.Name)
		}
		return out, err
	})
}
