package root

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

// Config is the surroundings of one run of the command line.
type Config struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// StdinTerminal and StdoutTerminal are true if the streams are terminals.
	StdinTerminal, StdoutTerminal bool
	// Width returns the width of the terminal in columns.
	Width func() int
	// Env looks up environment variables.
	Env func(string) string
	// Now returns the present time; nil: time.Now.
	Now func() time.Time
	// Pace is the least time between two reads of something that is watched; 0: a quarter of a second.
	Pace time.Duration
	// Secret asks for a line on the terminal, which does not show it; nil: the line is read from Stdin. It ends with its context.
	Secret func(ctx context.Context, question string) (string, error)
	// Patience is how long the client tries to reach an agent; 0: the client's default.
	Patience time.Duration
}

// app is one run of the command line. It implements cli.App.
type app struct {
	cfg     Config
	printer output.Printer

	// The global flags.
	addr                  []string
	token, tenant, caCert string
	context               string
	yes                   bool
	stale                 bool
	aged                  bool // the age of a stale read was shown
}

var _ cli.App = (*app)(nil)

func newApp(cfg Config) *app {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Pace == 0 {
		cfg.Pace = 250 * time.Millisecond
	}
	return &app{cfg: cfg, printer: output.Printer{
		Stdout: cfg.Stdout, Stderr: cfg.Stderr, Form: output.FormTable,
		Terminal: cfg.StdoutTerminal, Width: cfg.Width, Env: cfg.Env, Clock: cfg.Now,
	}}
}

func (a *app) Printer() *output.Printer { return &a.printer }

func (a *app) Stdin() io.Reader { return a.cfg.Stdin }

func (a *app) Prompt() (interactive, yes bool) {
	return a.cfg.StdinTerminal && a.cfg.StdoutTerminal, a.yes
}

func (a *app) Pace() time.Duration { return a.cfg.Pace }

func (a *app) Client() (*client.Client, error) { return a.connect(a.cfg.Patience) }

func (a *app) HastyClient() (*client.Client, error) { return a.connect(-1) }

// connect returns a client of the mesh that flags, environment variables, a context or the dev agent's file name,
// in this order.
func (a *app) connect(patience time.Duration) (*client.Client, error) {
	cfg, err := a.config()
	if err != nil {
		return nil, err
	}
	cfg.Patience, cfg.Stale, cfg.OnStale = patience, a.stale, a.showAge
	if len(cfg.Addresses) > 0 && cfg.Token != "" {
		return client.New(cfg)
	}
	all, err := a.Contexts()
	if err != nil {
		return nil, err
	}
	if name := a.contextName(all); name != cli.Dev {
		at, err := a.enter(all, name, &cfg)
		if err != nil {
			return nil, err
		}
		if at != nil {
			c, err := client.New(cfg)
			if err == nil {
				a.renew(c, name, *at)
			}
			return c, err
		}
	}
	dev, err := a.dev()
	if err != nil {
		return nil, err
	}
	// The dev agent's token must not reach any other agent.
	if len(cfg.Addresses) == 0 && dev.Addr != "" {
		cfg.Addresses = []string{dev.Addr}
	}
	if cfg.Token == "" && len(cfg.Addresses) == 1 && plainAddr(cfg.Addresses[0]) == plainAddr(dev.Addr) {
		cfg.Token = dev.Token
	}
	return client.New(cfg)
}

// showAge shows once how old the state is that a stale read was answered from.
func (a *app) showAge(age time.Duration, known bool) {
	switch {
	case a.aged:
		return
	case !known:
		a.printer.Notef("This is a copy of the state, of unknown age: the agent has heard from no leader since it started.\n")
	default:
		a.printer.Notef("This is a copy of the state: its agent last heard from a leader %s ago.\n", output.Span(age))
	}
	a.aged = true
}

// config returns what flags and environment variables say.
func (a *app) config() (client.Config, error) {
	cfg := client.Config{Addresses: a.addr, Token: a.token, Tenant: a.tenant, CACert: a.caCert}
	if a.context != "" {
		if len(a.addr) > 0 || a.token != "" {
			return cfg, errors.New("--context names the mesh and the session: give neither --addr nor --token with it")
		}
		return cfg, nil // what a flag says counts before the environment
	}
	if len(cfg.Addresses) == 0 {
		for _, addr := range strings.Split(a.cfg.Env("COOPR_ADDR"), ",") {
			if addr = strings.TrimSpace(addr); addr != "" {
				cfg.Addresses = append(cfg.Addresses, addr)
			}
		}
	}
	for name, value := range map[string]*string{"COOPR_TOKEN": &cfg.Token, "COOPR_TENANT": &cfg.Tenant, "COOPR_CACERT": &cfg.CACert} {
		if *value == "" {
			*value = a.cfg.Env(name)
		}
	}
	return cfg, nil
}

// plainAddr returns an address in the form in which addresses are compared.
func plainAddr(addr string) string {
	return strings.TrimSuffix(strings.TrimPrefix(addr, "http://"), "/")
}

// devFile is the file that "coopr-agent --dev" writes for its user.
type devFile struct {
	Addr  string `json:"addr"`
	Token string `json:"token"`
}

// dev reads the dev agent's file. The result is empty if there is none.
func (a *app) dev() (devFile, error) {
	var d devFile
	path := filepath.Join(a.folder(), "dev.json")
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return d, nil
	case err != nil:
		return d, err
	}
	if err := json.Unmarshal(data, &d); err != nil {
		return d, fmt.Errorf("%s: %w; remove the file, or start coopr-agent --dev again", path, err)
	}
	return d, nil
}
