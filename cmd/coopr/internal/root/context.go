package root

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/coopr/coopr/internal/words"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
)

// folder returns the folder of the user's files.
func (a *app) folder() string {
	dir := a.cfg.Env("XDG_CONFIG_HOME")
	if dir == "" {
		dir = filepath.Join(a.cfg.Env("HOME"), ".config")
	}
	return filepath.Join(dir, "coopr")
}

// Contexts returns the contexts of the user.
func (a *app) Contexts() (*cli.Contexts, error) {
	return cli.LoadContexts(filepath.Join(a.folder(), "contexts.json"))
}

// contextName returns the name of the context of this run; cli.Dev if there is none.
func (a *app) contextName(all *cli.Contexts) string {
	return cmp.Or(a.context, a.cfg.Env("COOPR_CONTEXT"), all.Current, cli.Dev)
}

// enter completes a configuration from a context. The token of a context goes to its own agents only. The context is nil if its
// session is not used.
func (a *app) enter(all *cli.Contexts, name string, cfg *client.Config) (*cli.Context, error) {
	at, ok := all.Contexts[name]
	if !ok {
		return nil, fmt.Errorf("there is no context %q%s", name, words.DidYouMeanOrOneOf(name, append(all.Names(), cli.Dev)))
	}
	own := at.Addresses
	if len(cfg.Addresses) > 0 {
		if own, ok = at.Own(cfg.Addresses); !ok {
			return nil, nil
		}
	}
	cfg.Addresses = own
	cfg.CACert = cmp.Or(cfg.CACert, at.CACert)
	switch {
	case cfg.Token != "":
		return nil, nil
	case at.Token == "":
		return nil, cli.Hinted(fmt.Errorf("you are not logged in to %s", name), loginHint)
	case at.Expires <= a.cfg.Now().UnixMilli():
		return nil, cli.Hinted(fmt.Errorf("your session with %s has ended", name), loginHint)
	}
	cfg.Token = at.Token
	return &at, nil
}

const loginHint = "Log in with \"coopr login\", or choose another mesh with \"coopr context use\"."

// renewTime bounds the time for the renewal of a session.
const renewTime = 2 * time.Second

// renew prolongs a session that has passed half of its time. A failure does no harm: the next command tries again.
func (a *app) renew(c *client.Client, name string, at cli.Context) {
	now := a.cfg.Now().UnixMilli()
	if now-at.Opened < (at.Expires-at.Opened)/2 || at.Expires >= at.Renewable {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), renewTime)
	defer cancel()
	t, err := c.RenewSession(ctx)
	if err != nil {
		return
	}
	// Another command may have changed the file meanwhile.
	all, err := a.Contexts()
	if err == nil && all.Contexts[name].Token == at.Token {
		at.Opened, at.Expires, at.Renewable = now, t.Expires, t.Renewable
		all.Contexts[name] = at
		err = all.Save()
	}
	if err != nil {
		a.printer.Notef("The renewed session could not be recorded: %v\n", err)
	}
}

// LoginTarget returns a client for a login.
func (a *app) LoginTarget() (*cli.LoginTarget, error) {
	cfg, err := a.config()
	if err != nil {
		return nil, err
	}
	all, err := a.Contexts()
	if err != nil {
		return nil, err
	}
	to := &cli.LoginTarget{All: all}
	if name := a.contextName(all); name != cli.Dev && len(cfg.Addresses) == 0 {
		to.Name, to.Context = name, all.Contexts[name]
	}
	if len(cfg.Addresses) == 0 {
		cfg.Addresses = to.Context.Addresses
	}
	if len(cfg.Addresses) == 0 {
		dev, err := a.dev()
		if err != nil {
			return nil, err
		}
		if dev.Addr != "" {
			cfg.Addresses = []string{dev.Addr}
		}
	}
	cfg.CACert = cmp.Or(cfg.CACert, to.Context.CACert)
	if cfg.CACert != "" {
		if cfg.CACert, err = filepath.Abs(cfg.CACert); err != nil {
			return nil, err
		}
	}
	to.Context.Tenant = cmp.Or(cfg.Tenant, to.Context.Tenant)
	cfg.Tenant, cfg.Token, cfg.Patience = "", "", a.cfg.Patience
	if to.Client, err = client.New(cfg); err != nil {
		return nil, err
	}
	to.Context.Addresses, to.Context.CACert = to.Client.Addresses(), cfg.CACert
	return to, nil
}

// AskSecret asks for a secret on the terminal, which does not show it.
func (a *app) AskSecret(ctx context.Context, prompt string) (string, error) {
	if a.cfg.Secret == nil {
		a.printer.Notef("%s", prompt)
		line, err := bufio.NewReader(a.cfg.Stdin).ReadString('\n')
		if line == "" && err != nil {
			return "", errors.New("no password was typed")
		}
		return strings.TrimRight(line, "\r\n"), nil
	}
	text, err := a.cfg.Secret(ctx, prompt)
	if !errors.Is(err, cli.ErrInterrupted) { // which ends the line
		a.printer.Noteln()
	}
	return text, err
}
