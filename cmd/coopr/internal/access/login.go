package access

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/words"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

// LoginCommand returns the command "login".
func LoginCommand(app cli.App) *cobra.Command {
	out := app.Printer()
	var name, method string
	var fromStdin, device bool
	c := &cobra.Command{
		Use: "login", Short: "Log in to a mesh", Args: cli.Args(),
		Long: "Log in to a mesh with a name and a password, and use that mesh from now on. The session lasts eight hours and is\n" +
			"prolonged while you use it, for at most seven days. It is kept in a context (coopr context), which is named after the\n" +
			"agent's host unless --context names one. If you log in by a directory or an identity provider that the agents know, name\n" +
			"it with --method once; the context keeps it.",
		Example: "  coopr login --addr https://coopr.example.com --ca-cert ca.pem --tenant acme --user ann\n" +
			"  coopr login --method corp --user ann\n  coopr login --method sso --device\n  coopr login",
	}
	c.Flags().StringVar(&name, "user", "", "your name in the mesh; usually the one that you logged in with last, or that of this machine")
	c.Flags().StringVar(&method, "method", "", "how you log in: local, or the name of a directory or identity provider; usually as last time")
	c.Flags().BoolVar(&device, "device", false, "log in with a browser on another machine")
	c.Flags().BoolVar(&fromStdin, "password-stdin", false, "read the password from the standard input")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		to, err := app.LoginTarget()
		if err != nil {
			return err
		}
		defer to.Client.Close()
		if open := unencrypted(to.Context.Addresses); open != "" {
			return fmt.Errorf("%s is not encrypted: the password could be read on its way; write https:// and give --ca-cert", open)
		}
		if method != "" && method != to.Context.Method {
			to.Context.User = "" // the other method's name
		}
		req := api.Login{
			Tenant: cmp.Or(to.Context.Tenant, model.FirstTenant), User: cmp.Or(name, to.Context.User), Method: cmp.Or(method, to.Context.Method),
		}
		var t api.IssuedToken
		var done bool
		if req.Method != "" && req.Method != model.MethodLocal && !fromStdin {
			begin := api.BeginLogin{Tenant: req.Tenant, Method: req.Method}
			t, done, err = byBrowser(cmd.Context(), to.Client, out, begin, device)
		}
		if err == nil && !done {
			if me, err := user.Current(); req.User == "" && err == nil {
				req.User = me.Username
			}
			if req.Password, err = askPassword(app, cmd, fromStdin, fmt.Sprintf("Password of %s in tenant %s: ", req.User, req.Tenant)); err != nil {
				return err
			}
			t, err = to.Client.Login(cmd.Context(), req)
		}
		if err != nil {
			var refused *client.Error
			switch {
			case !errors.Is(err, client.ErrUnauthorized):
				return err
			case !done:
				return fmt.Errorf("not logged in: the tenant, the name%s or the password is wrong, or the user is disabled", orMethod(req.Method))
			case errors.As(err, &refused):
				return fmt.Errorf("not logged in: %s", refused.Detail)
			}
			return err
		}
		if done {
			req.User = t.Actor
		}
		to.Context.Tenant, to.Context.Method, to.Context.User, to.Context.Token = req.Tenant, req.Method, req.User, t.Secret
		to.Context.Opened, to.Context.Expires, to.Context.Renewable = t.Created, t.Expires, t.Renewable
		at := to.Name
		if at == "" {
			at = nameFor(to)
		}
		to.All.Contexts[at], to.All.Current = to.Context, at
		if err := to.All.Save(); err != nil {
			return err
		}
		out.Printf("Logged in as %s in tenant %s. The context %s is in use.\n", t.Actor, req.Tenant, at)
		return nil
	}
	return c
}

// orMethod names the method in the list of what may be wrong, if there is one.
func orMethod(method string) string {
	if method == "" {
		return ""
	}
	return ", the method " + method
}

// unencrypted returns an address that is neither encrypted nor of this machine, or "".
func unencrypted(addresses []string) string {
	for _, addr := range addresses {
		u, err := url.Parse(addr)
		if err != nil {
			return addr
		}
		ip := net.ParseIP(u.Hostname())
		if u.Scheme != "https" && u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return addr
		}
	}
	return ""
}

// nameFor returns the name of a new context: the host of the agent, with its port if another mesh has the name of the host.
func nameFor(to *cli.LoginTarget) string {
	u, err := url.Parse(to.Context.Addresses[0])
	if err != nil {
		return "default"
	}
	old, ok := to.All.Contexts[u.Hostname()]
	if ok && !slices.Equal(old.Addresses, to.Context.Addresses) || u.Hostname() == cli.Dev {
		return u.Host
	}
	return u.Hostname()
}

// askPassword reads a password: from the standard input, or without showing it on the terminal.
func askPassword(app cli.App, cmd *cobra.Command, fromStdin bool, prompt string) (string, error) {
	interactive, _ := app.Prompt()
	switch {
	case fromStdin:
		data, err := cli.ReadFile(app, "-")
		return strings.TrimRight(string(data), "\r\n"), err
	case !interactive:
		return "", cli.Usage(cmd, "there is no terminal to type the password on: give --password-stdin")
	}
	return app.AskSecret(cmd.Context(), prompt)
}

// LogoutCommand returns the command "logout".
func LogoutCommand(app cli.App) *cobra.Command {
	out := app.Printer()
	c := &cobra.Command{Use: "logout", Short: "End your session", Args: cli.Args(), Example: "  coopr logout"}
	c.Long = "End the session of the context in use. The context stays, so that \"coopr login\" asks for the password only."
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		to, err := app.LoginTarget()
		if err != nil {
			return err
		}
		to.Client.Close()
		if to.Name == "" || to.Context.Token == "" {
			return fmt.Errorf("you are not logged in")
		}
		c, err := client.New(client.Config{Addresses: to.Context.Addresses, CACert: to.Context.CACert, Token: to.Context.Token})
		if err != nil {
			return err
		}
		defer c.Close()
		if _, err := c.Logout(cmd.Context()); err != nil && !errors.Is(err, client.ErrUnauthorized) {
			return err
		}
		to.Context.Token, to.Context.Expires, to.Context.Renewable = "", 0, 0
		to.All.Contexts[to.Name] = to.Context
		if err := to.All.Save(); err != nil {
			return err
		}
		out.Printf("Logged out of %s.\n", to.Name)
		return nil
	}
	return c
}

// PasswordCommand returns the command "password".
func PasswordCommand(app cli.App) *cobra.Command {
	out := app.Printer()
	c := &cobra.Command{Use: "password", Short: "Change your password", Args: cli.Args(), Example: "  coopr password",
		Long: "Change your password. Your other sessions end; your tokens stay valid."}
	c.RunE = cli.Run(app, func(ctx context.Context, conn *client.Client, _ []string) error {
		var typed [3]string
		for i, prompt := range []string{"Old password: ", "New password: ", "New password again: "} {
			var err error
			if typed[i], err = askPassword(app, c, false, prompt); err != nil {
				return err
			}
		}
		if typed[1] != typed[2] {
			return fmt.Errorf("the new passwords differ; nothing was changed")
		}
		if _, err := conn.ChangePassword(ctx, api.NewPassword{Old: typed[0], New: typed[1]}); err != nil {
			return err
		}
		out.Println("The password was changed.")
		return nil
	})
	return c
}

// ContextCommand returns the command "context".
func ContextCommand(app cli.App) *cobra.Command {
	out := app.Printer()
	change := func(fn func(all *cli.Contexts, name string) (string, error)) func(*cobra.Command, []string) error {
		return func(_ *cobra.Command, args []string) error {
			all, err := app.Contexts()
			if err != nil {
				return err
			}
			if _, ok := all.Contexts[args[0]]; !ok && args[0] != cli.Dev {
				return fmt.Errorf("there is no context %q%s", args[0], words.DidYouMeanOrOneOf(args[0], append(all.Names(), cli.Dev)))
			}
			text, err := fn(all, args[0])
			if err == nil {
				err = all.Save()
			}
			if err == nil {
				out.Println(text)
			}
			return err
		}
	}
	names := func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		all, err := app.Contexts()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return append(all.Names(), cli.Dev), cobra.ShellCompDirectiveNoFileComp
	}
	list := &cobra.Command{Use: "list", Short: "List the contexts", Args: cli.Args(), Example: "  coopr context list"}
	list.RunE = func(*cobra.Command, []string) error {
		all, err := app.Contexts()
		if err != nil {
			return err
		}
		t := output.Table{Head: []string{"IN USE", "NAME", "USER", "TENANT", "AGENTS", "SESSION"}}
		for _, name := range all.Names() {
			c, mark := all.Contexts[name], ""
			if name == all.Current {
				mark = "*"
			}
			t.Row(mark, name, c.User, c.Tenant, strings.Join(c.Addresses, ","), session(c, out.Clock()))
		}
		if len(t.Rows) == 0 {
			out.Println("There are no contexts: coopr login makes one.")
			return nil
		}
		out.Show(t)
		return nil
	}
	use := &cobra.Command{Use: "use NAME", Short: "Choose the mesh that commands talk to", Args: cli.Args("NAME"), ValidArgsFunction: names,
		Long:    "Choose the context of commands that name none with --context. The name dev stands for the dev agent of this machine.",
		Example: "  coopr context use coopr.example.com"}
	use.RunE = change(func(all *cli.Contexts, name string) (string, error) {
		all.Current = name
		if name == cli.Dev {
			all.Current = ""
		}
		return fmt.Sprintf("The context %s is in use.", name), nil
	})
	del := &cobra.Command{Use: "delete NAME", Short: "Forget a context", Args: cli.Args("NAME"), ValidArgsFunction: names,
		Long:    "Forget a context with its session's token. The session itself ends by \"coopr logout\", or with its time.",
		Example: "  coopr context delete old-mesh"}
	del.RunE = change(func(all *cli.Contexts, name string) (string, error) {
		if name == cli.Dev {
			return "", fmt.Errorf("the context dev stands for the dev agent of this machine and cannot be deleted")
		}
		delete(all.Contexts, name)
		if all.Current == name {
			all.Current = ""
		}
		return fmt.Sprintf("Context %s was deleted.", name), nil
	})
	return cli.Group("context", "Manage the meshes that you are logged in to", list, use, del)
}

// session describes the session of a context.
func session(c cli.Context, now time.Time) string {
	switch left := time.UnixMilli(c.Expires).Sub(now); {
	case c.Token == "":
		return "logged out"
	case left <= 0:
		return "ended"
	default:
		return "for " + output.Span(left)
	}
}
