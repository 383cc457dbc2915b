package access

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

// UserCommand returns the command "user".
func UserCommand(app cli.App) *cobra.Command {
	out := app.Printer()
	list := cli.List(app, cli.Listing[model.User]{
		Use: "list", Short: "List the users of the tenant", Example: "  coopr user list", Empty: "There are no users.",
		Fetch: func(ctx context.Context, c *client.Client, _ []string, read client.Read) ([]model.User, client.Meta, error) {
			return c.Users(ctx, read)
		},
		Rows: func(items []model.User) output.Table {
			t := output.Table{Head: []string{"NAME", "ROLE", "GROUPS", "LOGIN", "AGE", "DESCRIPTION"}}
			for _, x := range items {
				t.Row(x.Name, string(x.Role), strings.Join(x.Groups, ","), loginOf(x), out.Ago(x.Created), x.Description)
			}
			return t
		},
	})
	get := &cobra.Command{Use: "get NAME", Short: "Show a user", Args: cli.Args("NAME"), Example: "  coopr user get ann",
		ValidArgsFunction: completeUsers(app)}
	cli.FormFlag(get, output.FormYAML, output.FormJSON)
	get.RunE = cli.Show(app, func(ctx context.Context, c *client.Client, args []string) (model.User, error) {
		u, _, err := c.User(ctx, args[0], client.Read{})
		return u, err
	}, nil)
	del := &cobra.Command{Use: "delete NAME", Short: "Delete a user", Args: cli.Args("NAME"), ValidArgsFunction: completeUsers(app),
		Long: "Delete a user. The user's sessions and tokens end. What the user made stays, and the name is not given to another\n" +
			"user. To lock somebody out for a time, use \"coopr user set NAME --disable\".",
		Example: "  coopr user delete ann --yes"}
	del.RunE = cli.Confirmed(app, func(args []string) string {
		return fmt.Sprintf("Delete user %s and end all sessions and tokens?", args[0])
	}, func(ctx context.Context, c *client.Client, args []string) error {
		_, err := c.DeleteUser(ctx, args[0])
		if err == nil {
			out.Printf("User %s was deleted.\n", args[0])
		}
		return err
	})
	return cli.Group("user", "Manage users", list, get, createUser(app), setUser(app), del)
}

// loginOf describes how a user logs in.
func loginOf(u model.User) string {
	switch {
	case u.Disabled:
		return "disabled"
	case u.Left != 0:
		return "not in " + u.Method
	case u.FromDirectory():
		return u.Method
	case u.Method == model.MethodAccount:
		return "service account"
	case u.PasswordSet == 0:
		return "no password"
	}
	return "password"
}

func createUser(app cli.App) *cobra.Command {
	out := app.Printer()
	var req api.NewUser
	var role string
	var account, fromStdin bool
	c := &cobra.Command{
		Use: "create NAME", Short: "Create a user", Args: cli.Args("NAME"),
		Long: "Create a user. Without --password-stdin, a password is made up and shown once; the user changes it with \"coopr password\".\n" +
			"A service account (--account) is a program: it has tokens and no password. A name is given once and never again.",
		Example: "  coopr user create ann --role admin\n  coopr user create bob --group devs --group editor\n  coopr user create ci --account",
	}
	f := c.Flags()
	f.StringVar(&role, "role", string(model.RoleUser), "role: superadmin, admin, user or read")
	cli.CompleteValues(c, "role", "superadmin", "admin", "user", "read")
	f.StringSliceVar(&req.Groups, "group", nil, "group of the user, which policies name; may be repeated")
	f.StringVar(&req.Description, "description", "", "description of the user")
	f.BoolVar(&account, "account", false, "create a service account")
	f.BoolVar(&fromStdin, "password-stdin", false, "read the password from the standard input")
	c.MarkFlagsMutuallyExclusive("account", "password-stdin")
	c.RunE = cli.Run(app, func(ctx context.Context, conn *client.Client, args []string) error {
		req.Name, req.Role = args[0], model.Role(role)
		made := ""
		switch {
		case account:
			req.Method = model.MethodAccount
		case fromStdin:
			p, err := askPassword(app, c, true, "")
			if err != nil {
				return err
			}
			req.Password = p
		default:
			made = newPassword()
			req.Password = made
		}
		u, _, err := conn.CreateUser(ctx, req)
		if err != nil {
			return err
		}
		out.Notef("User %s was created in tenant %s, with the role %s.\n", u.Name, u.Tenant, u.Role)
		if made != "" {
			// Only the password goes to the standard output, so that a script can read it.
			out.Noteln("The password is shown only once:")
			out.Println(made)
		}
		return nil
	})
	return c
}

// newPassword returns a random password of four groups of five characters.
func newPassword() string {
	text := strings.ToLower(rand.Text())
	return text[:5] + "-" + text[5:10] + "-" + text[10:15] + "-" + text[15:20]
}

func setUser(app cli.App) *cobra.Command {
	out := app.Printer()
	var role, description string
	var groups []string
	var enable, disable, fresh bool
	c := &cobra.Command{
		Use: "set NAME", Short: "Change a user", Args: cli.Args("NAME"), ValidArgsFunction: completeUsers(app),
		Long: "Change a user. Another role, other groups and --disable count at once. Values without a flag stay unchanged.",
		Example: "  coopr user set bob --role admin\n  coopr user set bob --group devs --group oncall\n  coopr user set bob --disable\n" +
			"  coopr user set bob --new-password",
	}
	f := c.Flags()
	f.StringVar(&role, "role", "", "role: superadmin, admin, user or read")
	cli.CompleteValues(c, "role", "superadmin", "admin", "user", "read")
	f.StringSliceVar(&groups, "group", nil, "the user's groups, all of them; \"\" for none")
	f.StringVar(&description, "description", "", "description of the user")
	f.BoolVar(&disable, "disable", false, "lock the user out: no login, and no token of the user is valid")
	f.BoolVar(&enable, "enable", false, "let a disabled user in again")
	f.BoolVar(&fresh, "new-password", false, "make up a new password and show it once; the user's sessions end")
	c.MarkFlagsMutuallyExclusive("enable", "disable")
	c.RunE = cli.Run(app, func(ctx context.Context, conn *client.Client, args []string) error {
		var ch api.UserChange
		if f.Changed("role") {
			r := model.Role(role)
			ch.Role = &r
		}
		if f.Changed("group") {
			ch.Groups = &groups
		}
		if f.Changed("description") {
			ch.Description = &description
		}
		if enable || disable {
			ch.Disabled = &disable
		}
		made := newPassword()
		if fresh {
			ch.Password = &made
		}
		if ch == (api.UserChange{}) {
			return cli.Usage(c, "nothing to change: give a flag such as --role")
		}
		u, _, err := conn.ChangeUser(ctx, args[0], ch)
		if err != nil {
			return err
		}
		out.Notef("User %s was changed.\n", u.Name)
		if fresh {
			out.Noteln("The new password is shown only once:")
			out.Println(made)
		}
		return nil
	})
	return c
}

// completeUsers completes the names of users.
func completeUsers(app cli.App) cli.Completion {
	return cli.Complete(app, func(ctx context.Context, c *client.Client) ([]string, error) {
		all, _, err := c.Users(ctx, client.Read{})
		var out []string
		for _, u := range all {
			out = append(out, u.Name+"\t"+string(u.Role))
		}
		return out, err
	})
}
